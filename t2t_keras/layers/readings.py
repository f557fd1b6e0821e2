"""One matrix for several readers, whose gradients are added up in few passes."""

import tensorflow as tf


def readings(matrix, count):
    """Returns so many tensors equal to a matrix, [rows, width] each, one for each reader.

    The Transformer's two embeddings and its softmax read one matrix (paper, section 3.4).
    Of a reader that takes a few rows only (`tf.gather`), TensorFlow makes a gradient of the whole
    matrix where another reader takes it whole, and adds up all of them: several passes over what
    may be the largest matrix of a model. Here the few rows are added to the other's gradient.

    Args:
        matrix: tensor [rows, width].
        count: int, readers.
    """

    @tf.custom_gradient
    def read(matrix):
        def gradient(*upstreams):
            return _total(upstreams)

        return [tf.identity(matrix) for _ in range(count)], gradient

    return read(matrix)


def _total(gradients):
    """Returns the sum of gradients, [rows, width], tensors or `tf.IndexedSlices`."""
    some_rows = [g for g in gradients if isinstance(g, tf.IndexedSlices)]
    whole = [g for g in gradients if not isinstance(g, tf.IndexedSlices)]
    total = tf.add_n(whole) if whole else tf.convert_to_tensor(some_rows.pop())
    if not some_rows:
        return total
    indices = tf.concat([g.indices for g in some_rows], axis=0)
    values = tf.concat([g.values for g in some_rows], axis=0)
    return tf.tensor_scatter_nd_add(total, indices[:, tf.newaxis], values)
