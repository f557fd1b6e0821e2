"""Sums over the rows of a matrix, and the addition of a bias, whose gradient is such a sum.

The gradient of a bias is the sum of a gradient's rows. `BiasAddGrad` takes 1.4 ms for
[4096, 256] bfloat16 on one core with AMX, a sum 0.5 ms, a product with ones 0.24 ms; in float32 the
product is two to six times as fast as the sum. With products
in biases and the loss a training step takes 8 to 15 % less time (tiny, bfloat16).
"""

import tensorflow as tf

from t2t_keras.ops.gradients import define_gradient
from t2t_keras.ops.trace import fast_forms

SUM_NAME = "sum_rows"
"""Name of these products in a graph, so that a count of products can leave them out."""


def sum_rows(x):
    """Returns the sum over the rows of x [rows, width]: [width]."""
    if not fast_forms():
        return tf.reduce_sum(x, axis=0)
    ones = tf.ones_like(x[:, :1])  # [rows, 1]
    return tf.squeeze(tf.matmul(ones, x, transpose_a=True, name=SUM_NAME), 0)


@define_gradient("AddBias")
def _with_gradient(upstream, x, bias):
    del x, bias
    return upstream, sum_rows(upstream)


def add_bias(x, bias, training=True):
    """Returns x [rows, units] + bias [units]; training=False omits the custom gradient."""
    if not fast_forms():
        return x + bias
    y = tf.nn.bias_add(x, bias)
    return _with_gradient(y, x, bias) if training else y
