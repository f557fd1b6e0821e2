"""Variants of attention: unscaled dot product, softmax with temperature, hard attention."""

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import require_positive
from t2t_keras.layers.attention import ScaledDotProductAttention, Softmax, masked

_LOWEST = float(np.finfo("float32").tiny)  # temperature that a float32 number can be divided by


@keras.saving.register_keras_serializable(package="t2t_keras")
class DotProductAttention(ScaledDotProductAttention):
    """softmax(Q Kᵀ) V, "identical to our algorithm, except for the scaling" (section 3.2.1).

    Arguments and results are as for `ScaledDotProductAttention`.

    Example:
        >>> attention = layers.DotProductAttention()
        >>> layers.MultiHeadSelfAttention(4, 8, attention=attention)(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    in_ctranslate2 = True

    def score(self, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Returns Q Kᵀ, [..., query, key]."""
        return ops.batch_matmul(query, key, transpose_b=True)


@keras.saving.register_keras_serializable(package="t2t_keras")
class TemperedSoftmax(Softmax):
    """Weights softmax(score / T): uniform for a high temperature T, hard for a low one.

    Args:
        temperature: T, above 0.

    Raises:
        InputError: if T is not above 0.

    Example:
        >>> attention = layers.ScaledDotProductAttention(layers.TemperedSoftmax(0.1))
        >>> layer = layers.MultiHeadSelfAttention(4, 8, attention=attention)
    """

    in_ctranslate2 = True

    def __init__(self, temperature: float):
        require_positive("temperature", temperature)
        self.temperature = temperature

    def __call__(self, scores, mask=None):
        # Less than the highest score of an allowed key: a low temperature makes none infinite.
        known = masked(scores, mask)
        scores = tf.cast(scores, known.dtype)
        highest = tf.stop_gradient(tf.reduce_max(known, axis=-1, keepdims=True))
        differences = tf.minimum(scores - highest, 0.0)  # also of masked keys
        return super().__call__(differences / max(self.temperature, _LOWEST), mask)

    def get_config(self):
        return {"temperature": self.temperature}


@keras.saving.register_keras_serializable(package="t2t_keras")
class HardMax(TemperedSoftmax):
    """Weight 1 for the key with the highest score (the first, if several), and 0 elsewhere.

    The choice has no gradient: in the backward pass the weights count as softmax(score / T), the
    straight-through estimator (Bengio et al. 2013, "Estimating or propagating gradients").
    Arguments and results are as for `TemperedSoftmax`: temperature.

    Example:
        >>> layers.HardMax(1.0)(tf.constant([[1.0, 3.0, 2.0]])).numpy()
        array([[0., 1., 0.]], dtype=float32)
    """

    def __call__(self, scores, mask=None):
        soft = super().__call__(scores, mask)
        scores = masked(scores, mask)
        is_best = scores == tf.reduce_max(scores, axis=-1, keepdims=True)  # [..., query, key]
        is_first = tf.cumsum(tf.cast(is_best, tf.int32), axis=-1) == 1
        hard = tf.cast(is_best & is_first, soft.dtype)
        return hard + (soft - tf.stop_gradient(soft))  # the difference is 0, its gradient is not
