"""The feed-forward network as "two convolutions with kernel size 1" (paper, section 3.3)."""

import functools

import keras
import tensorflow as tf

from t2t_keras.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable(package="t2t_keras")
class ConvolutionFeedForward(FeedForward):
    """The same function as `FeedForward`, by convolutions; arguments and results are the same.

    Example:
        >>> layers.ConvolutionFeedForward(feed_forward_dim=128)(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    in_ctranslate2 = True

    kind = staticmethod(
        functools.partial(keras.layers.Conv1D, kernel_size=1, data_format="channels_last")
    )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        # A convolution needs a length above 0; of kernel size 1 any length will do.
        rows = tf.reshape(x, [-1, x.shape[-1]])
        missing = tf.cast(tf.equal(tf.size(rows), 0), tf.int32)
        padded = tf.pad(rows, [[0, missing], [0, 0]])[tf.newaxis]  # [1, rows, model_dim]
        out = self.outer(self.dropout(self.inner(padded)))[0, : tf.shape(rows)[0]]
        return tf.reshape(out, keras.ops.shape(x))
