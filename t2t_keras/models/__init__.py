"""The Transformer, its config, and its encoder and decoder for your own models."""

from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.ensemble import Ensemble
from t2t_keras.models.language_model import TransformerLM
from t2t_keras.models.lora import enable_lora, merge_lora
from t2t_keras.models.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer

__all__ = [name for name, value in globals().items() if callable(value)]
