"""Dropout (Srivastava et al. 2014; paper, section 5.4) that draws a quarter of the random bits."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.replica_seeds import next_seed

_STEPS = 2**16
_LARGEST = 255 * 2**8  # thresholds are bytes


@keras.saving.register_keras_serializable(package="t2t_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` with 8 random bits for each element instead of 32.

    In a small model drawing the masks is a tenth of the training step. An element is dropped where
    its byte is below a threshold, which is drawn as well, once a call, from the two whole numbers
    around 256 · rate, so that each element is dropped with the probability `rate`, rounded to a
    multiple of 2⁻¹⁶. What is kept is multiplied by 1 / what that leaves, as near as the inputs'
    type has it. Between 255/256 and 1 the rate is 255/256.

    Args:
        rate: share of the elements set to zero, 0 to 1.
        seed: int or None.

    Call arguments:
        inputs: [...], of any floating type.
        training: whether to drop out.

    Raises:
        InputError: for a noise shape, which the Keras layer has too.
    """

    def __init__(self, rate, noise_shape=None, seed=None, **kwargs):
        if noise_shape is not None:
            raise InputError(
                f"noise_shape is {noise_shape}, where this layer draws for each element: take "
                "keras.layers.Dropout."
            )
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        threshold = round(self.rate * _STEPS)
        if threshold == _STEPS:
            return tf.zeros_like(inputs)
        threshold = min(threshold, _LARGEST)
        keep = _mask(tf.shape(inputs), next_seed(self.seed_generator), threshold)
        scale = tf.cast(_STEPS / (_STEPS - threshold), inputs.dtype)
        # A product takes a third of the time of `tf.where`, whose gradient has many passes.
        kept = inputs * (tf.cast(keep, inputs.dtype) * scale)
        return tf.ensure_shape(kept, inputs.shape)


def _mask(shape, seed, threshold):
    """Returns bool of a shape, each False with the probability threshold / 2¹⁶, by a seed."""
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform(
        [(size + 3) // 4 + 1], seed, minval=None, maxval=None, dtype=tf.int32
    )  # the last one draws the threshold
    whole, rest = divmod(threshold, 2**8)
    more = tf.bitcast(words[-1], tf.uint8)[0] < tf.constant(rest, tf.uint8)
    threshold = tf.constant(whole, tf.uint8) + tf.cast(more, tf.uint8)
    bits = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
    return tf.reshape(bits, shape) >= threshold
