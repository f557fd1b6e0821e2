"""Pooling: from one vector for each position to one for the whole sequence, for classification.

Padding has no weight; a row that is all padding gives zeros.
"""

import keras
import tensorflow as tf


class Pooling(keras.layers.Layer):
    """A weighted sum of the positions; a subclass defines their weights.

    Call arguments:
        x: [batch, length, model_dim].
        real: bool [batch, length], False on padding.

    Returns:
        [batch, model_dim] in the compute dtype; the sum is in float32.
    """

    def call(self, x, real):
        weights = self.position_weights(x, real)
        pooled = tf.einsum("bl,bld->bd", weights, tf.cast(x, tf.float32))
        return tf.cast(pooled, self.compute_dtype)

    def position_weights(self, x, real):
        """Returns the weight of each position, float32 [batch, length], 0 on padding."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="t2t_keras")
class MeanPooling(Pooling):
    """The mean over the real positions."""

    def position_weights(self, x, real):
        weights = tf.cast(real, tf.float32)
        return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))


@keras.saving.register_keras_serializable(package="t2t_keras")
class FirstPooling(Pooling):
    """The first real position, as in BERT (Devlin et al. 2019)."""

    def position_weights(self, x, real):
        return tf.cast(real & (tf.cumsum(tf.cast(real, tf.int32), axis=1) == 1), tf.float32)


@keras.saving.register_keras_serializable(package="t2t_keras")
class AttentionPooling(Pooling):
    """A mean whose weights are learned: softmax(x·w) over the real positions."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.score = keras.layers.Dense(1, use_bias=False, dtype=self.dtype_policy, name="score")

    def build(self, input_shape):
        self.score.build(input_shape)

    def position_weights(self, x, real):
        scores = tf.cast(self.score(x)[..., 0], tf.float32)
        weights = tf.nn.softmax(tf.where(real, scores, tf.float32.min))
        return tf.where(real, weights, 0.0)


@keras.saving.register_keras_serializable(package="t2t_keras")
class MaxPooling(keras.layers.Layer):
    """The largest value of each dimension over the real positions; arguments as for `Pooling`."""

    def call(self, x, real):
        real = real[..., tf.newaxis]
        largest = tf.reduce_max(tf.where(real, x, x.dtype.min), axis=1)
        return tf.where(tf.reduce_any(real, axis=1), largest, 0)


POOLINGS = {
    "mean": MeanPooling,
    "max": MaxPooling,
    "first": FirstPooling,
    "attention": AttentionPooling,
}
"""The poolings by name."""
