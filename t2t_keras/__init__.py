"""The Transformer of "Attention Is All You Need" for TensorFlow and Keras.

The names that a user's own code needs; everything else lies one floor down, in `layers`, `data`,
`models`, `training`, `decoding`, `tasks`, `evaluation` and `serving`.
"""

from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.tokenizers import learn_tokenizer, load_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.serving.export import export_saved_model
from t2t_keras.tasks.translation import Translator
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.metrics import Perplexity, TokenAccuracy
from t2t_keras.training.optimizers import adam
from t2t_keras.training.schedules import InverseSquareRoot

__all__ = [
    "InputError",
    "InverseSquareRoot",
    "LabelSmoothedCrossEntropy",
    "LengthBuckets",
    "Perplexity",
    "TokenAccuracy",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "adam",
    "export_saved_model",
    "learn_tokenizer",
    "load_tokenizer",
]
