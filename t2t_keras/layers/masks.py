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


class DenseMasks:
    """The masks of self-attention that may reach every position.

    Both methods take the ids of rows, int32 [batch, length] with 0 on padding, and, where rows
    hold several sequences, the number of each position's sequence, int32 [batch, length]. They
    return bool, broadcastable to [batch, heads, query, key].
    """

    @staticmethod
    def whole(ids, segments=None):
        """Lets every position attend to its whole sequence, as in an encoder."""
        return padding_mask(ids) if segments is None else segment_mask(segments, segments)

    @staticmethod
    def causal(ids, segments=None):
        """Lets every position attend to itself and those before it, as in a decoder."""
        causal = causal_mask(tf.shape(ids)[1])
        return causal if segments is None else causal & segment_mask(segments, segments)


class SegmentMasks:
    """The masks of restricted self-attention, which itself knows its window and the past.

    The methods are those of `DenseMasks`. They return the number of each position's sequence, 0 on
    padding, as int32 [batch, 1, 1, length], or None for rows of one sequence.
    """

    @staticmethod
    def whole(ids, segments=None):
        """Tells real positions from padding, and one sequence from the next."""
        segments = tf.cast(ids != 0, tf.int32) if segments is None else segments
        return segments[:, tf.newaxis, tf.newaxis]

    @staticmethod
    def causal(ids, segments=None):
        """Tells one sequence from the next; padding follows them, and no one looks ahead."""
        return None if segments is None else segments[:, tf.newaxis, tf.newaxis]
