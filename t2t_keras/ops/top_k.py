"""The largest of many values in a row, in few passes over them."""

import tensorflow as tf

_LARGEST_BLOCK = 128
_SMALLEST_BLOCK = 32


def argmax(values):
    """Returns where each row's largest value stands, the first of equal ones: int32 [rows].

    `tf.argmax` walks through a row number by number. Here a row is cut into blocks, whose maxima
    are found many numbers at a time, and only the block of the greatest one is walked through.

    Args:
        values: float32 [rows, width]; the width must be known statically.
    """
    width = values.shape[-1]
    block = block_size(width, 1)
    if block is None:
        return _argmax(values)
    blocks = tf.reshape(values, [-1, width // block, block])
    chosen = _argmax(tf.reduce_max(blocks, axis=2))  # [rows]
    return chosen * block + _argmax(tf.gather(blocks, chosen, batch_dims=1))


def top_k(values, count):
    """Returns what `tf.math.top_k` does: the largest values of each row and where they stand.

    `tf.math.top_k` walks through all values of a row. Here each row is cut into blocks and their
    maxima are found first: the largest values stand in the `count` blocks of the greatest maxima,
    so that only those need a walk. Equal values stand in the order of their places, as there.

    Args:
        values: float32 [rows, width]; the width must be known statically.
        count: int up to the width.

    Returns:
        The values float32 [rows, count], largest first; their places int32 [rows, count].
    """
    width = values.shape[-1]
    block = block_size(width, count)
    if block is None:
        found = tf.math.top_k(values, count)
        return found.values, found.indices
    blocks = tf.reshape(values, [-1, width // block, block])
    chosen = tf.math.top_k(tf.reduce_max(blocks, axis=2), count).indices  # [rows, count]
    chosen = tf.sort(chosen, axis=1)  # so that places rise from block to block
    candidates = tf.gather(blocks, chosen, batch_dims=1)  # [rows, count, block]
    values, places = tf.math.top_k(tf.reshape(candidates, [-1, count * block]), count)
    return values, tf.gather(chosen, places // block, batch_dims=1) * block + places % block


def block_size(width, count):
    """Returns into blocks of which size a row is best cut to find its `count` largest values.

    Args:
        width: int, values in a row.
        count: int.

    Returns:
        int, a divisor of width; None: it is not worth it, or the width has no such divisor.
    """
    sizes = range(_LARGEST_BLOCK, _SMALLEST_BLOCK - 1, -1)
    return next((size for size in sizes if width % size == 0 and width >= 4 * count * size), None)


def _argmax(values):
    return tf.argmax(values, axis=-1, output_type=tf.int32)


def top_k_log_softmax(logits, k):
    values, ids = top_k(logits, k)
    best = tf.gather(tf.nn.softmax(logits), ids[:, :1], batch_dims=1)
    return (
        values,
        ids,
        tf.where(
            tf.math.is_finite(values[:, :1]), values[:, :1] - tf.math.log(best), -float("inf")
        ),
    )
