"""Position-wise feed-forward networks (paper, section 3.3)."""

import keras
import tensorflow as tf

from t2t_keras.errors import require_whole_number
from t2t_keras.layers.basic import Dropout, Linear, SequenceLayer
from t2t_keras.types import Shape


@keras.saving.register_keras_serializable(package="t2t_keras")
class FeedForward(SequenceLayer):
    """FFN(x) = max(0, x W₁ + b₁) W₂ + b₂, applied to each position (section 3.3, equation 2).

    Args:
        feed_forward_dim: d_ff, width of the inner layer.
        dropout: rate at which the inner layer is dropped in training; the paper has none.
        activation: name of a Keras activation of the inner layer; "relu" is max(0, x).

    x and the result are [..., model_dim].

    Example:
        >>> layers.FeedForward(feed_forward_dim=128)(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    in_ctranslate2 = True
    rematerializes = True
    kind = Linear

    def __init__(self, feed_forward_dim: int, dropout: float = 0.0, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.feed_forward_dim = require_whole_number("feed_forward_dim", feed_forward_dim)
        self.activation = activation
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape: Shape) -> None:
        model_dim, dtype = input_shape[-1], self.dtype_policy
        self.inner = self.kind(
            self.feed_forward_dim, activation=self.activation, dtype=dtype, name="inner"
        )
        self.inner.build((None, None, model_dim))
        self.outer = self.kind(model_dim, dtype=dtype, name="outer")
        self.dropout.build((None, None, self.feed_forward_dim))
        self.outer.build((None, None, self.feed_forward_dim))

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.outer(self.dropout(self.inner(x)))

    def get_config(self) -> dict:
        return super().get_config() | {
            "feed_forward_dim": self.feed_forward_dim,
            "dropout": self.dropout.rate,
            "activation": self.activation,
        }
