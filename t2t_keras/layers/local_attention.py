"""Restricted self-attention (paper, section 4 and table 1): a window of r positions.

"To improve computational performance for tasks involving very long sequences, self-attention
could be restricted to considering only a neighborhood of size r in the input sequence centered
around the respective output position." So here position i of an encoder attends to the r
positions from i - ⌊r/2⌋ on; near an end of its sequence the neighborhood moves inwards and keeps
its size, so that a window of r ≥ n is full attention (as in Hassani et al. 2023, "Neighborhood
attention"). Position i of a decoder attends to the last r positions, itself included.

The sequence is cut into blocks at least as long as a window reaches, and the queries of a block
are held against the keys of their own block and its neighbours: O(r·n·d) time and memory.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.multi_head import KeyValue, MultiHeadSelfAttention

# Shorter blocks would save arithmetic, but not time: products of small matrices are slow.
_SHORTEST_BLOCK = 16


@keras.saving.register_keras_serializable(package="t2t_keras")
class LocalSelfAttention(MultiHeadSelfAttention):
    """Self-attention of each position to the r positions around it (paper, section 4).

    Args:
        heads: number of heads h.
        key_dim: width d_k of a query and a key of one head.
        value_dim: width d_v of a value of one head; `key_dim` if None.
        window: r, the number of positions to attend to, fewer where a sequence has fewer.
        **kwargs: those of `MultiHeadSelfAttention`.

    Call arguments:
        x: [batch, length, model_dim].
        attention_mask: [batch, 1, 1, length]: bool, False on padding (`padding_mask`), or the
            number of each position's sequence from 1, 0 on padding (`SegmentMasks`); None: each
            row is one sequence without padding. What padding attends to is not specified.

    Returns:
        [batch, length, model_dim].

    Raises:
        InputError: if window is less than 1, or the mask has a row for each query.
    """

    BLOCKS = (-1, 0, 1)  # where the keys of a block's queries stand, counted from their own block

    def __init__(self, heads, key_dim, value_dim=None, *, window, **kwargs):
        super().__init__(heads, key_dim, value_dim, **kwargs)
        if window < 1:
            raise InputError(f"window is {window}: give at least 1 position.")
        self.window = window

    def get_config(self):
        return super().get_config() | {"window": self.window}

    def call(self, x, attention_mask=None):
        blocks = Blocks.of(tf.shape(x)[1], self.window)
        query, key, value = self.qkv_projection(x)

        def heads_of(tensor, width):  # --> [batch, blocks, heads, block, width]
            tensor = blocks.split(tensor)
            shape = [*tf.unstack(tf.shape(tensor)[:3]), self.heads, width]
            return tf.transpose(tf.reshape(tensor, shape), [0, 1, 3, 2, 4])

        context = self.attend(
            heads_of(query, self.key_dim),
            beside(heads_of(key, self.key_dim), self.BLOCKS, axis=3),
            beside(heads_of(value, self.value_dim), self.BLOCKS, axis=3),
            attention_mask=self._mask(blocks, attention_mask, self.BLOCKS),
        )  # [batch, blocks, heads, block, value_dim]
        context = tf.transpose(context, [0, 1, 3, 2, 4])
        shape = [tf.shape(x)[0], blocks.count * blocks.size, self.heads * self.value_dim]
        return self.output_projection(tf.reshape(context, shape)[:, : blocks.length])

    def weigh(self, x, attention_mask=None):
        """Returns the attention weights of `call`, float32 [batch, heads, query, key]: O(n²)."""
        one_block = Blocks(tf.shape(x)[1], 1, tf.shape(x)[1])
        mask = self._mask(one_block, attention_mask, (0,))
        return super().weigh(x, mask[:, 0])

    def _mask(self, blocks, attention_mask, neighbours):
        """Says who may attend to whom, bool [batch, blocks, 1, block, key].

        Args:
            blocks: `Blocks`.
            attention_mask: as for `call`.
            neighbours: where the keys of a block's queries stand, in blocks.
        """
        segments = _segments(attention_mask, blocks.length)
        last = tf.reduce_max(segments, axis=1, keepdims=True)
        query_segments = tf.where(segments > 0, segments, last)
        first, end = self._reach(segments, query_segments)  # [batch, length]

        def of_queries(tensor):  # [batch, length] --> [batch, blocks, 1, block, 1]
            return blocks.split(tensor)[:, :, tf.newaxis, :, tf.newaxis]

        def of_keys(tensor):  # [batch, length] --> [batch, blocks, 1, 1, key]
            return beside(blocks.split(tensor), neighbours, axis=2)[:, :, tf.newaxis, tf.newaxis]

        key_segments = of_keys(segments)
        keys = of_keys(tf.range(blocks.length)[tf.newaxis])
        return (
            (keys >= of_queries(first))
            & (keys < of_queries(end))
            & (key_segments == of_queries(query_segments))
            & (key_segments > 0)
        )

    def _reach(self, segments, query_segments):
        """Returns the first position of each window and the one after its last.

        Args:
            segments: int32 [batch, length], 0 on padding.
            query_segments: int32 [batch, length], the sequences whose positions to attend to.

        Returns:
            Two int32 [batch, length].
        """
        begin, end = _bounds(segments, query_segments)
        centred = tf.range(tf.shape(segments)[1]) - self.window // 2
        first = tf.maximum(tf.minimum(centred, end - self.window), begin)
        return first, first + self.window


@keras.saving.register_keras_serializable(package="t2t_keras")
class CausalLocalSelfAttention(LocalSelfAttention):
    """Self-attention of each position to itself and the r - 1 before it, for decoders.

    Arguments as for `LocalSelfAttention`. The cache of `step` holds r - 1 steps at most.
    """

    BLOCKS = (-1, 0)

    def step(self, x, cache, rows, ancestors=None):
        """Attends from one new position of every hypothesis to itself and the r - 1 before it.

        Args:
            x, cache, rows, ancestors: as for `MultiHeadSelfAttention`; of the ancestors the newest
                steps are looked at.

        Returns:
            [batch · beams, model_dim] and the cache with the newest position, for the next step.
        """
        if ancestors is not None:
            ancestors = ancestors[..., -(tf.shape(cache.key)[2] + rows.beams) :]
        y, cache = super().step(x, cache, rows, ancestors)
        begin = tf.maximum(tf.shape(cache.key)[2] - (self.window - 1) * rows.beams, 0)
        return y, KeyValue(*(tensor[:, :, begin:] for tensor in cache))

    def _reach(self, segments, query_segments):
        positions = tf.zeros_like(segments) + tf.range(tf.shape(segments)[1])
        return positions - (self.window - 1), positions + 1


class Blocks(NamedTuple):
    """How a sequence is cut into blocks of one size, the last one padded.

    Attributes:
        length: int32 scalar, positions of the sequence.
        count: int32 scalar, blocks.
        size: int32 scalar, positions of a block.
    """

    length: tf.Tensor
    count: tf.Tensor
    size: tf.Tensor

    @classmethod
    def of(cls, length, window):
        """Returns blocks at least as long as a window reaches to one side."""
        count = tf.maximum(length // max(window - 1, _SHORTEST_BLOCK), 1)
        return cls(length, count, -(-length // count))

    def split(self, x):
        """Cuts [batch, length, ...] into [batch, blocks, block, ...]."""
        padding = [[0, 0], [0, self.count * self.size - self.length]]
        x = tf.pad(x, padding + [[0, 0]] * (x.shape.rank - 2))
        shape = [tf.shape(x)[0], self.count, self.size, *x.shape[2:]]
        return tf.reshape(x, shape)


def beside(x, neighbours, axis):
    """Sets blocks beside each other: those at some distances from each block.

    Args:
        x: [batch, blocks, ...].
        neighbours: ints, the distances; 0 is the block itself.
        axis: of the positions of a block; it grows to len(neighbours) blocks.

    Returns:
        As x, but for the axis; 0 beyond the sequence.
    """
    before, after, count = -min(neighbours), max(neighbours), tf.shape(x)[1]
    x = tf.pad(x, [[0, 0], [before, after]] + [[0, 0]] * (x.shape.rank - 2))
    shifted = [x[:, before + n : before + n + count] for n in neighbours]
    return tf.concat(shifted, axis=axis)


def _segments(attention_mask, length):
    """Returns int32 [batch or 1, length], the number of each position's sequence, 0 on padding."""
    if attention_mask is None:
        return tf.ones([1, length], tf.int32)
    attention_mask = tf.convert_to_tensor(attention_mask)
    if attention_mask.shape[1:3].as_list() != [1, 1]:
        raise InputError(
            f"attention_mask has shape {attention_mask.shape}: give restricted attention "
            "[batch, 1, 1, length], and leave it to find the window and the past."
        )
    return tf.cast(attention_mask, tf.int32)[:, 0, 0]


def _bounds(segments, query_segments):
    """Returns where the sequences of query_segments begin and end, two int32 [batch, length]."""
    batch, length = tf.unstack(tf.shape(segments))
    most = tf.reduce_max(segments) + 1
    rows = most * tf.range(batch)[:, tf.newaxis]  # the numbers of other rows' sequences differ
    positions = tf.broadcast_to(tf.range(length), [batch, length])
    begin = tf.math.unsorted_segment_min(positions, segments + rows, most * batch)
    end = tf.math.unsorted_segment_max(positions, segments + rows, most * batch) + 1
    return tf.gather(begin, query_segments + rows), tf.gather(end, query_segments + rows)
