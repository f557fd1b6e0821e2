"""Layer normalization (Ba et al. 2016; paper, section 3.1) with its own gradient."""

import functools

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.product_sums import column_sums, weighted_row_sums

_ONLY = (("axis", -1), ("center", True), ("scale", True), ("rms_scaling", False))


@keras.saving.register_keras_serializable(package="t2t_keras")
class LayerNorm(keras.layers.LayerNormalization):
    """γ · (x − mean) / √(variance + ε) + β over the last axis, in float32 whatever the policy.

    As `keras.layers.LayerNormalization`, in fewer passes over memory: the gradient takes the
    normalized values of the forward pass.

    Args:
        epsilon: added to the variance.

    Call arguments:
        inputs: [..., model_dim], of any floating type.

    Returns:
        [..., model_dim] in the compute dtype.

    Raises:
        InputError: for another axis, or without γ or β, which the Keras layer has too.
    """

    def __init__(self, epsilon=1e-3, **kwargs):
        super().__init__(epsilon=epsilon, autocast=False, **kwargs)
        for name, only in _ONLY:
            if (value := getattr(self, name, only)) != only:
                raise InputError(
                    f"{name} is {value!r}, where this layer knows only {only!r}: take "
                    "keras.layers.LayerNormalization."
                )

    def call(self, inputs):
        x = tf.cast(inputs, tf.float32)
        rows = tf.reshape(x, [-1, x.shape[-1]])
        gamma, beta = (tf.convert_to_tensor(w) for w in (self.gamma, self.beta))
        normed = _layer_norm(
            rows, tf.cast(gamma, tf.float32), tf.cast(beta, tf.float32), self.epsilon
        )
        return tf.cast(tf.reshape(normed, tf.shape(inputs)), self.compute_dtype)


def _layer_norm(x, gamma, beta, epsilon):
    """Normalizes each row of x, float32 [rows, model_dim]."""
    mean_of = functools.partial(tf.reduce_mean, axis=-1, keepdims=True)  # --> [rows, 1]

    @tf.custom_gradient
    def norm(x, gamma, beta):
        centered = x - mean_of(x)  # [rows, model_dim]
        variance = mean_of(tf.square(centered))  # [rows, 1]
        scale = tf.math.rsqrt(variance + epsilon)
        normed = centered * scale

        def gradient(upstream):
            by_gamma = upstream * normed
            # The means of upstream · γ and of that times normed: products take fewer passes.
            share = gamma / x.shape[-1]
            mean, projection = (weighted_row_sums(y, share) for y in (upstream, by_gamma))
            d_x = (upstream * gamma - mean - normed * projection) * scale
            return d_x, column_sums(by_gamma), column_sums(upstream)

        return normed * gamma + beta, gradient

    return norm(x, gamma, beta)
