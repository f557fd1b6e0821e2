"""Layer normalization over the last axis (Ba et al. 2016; paper, section 3.1)."""

import tensorflow as tf

from t2t_keras.ops.dense import sum_rows, weighted_row_sums
from t2t_keras.ops.gradients import gradient
from t2t_keras.ops.reshape import reshape
from t2t_keras.ops.trace import fast_forms


def layer_norm(x, gamma, beta, epsilon, training=True):
    """Returns γ · (x − mean) / √(variance + ε) + β, with mean and variance over the last axis.

    The fast form has a custom gradient, which reuses the normalized values of the forward pass and
    sums by matrix products. It makes training steps of tiny and base 1 to 2 % faster than the plain
    form; `keras.layers.LayerNormalization` is slower than both.

    Args:
        x: float32 or float64 [..., width].
        gamma, beta: [width], of the same type.
        epsilon: float.
        training: bool, False for a graph without the custom gradient.

    Returns:
        The shape and dtype of x.
    """
    if not fast_forms():
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + epsilon) * gamma + beta
    rows = tf.reshape(x, [-1, x.shape[-1]])
    return reshape(_layer_norm(rows, gamma, beta, epsilon, training), [*x.shape], like=x)


def _layer_norm(x, gamma, beta, epsilon, training):
    """The fast form for x [rows, width]."""
    centered = x - tf.reduce_mean(x, axis=-1, keepdims=True)  # [rows, width]
    variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)  # [rows, 1]
    scale = tf.math.rsqrt(variance + epsilon)
    normed = centered * scale
    y = normed * gamma + beta
    return _with_gradient(y, x, gamma, beta, normed, scale) if training else y


@gradient("LayerNorm")
def _with_gradient(upstream, x, gamma, beta, normed, scale):
    del x, beta
    d_gamma = upstream * normed  # [rows, width], to be summed
    # The means of upstream · γ and of upstream · γ · normed: [rows, 1] each.
    weights = gamma / gamma.shape[0]
    mean, projection = (weighted_row_sums(y, weights) for y in (upstream, d_gamma))
    d_x = (upstream * gamma - mean - normed * projection) * scale
    return d_x, sum_rows(d_gamma), sum_rows(upstream)
