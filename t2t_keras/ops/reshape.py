"""Reshaping a tensor of which some dimensions are unknown when the graph is traced."""

import tensorflow as tf


def reshape(x, shape, like):
    """Returns x in a shape that begins with dimensions of another tensor.

    One unknown dimension is left to TensorFlow. To read it from the shape of `like` takes three
    operations more, which are a fifth of all operations in a decoding step.

    Args:
        x: tensor.
        shape: list of int, and of None where a dimension is that of `like` at the same place, which
            is unknown when the graph is traced.
        like: tensor.
    """
    if shape.count(None) == 1 and 0 not in shape:
        return tf.reshape(x, [-1 if size is None else size for size in shape])
    if None in shape:
        sizes = tf.shape(like)
        shape = [sizes[i] if size is None else size for i, size in enumerate(shape)]
    return tf.reshape(x, shape)
