"""Attention of few queries, whose products are too small to be shared out between threads.

oneDNN shares out every batched product and softmax, however small: what takes 10 µs on one thread
takes 30 to 50 on two, of which one waits for the other to wake up. TensorFlow's own kernels do
small ones where they are; with one query a head they are the faster ones in float32 at any size.
oneDNN takes the place of those of `tf.matmul` and `tf.nn.softmax`, and leaves those of
BatchMatMulV3 and `tf.nn.log_softmax` alone.
"""

import contextvars

import tensorflow as tf

from t2t_keras.layers.context_variables import holding

_FEW = 2048  # numbers in all queries together

_here = contextvars.ContextVar("here", default=False)


def matmul(x, y, transpose_b=False):
    """Returns x · y, or x · yᵀ, [..., rows, columns], in the dtype of x."""
    if not _here.get():
        return tf.matmul(x, y, transpose_b=transpose_b)
    wide_x, wide_y = (tf.cast(factor, tf.float32) for factor in (x, y))
    product = tf.raw_ops.BatchMatMulV3(x=wide_x, y=wide_y, Tout=tf.float32, adj_y=transpose_b)
    return tf.cast(product, x.dtype)


def softmax(x):
    """Returns the softmax of float32 [..., width] over the last axis."""
    return tf.exp(tf.nn.log_softmax(x)) if _here.get() else tf.nn.softmax(x)


def attend_from(query, attend):
    """Returns attend(), by those kernels that suit the queries.

    Args:
        query: [batch, heads, query, key_dim].
        attend: function without arguments to a tensor, of `matmul` and `softmax`.
    """

    def attend_here():
        with holding(_here, True):
            return attend()

    if tf.config.list_physical_devices("GPU"):  # measured on CPUs alone
        return attend()
    if query.shape[2] == 1 and query.dtype == tf.float32:
        return attend_here()
    return tf.cond(tf.size(query) <= _FEW, attend_here, attend)
