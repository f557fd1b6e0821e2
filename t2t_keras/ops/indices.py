"""Integers that count and choose: ids, positions, back-pointers.

TensorFlow's GPU kernels for int32 arithmetic read and write host memory, since most such tensors
are shapes. Tensors that come from the GPU or go there would cross in every step, and the host would
wait for them. The kernels for int64 work in the memory of the GPU.
"""

import contextlib

import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.ops.trace import device, options

PAD_ID = 0
"""Padding; it has weight 0 everywhere."""


def index_dtype():
    """Returns the type in which a graph computes with indices: int64 on GPUs, else int32."""
    return tf.int64 if device() == "gpu" else tf.int32


def to_index(x):
    """Returns integers x in `index_dtype`."""
    return tf.cast(x, index_dtype())


def is_token(ids):
    """Returns which ids, integers of any shape, are not padding: bool, False on `PAD_ID`."""
    return to_index(ids) != PAD_ID


def arange(count):
    """Returns 0, 1, …, count - 1 in `index_dtype`, of an int or an int32 scalar.

    On GPUs they are counted there: `tf.range` runs on the host.
    """
    if device() != "gpu":
        return tf.range(count)
    return tf.cumsum(tf.ones([count], tf.int64), exclusive=True)


def on_host():
    """Context manager that places all operations of the block on the CPU: for work on text.

    Without it TensorFlow places operations that have a GPU kernel, about half of them, on a GPU.
    """
    return contextlib.nullcontext() if device() == "cpu" else tf.device("CPU:0")


def append(x, newest, count):
    """Returns x [first, second, length, ...] with the newest values of a step behind it on axis 2.

    In a search whose tensors have a fixed size, x has room for them behind those of `count` steps,
    int32 [], each of this size.
    """
    if options().fixed_sizes:
        return put_at(x, newest, count * tf.shape(newest)[2])
    return tf.concat([x, newest], axis=2)


def with_place(x):
    """Returns x with a 0 appended to its last axis, or x if its size is fixed; see `append`."""
    return x if options().fixed_sizes else pad_end(x)


def put_at(x, values, begin):
    """Writes values to axis 2 of x from an index on; only in XLA, which writes in place."""
    return keras_compat.xla_update_slice(x, values, [0, 0, begin] + [0] * (x.shape.rank - 3))


def pad_end(x, count=1):
    """Appends `count` zeros, an int or int32 scalar, to integers x on their last axis.

    On GPUs `tf.pad` has no kernel for int64.
    """
    if device() != "gpu":
        return tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, count]])
    return pad_axis(x, count, -1)


def pad_axis(x, count, axis, value=0):
    """Returns x with `count` equal values more on an axis, an int32 scalar."""
    shape = tf.unstack(tf.shape(x))
    shape[axis] = count
    return tf.concat([x, tf.fill(shape, tf.cast(value, x.dtype))], axis)
