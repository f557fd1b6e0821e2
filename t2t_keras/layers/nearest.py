"""The nearest of very many vectors, exactly, a block of them at a time."""

import tensorflow as tf

from t2t_keras.layers.largest import largest

_BLOCK = 2**14
"""Vectors at a time: their distances to the rows of a step of decoding fit into a core's cache."""


def in_blocks(vectors):
    """Returns how many blocks `Nearest` cuts so many vectors into, and how many one holds."""
    block = min(_BLOCK, vectors)
    return -(-vectors // block), block


def nearest(queries, keys, squares, count):
    """Finds the nearest keys of each query, by Euclidean distance.

    Args:
        queries: float32 [rows, width].
        keys: float32 [blocks, block, width].
        squares: float32 [blocks, block], each key's squared length; inf for a key that is none.
        count: int up to block.

    Returns:
        2 · query · key - |key|², float32 [rows, count], greatest first: the squared length of the
        query less the squared distance; and the keys' places, int32 [rows, count], out of 0 to
        blocks · block. Of equal distances the earlier place comes first.
    """
    block = keys.shape[1]
    rows = tf.shape(queries)[0]
    doubled = 2.0 * queries

    def search_block(number, values, places):
        products = tf.matmul(doubled, keys[number], transpose_b=True) - squares[number]
        found, found_places = largest(tf.ensure_shape(products, [None, block]), count)
        # What was found before stands first, and so wins where values are equal.
        values = tf.concat([values, found], axis=1)  # [rows, 2 * count]
        places = tf.concat([places, found_places + number * block], axis=1)
        values, chosen = tf.math.top_k(values, count)
        return number + 1, values, tf.gather(places, chosen, batch_dims=1)

    _, values, places = tf.while_loop(
        lambda number, *_: number < keys.shape[0],
        search_block,
        (
            tf.constant(0),
            tf.fill([rows, count], -float("inf")),
            tf.zeros([rows, count], tf.int32),
        ),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None, count]),
            tf.TensorShape([None, count]),
        ),
        parallel_iterations=1,
    )
    return values, places
