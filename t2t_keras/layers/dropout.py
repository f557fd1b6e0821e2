"""Dropout (Srivastava et al. 2014; paper, section 5.4) that draws half as many random bits."""

import keras
import tensorflow as tf

_STEPS = 2**16


@keras.saving.register_keras_serializable(package="t2t_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with 16 random bits for each element instead of 32.

    In a small model drawing the masks is a tenth of the training step. The rate is rounded to a
    multiple of 2⁻¹⁶, and what is kept is divided by exactly what the rounded rate leaves.

    Call arguments:
        inputs: [...], of any floating type.
        training: whether to drop out.
    """

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        threshold = round(self.rate * _STEPS)
        if threshold == _STEPS:
            return tf.zeros_like(inputs)
        keep = _random_bits(tf.shape(inputs), self.seed_generator.next()) >= tf.constant(
            threshold, tf.uint16
        )
        scale = tf.cast(_STEPS / (_STEPS - threshold), inputs.dtype)
        kept = tf.where(keep, inputs * scale, tf.zeros([], inputs.dtype))
        return tf.ensure_shape(kept, inputs.shape)


def _random_bits(shape, seed):
    """Returns uniform uint16 of a shape."""
    size = tf.reduce_prod(shape)
    pairs = tf.random.stateless_uniform(
        [(size + 1) // 2], tf.cast(seed, tf.int32), minval=None, maxval=None, dtype=tf.int32
    )
    bits = tf.reshape(tf.bitcast(pairs, tf.uint16), [-1])  # [size, or one more]
    return tf.reshape(bits[:size], shape)
