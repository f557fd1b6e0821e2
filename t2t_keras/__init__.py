"""The Transformer of "Attention Is All You Need" for TensorFlow and Keras.

This module exports the names that most users need; `layers` and `models` contain the parts for your
own models. Everything else is in the subpackages `data`, `training`, `decoding`, `tasks`,
`evaluation`, `interop`, `serving` and `analysis`.
"""

from t2t_keras import errors, layers, models  # errors refuse Keras's other backends
from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.corpora import encode_pairs
from t2t_keras.data.plain_text import TextBuckets, TextPacking, TextStream, encode_texts
from t2t_keras.data.tokenizers import load_tokenizer, train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.evaluation.bracketing import score_trees
from t2t_keras.evaluation.text import corpus_scores, label_scores
from t2t_keras.interop.hub import load
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.ensemble import Ensemble
from t2t_keras.models.language_model import TransformerLM
from t2t_keras.models.transformer import Transformer
from t2t_keras.serving.export import export_saved_model
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.generation import TextGenerator
from t2t_keras.tasks.parsing import Parser
from t2t_keras.tasks.translation import Translator
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.metrics import Perplexity, TokenAccuracy
from t2t_keras.training.optimizers import adam
from t2t_keras.training.schedules import InverseSquareRoot

__all__ = [
    "Classifier",
    "Ensemble",
    "InputError",
    "InverseSquareRoot",
    "LabelSmoothedCrossEntropy",
    "LengthBuckets",
    "Parser",
    "Perplexity",
    "TextBuckets",
    "TextGenerator",
    "TextPacking",
    "TextStream",
    "TokenAccuracy",
    "Transformer",
    "TransformerClassifier",
    "TransformerConfig",
    "TransformerLM",
    "Translator",
    "adam",
    "corpus_scores",
    "encode_pairs",
    "encode_texts",
    "export_saved_model",
    "label_scores",
    "layers",
    "load",
    "load_m2m100",
    "load_marian",
    "load_tokenizer",
    "models",
    "score_trees",
    "train_tokenizer",
]
