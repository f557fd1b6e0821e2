"""Position-wise feed-forward networks (paper, section 3.3)."""

import keras
import tensorflow as tf

from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.linear import Linear


@keras.saving.register_keras_serializable(package="t2t_keras")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W₁ + b₁) W₂ + b₂ at each position alike (section 3.3, equation 2).

    Args:
        feed_forward_dim: width d_ff of the inner layer.
        dropout: share of max(0, x W₁ + b₁) set to zero in training, the rest grows; 0: none.
        kernel_initializer: of W₁ and W₂, as Keras names or describes it.

    Call arguments:
        x: [..., model_dim].

    Returns:
        [..., model_dim].
    """

    def __init__(
        self, feed_forward_dim, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        self.feed_forward_dim = feed_forward_dim
        self.kernel_initializer = kernel_initializer
        self.dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        model_dim = input_shape[-1]
        self.inner = self._layer(self.feed_forward_dim, activation="relu", name="inner")
        self.inner.build((None, None, model_dim))
        self.outer = self._layer(model_dim, name="outer")
        self.outer.build((None, None, self.feed_forward_dim))

    def _layer(self, width, **kwargs):
        return Linear(width, **self._layer_arguments(), **kwargs)

    def _layer_arguments(self):
        return {"kernel_initializer": self.kernel_initializer, "dtype": self.dtype_policy}

    def call(self, x):
        return self.outer(self.dropout(self.inner(x)))

    def get_config(self):
        return super().get_config() | {
            "feed_forward_dim": self.feed_forward_dim,
            "dropout": self.dropout.rate,
            "kernel_initializer": self.kernel_initializer,
        }


@keras.saving.register_keras_serializable(package="t2t_keras")
class ConvolutionFeedForward(FeedForward):
    """The same function as "two convolutions with kernel size 1" (section 3.3).

    Args:
        feed_forward_dim: width d_ff of the inner layer.
        dropout, kernel_initializer: as for `FeedForward`.

    Call arguments:
        x: [..., model_dim].

    Returns:
        [..., model_dim].
    """

    def call(self, x):
        # A convolution wants a length, and not 0; with kernels of size 1 any will do.
        rows = tf.reshape(x, [-1, x.shape[-1]])
        missing = tf.cast(tf.equal(tf.size(rows), 0), tf.int32)
        padded = tf.pad(rows, [[0, missing], [0, 0]])
        out = super().call(padded[tf.newaxis])[0, : tf.shape(rows)[0]]  # [rows, model_dim]
        return tf.reshape(out, tf.shape(x))

    def _layer(self, width, **kwargs):
        return keras.layers.Conv1D(width, kernel_size=1, **self._layer_arguments(), **kwargs)
