"""The Transformer of "Attention Is All You Need" for TensorFlow and Keras."""

from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer

__all__ = ["Transformer", "TransformerConfig"]
