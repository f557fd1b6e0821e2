"""Who may attend to whom (paper, sections 3.1 and 3.2.3).

Masks are boolean, True where attention is allowed, shaped to broadcast against attention scores
`[batch, heads, query, key]`. They combine with `&`.
"""

import tensorflow as tf


def padding_mask(ids):
    """Lets every query attend to the keys that are not padding (id 0).

    Args:
        ids: int32 [batch, key].

    Returns:
        bool [batch, 1, 1, key].
    """
    return tf.not_equal(ids, 0)[:, tf.newaxis, tf.newaxis, :]


def causal_mask(length):
    """Lets position i attend to positions 0 … i only: "masking out … illegal connections".

    Args:
        length: int scalar, the number of query positions and of key positions.

    Returns:
        bool [1, 1, query, key].
    """
    positions = tf.range(length)
    allowed = positions[:, tf.newaxis] >= positions[tf.newaxis, :]  # [query, key]
    return allowed[tf.newaxis, tf.newaxis]


def segment_mask(query_segments, key_segments):
    """Lets queries attend to keys of their own segment only, where rows hold several sequences.

    Args:
        query_segments: int32 [batch, query], the number of each position's sequence, 0 on padding.
        key_segments: int32 [batch, key], likewise.

    Returns:
        bool [batch, 1, query, key]; rows of padding queries are wholly False.
    """
    same = query_segments[:, :, tf.newaxis] == key_segments[:, tf.newaxis, :]
    real = key_segments[:, tf.newaxis, :] > 0
    return (same & real)[:, tf.newaxis]
