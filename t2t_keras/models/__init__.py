"""The Transformer, its config, and its encoder and decoder for your own models."""

from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.ensemble import Ensemble
from t2t_keras.models.lora import enable_lora, merge_lora
from t2t_keras.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Transformer,
)

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "Ensemble",
    "Transformer",
    "TransformerClassifier",
    "TransformerConfig",
    "enable_lora",
    "merge_lora",
]
