"""Layer normalization over the last axis (Ba et al. 2016; paper, section 3.1)."""

import tensorflow as tf


def layer_norm(x, gamma, beta, epsilon):
    """Returns γ · (x − mean) / √(variance + ε) + β, with mean and variance over the last axis.

    `keras.layers.LayerNormalization` is slower.

    Args:
        x: float32 or float64 [..., width].
        gamma, beta: [width], of the same type.
        epsilon: float.

    Returns:
        The shape and dtype of x.
    """
    # `tf.nn.moments` has no gradient of the mean within the variance: second derivatives need it.
    centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
    return centered * tf.math.rsqrt(variance + epsilon) * gamma + beta
