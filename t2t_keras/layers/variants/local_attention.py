"""Local (sliding-window) self-attention over r positions (paper, section 4 and table 1).

"To improve computational performance for tasks involving very long sequences, self-attention
could be restricted to considering only a neighborhood of size r in the input sequence centered
around the respective output position." Position i of an encoder attends to the r positions from
i - ⌊r/2⌋ on; near an end of its sequence the window moves inward and keeps its size, so that a
window of r ≥ n is full attention (as in Hassani et al. 2023, "Neighborhood attention"). Position i
of a decoder attends to the last r positions, itself included.

The queries of a block are compared with its keys and its neighbors': O(r·n·d) time and memory.
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import require_whole_number
from t2t_keras.layers.attention import KeyValue, MultiHeadSelfAttention, Sequences, View
from t2t_keras.layers.positions import distances, positions_of

NEIGHBORS = {False: (-1, 0, 1), True: (-1, 0)}
"""Which blocks hold the keys of a block's queries, relative to it, by `causal`."""

_MIN_BLOCK = 16  # products of smaller matrices save arithmetic, but no time


@keras.saving.register_keras_serializable(package="t2t_keras")
class LocalSelfAttention(MultiHeadSelfAttention):
    """Self-attention of each position to the r positions around or before it (paper, section 4).

    Arguments and results are as for `MultiHeadSelfAttention`, except the attention weights, which
    come in blocks, float32 [batch, blocks, heads, block, key]; `full_weights` returns the whole
    matrices, in O(n²). The output at padding is not specified.

    Args:
        window: r, the number of positions to attend to, fewer if the sequence is shorter.

    Raises:
        InputError: if window is less than 1.

    Example:
        >>> layer = layers.LocalSelfAttention(num_heads=4, key_dim=8, window=64)
        >>> layer(tf.ones([1, 900, 32])).shape
        TensorShape([1, 900, 32])
    """

    def __init__(self, num_heads: int, key_dim: int, value_dim=None, *, window: int, **kwargs):
        super().__init__(num_heads, key_dim, value_dim, **kwargs)
        self.window = require_whole_number("window", window)

    def get_config(self):
        return super().get_config() | {"window": self.window}

    def call(self, x: tf.Tensor, mask=None, *, return_attention_weights=False) -> Any:
        length = tf.shape(x)[1]
        view = self.view(x, mask)
        query, (key, value) = self.project(x, view.positions)
        blocks, neighbors = Blocks.of(length, self.window), NEIGHBORS[self.causal]

        def split(tensor):  # [batch, heads, length, width] → [batch, blocks, heads, block, width]
            return tf.transpose(blocks.split(tf.transpose(tensor, [0, 2, 1, 3])), [0, 1, 3, 2, 4])

        context, weights = self.attention(
            split(query),
            with_neighbors(split(key), neighbors, axis=3),
            with_neighbors(split(value), neighbors, axis=3),
            view.mask,
            positions=self.positions,
            distance=view.distance,
        )  # [batch, blocks, heads, block, value_dim] and [batch, blocks, heads, block, key]
        context = tf.transpose(context, [0, 1, 3, 2, 4])
        shape = [tf.shape(x)[0], blocks.count * blocks.size, self.num_heads * self.value_dim]
        y = self.output_projection(tf.reshape(context, shape)[:, : blocks.length])
        y = tf.ensure_shape(y, x.shape)
        return (y, weights) if return_attention_weights else y

    def make_view(self, length: tf.Tensor, sequences: Sequences) -> View:
        """Returns the `View` of rows of a length, int32 [], by blocks."""
        segments = _segments(sequences, length)
        blocks, neighbors = Blocks.of(length, self.window), NEIGHBORS[self.causal]
        mask = self._mask(blocks, segments, neighbors)
        if self.positions is None:
            return View(mask)
        positions = positions_of(length, sequences)
        shape = [tf.shape(positions)[0] if len(positions.shape) == 2 else 1, length]
        by_block = blocks.split(tf.broadcast_to(positions, shape))  # [batch or 1, blocks, block]
        # [batch or 1, blocks, key]
        key_positions = with_neighbors(by_block, neighbors, axis=2)
        return View(mask, positions, distances(by_block, key_positions))

    def full_weights(self, weights: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Returns float32 [..., heads, query, key], 0 outside of the windows.

        The weights are float32 [..., blocks, heads, block, key], as from `call`; length: int32
        scalar.
        """
        blocks, neighbors = Blocks.of(length, self.window), NEIGHBORS[self.causal]
        shape = tf.shape(weights)
        outer, rank, width = shape[:-4], weights.shape.rank, shape[-1]
        # [..., heads, block, blocks, key]
        weights = tf.transpose(weights, [*range(rank - 4), rank - 3, rank - 2, rank - 4, rank - 1])
        # The keys of a block begin one block further right than those of the block before: rows
        # that are longer than `total` by a block, read as rows of length `total`, are shifted so.
        total = (blocks.count - 1) * blocks.size + width
        padding = [[0, 0]] * (rank - 1) + [[0, total + blocks.size - width]]
        rows = tf.concat([outer, [self.num_heads, blocks.size]], 0)
        flat = tf.reshape(tf.pad(weights, padding), tf.concat([rows, [-1]], 0))
        flat = flat[..., : blocks.count * total]
        weights = tf.reshape(flat, tf.concat([rows, [blocks.count, total]], 0))
        # [..., heads, blocks, block, total]
        weights = tf.transpose(weights, [*range(rank - 3), rank - 2, rank - 3, rank - 1])
        all_rows = [self.num_heads, blocks.count * blocks.size, total]
        weights = tf.reshape(weights, tf.concat([outer, all_rows], 0))
        begin = -min(neighbors) * blocks.size  # the blocks before the first one
        return weights[..., :length, begin : begin + length]

    def step(self, x: tf.Tensor, cache: KeyValue, view: View) -> tuple[tf.Tensor, KeyValue]:
        """Like `MultiHeadSelfAttention.step`; the cache holds at most r - 1 steps."""
        beams = x.shape[1]
        slots = tf.shape(cache.key)[2] + beams
        mask, distance = (
            None if x is None else x[..., -slots:] for x in (view.mask, view.distance)
        )
        view = View(mask, view.positions, distance)
        y, cache = super().step(x, cache, view)
        begin = tf.maximum(tf.shape(cache.key)[2] - (self.window - 1) * beams, 0)
        return y, KeyValue(*(tensor[:, :, begin:] for tensor in cache))

    def _mask(self, blocks, segments, neighbors):
        """Returns which keys each query may attend to, bool [batch, blocks, 1, block, key].

        Segments are those of `_segments`, neighbors those of `NEIGHBORS`.
        """
        last = tf.reduce_max(segments, axis=1, keepdims=True)
        query_segments = tf.where(segments > 0, segments, last)
        first, end = self._windows(segments, query_segments)  # [batch, length]

        def of_queries(tensor):  # [batch, length] → [batch, blocks, 1, block, 1]
            return blocks.split(tensor)[:, :, tf.newaxis, :, tf.newaxis]

        def of_keys(tensor):  # [batch, length] → [batch, blocks, 1, 1, key]
            tensor = with_neighbors(blocks.split(tensor), neighbors, axis=2)
            return tensor[:, :, tf.newaxis, tf.newaxis]

        key_segments = of_keys(segments)
        keys = of_keys(ops.arange(blocks.length)[tf.newaxis])
        return (
            (keys >= of_queries(first))
            & (keys < of_queries(end))
            & (key_segments == of_queries(query_segments))
            & (key_segments > 0)
        )

    def _windows(self, segments, query_segments):
        """Returns first positions and ends of the queries' windows, integers [batch, length].

        `segments` are 0 on padding; `query_segments` are those that hold the windows.
        """
        positions = tf.zeros_like(segments) + ops.arange(tf.shape(segments)[1])
        if self.causal:
            return positions - (self.window - 1), positions + 1
        begin, end = _bounds(segments, query_segments)
        first = tf.minimum(positions - self.window // 2, end - self.window)
        first = tf.maximum(first, begin)
        return first, first + self.window


class Blocks(NamedTuple):
    """How a sequence is cut into blocks of one size, the last one padded; int32 scalars."""

    length: tf.Tensor  # positions of the sequence
    count: tf.Tensor  # blocks
    size: tf.Tensor  # positions of a block

    @classmethod
    def of(cls, length, window):
        """Returns blocks at least as long as a window extends to one side."""
        count = tf.maximum(length // max(window - 1, _MIN_BLOCK), 1)
        return cls(length, count, -(-length // count))

    def split(self, x):
        """Cuts [batch, length, ...] into [batch, blocks, block, ...]."""
        x = _pad(x, 0, self.count * self.size - self.length)
        shape = [tf.shape(x)[0], self.count, self.size, *x.shape[2:]]
        return tf.reshape(x, shape)


def with_neighbors(x, neighbors, axis):
    """Concatenates each block of x [batch, blocks, ...] with its neighbors; 0 beyond the sequence.

    The axis of a block's positions grows to len(neighbors) blocks.
    """
    before, after, count = -min(neighbors), max(neighbors), tf.shape(x)[1]
    x = _pad(x, before, after)
    shifted = [x[:, before + n : before + n + count] for n in neighbors]
    return tf.concat(shifted, axis=axis)


def _segments(sequences, length):
    """Returns each position's sequence, 0 on padding, `ops.index_dtype` [batch or 1, length]."""
    if sequences.segments is not None:
        return tf.maximum(ops.to_index(sequences.segments), 0)  # below 0 is padding, too
    if sequences.mask is not None:
        return ops.to_index(sequences.mask)
    return tf.ones([1, length], ops.index_dtype())


def _bounds(segments, query_segments):
    """Returns begin and end of the sequences of query_segments, two tensors [batch, length]."""
    batch, length = tf.unstack(tf.shape(segments))
    most = tf.maximum(tf.reduce_max(segments), 0) + 1  # also of rows of length 0
    rows = most * ops.arange(batch)[:, tf.newaxis]  # sequences of different rows get numbers apart
    positions = tf.broadcast_to(ops.arange(length), [batch, length])
    count = tf.cast(most, tf.int32) * batch
    begin = tf.math.unsorted_segment_min(positions, segments + rows, count)
    end = tf.math.unsorted_segment_max(positions, segments + rows, count) + 1
    return tf.gather(begin, query_segments + rows), tf.gather(end, query_segments + rows)


def _pad(x, before, after):
    """Pads axis 1 of x with zeros; `tf.pad` of int64 has no GPU kernel."""
    if not x.dtype.is_integer:
        return tf.pad(x, [[0, 0], [before, after]] + [[0, 0]] * (x.shape.rank - 2))
    shape = tf.shape(x)
    zeros = [tf.zeros(tf.concat([shape[:1], [n], shape[2:]], 0), x.dtype) for n in (before, after)]
    return tf.concat([zeros[0], x, zeros[1]], axis=1)
