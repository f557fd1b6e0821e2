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
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + epsilon) * gamma + beta
