"""Reshaping a tensor of which some dimensions are unknown when the graph is traced."""

import tensorflow as tf


def reshape(x, shape, like):
    """Returns x in a shape that begins with dimensions of another tensor.

    One unknown dimension is left to TensorFlow. To read it from the shape of `like` takes three
    operations more, which are a fifth of all operations in a decoding step.

    Args:
        x: tensor.
        shape: list of int, and of None where a dimension is unknown when the graph is traced. Up to
            the last None the dimensions are those of `like` at the same places.
        like: tensor.
    """
    unknown = shape.count(None)
    if unknown == 1 and 0 not in shape:
        shape = [-1 if size is None else size for size in shape]
    elif unknown:
        first_known = len(shape) - shape[::-1].index(None)
        shape = tf.concat([tf.shape(like)[:first_known], shape[first_known:]], axis=0)
    return tf.reshape(x, shape)
