"""Reshaping a tensor when some dimensions are unknown while the graph is traced."""

import tensorflow as tf


def reshape(x, shape, like):
    """Returns x in a shape that begins with dimensions of another tensor.

    TensorFlow infers one unknown dimension. Reading it from the shape of `like` would take three
    more operations; in a decoding step these are a fifth of all operations.

    The shape is a list of int, and None where a dimension is unknown when the graph is traced; up
    to the last None the dimensions equal those of `like`.
    """
    unknown = shape.count(None)
    if unknown == 1 and 0 not in shape:
        shape = [-1 if size is None else size for size in shape]
    elif unknown:
        first_known = len(shape) - shape[::-1].index(None)
        shape = tf.concat([tf.shape(like)[:first_known], shape[first_known:]], axis=0)
    return tf.reshape(x, shape)
