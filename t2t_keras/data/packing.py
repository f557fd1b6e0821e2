"""Packed batches: several pairs in a row of fixed length, kept apart by segment ids.

Every batch has the same shape but the last of a window, and hardly any padding; attention must
look at the segments, positions restart in every pair.
"""

import tensorflow as tf

from t2t_keras.data.batching import Batcher, as_batch, shuffled
from t2t_keras.data.ids import PAD_ID, START_ID
from t2t_keras.errors import InputError


class Packing(Batcher):
    """Batches whose rows hold several whole pairs, one after another.

    The inputs have four more keys, all int32 of their side's shape: `source_segments` and
    `target_segments`, 1 and up by pair and 0 on padding, `source_positions` and
    `target_positions`, counted from 0 in every pair.

    Args:
        tokens_per_batch: tokens of a batch on either side, padding included.
        row_length: tokens of a row on either side; no pair may be longer.
    """

    def __init__(self, tokens_per_batch, row_length):
        if not 1 <= row_length <= tokens_per_batch:
            raise InputError(
                f"row_length {row_length} must be at least 1 and at most tokens_per_batch "
                f"{tokens_per_batch}"
            )
        self.tokens_per_batch = tokens_per_batch
        self.row_length = row_length

    def check(self, longest):
        if longest > self.row_length:
            raise InputError(
                f"a pair of {longest} tokens does not fit a row of {self.row_length}; raise "
                "row_length, or filter longer pairs out"
            )

    def plan(self, lengths, seed):
        # Rows are filled from a fixed shuffle, so that their number never changes.
        order = tf.range(tf.shape(lengths, tf.int64)[0])
        order = tf.random.experimental.stateless_shuffle(order, [0, 0], alg="philox")
        cuts = self._cut(tf.gather(lengths, order))
        rows = tf.RaggedTensor.from_row_splits(order, cuts, validate=False)
        if seed is not None:
            rows = shuffled(rows, seed)
        rows_per_batch = self.tokens_per_batch // self.row_length
        count = rows.nrows()
        splits = tf.concat([tf.range(0, count, rows_per_batch), [count]], axis=0)
        return tf.RaggedTensor.from_row_splits(rows, splits, validate=False)

    def build(self, window, members):
        source, source_segments, source_positions = self._row(window.source, members)
        labels, target_segments, target_positions = self._row(window.target, members)
        inputs, labels, weights = as_batch(
            source,
            labels,
            source_segments=source_segments,
            target_segments=target_segments,
            source_positions=source_positions,
            target_positions=target_positions,
        )
        # Every pair begins with a start id, where the shift left the end of the one before.
        first = (labels != PAD_ID) & (target_positions == 0)
        inputs["target_ids"] = tf.where(first, START_ID, inputs["target_ids"])
        return inputs, labels, weights

    def _row(self, sequences, members):
        """Lays sequences into rows: ids, segments and positions, int32 `[rows, row_length]`."""
        ids = tf.gather(sequences, members.values)  # [pairs, (length)]
        lengths = ids.row_lengths()
        segments = tf.ragged.range(1, members.row_lengths() + 1).values  # [pairs]
        segments = ids.with_values(tf.cast(tf.repeat(segments, lengths), tf.int32))
        positions = tf.cast(tf.ragged.range(lengths), tf.int32)

        def rows(values):  # [pairs, (length)] → [rows, row_length]
            joined = members.with_values(values).merge_dims(1, 2)
            return joined.to_tensor(PAD_ID, shape=[None, self.row_length])

        return rows(ids), rows(segments), rows(positions)

    def _cut(self, lengths):
        """Where rows begin, and the end: int64 `[rows + 1]`, from int32 `[pairs, 2]`."""
        tf.debugging.assert_less_equal(
            tf.reduce_max(lengths), self.row_length, "a pair does not fit a row of row_length"
        )
        before = tf.pad(tf.cumsum(tf.cast(lengths, tf.int64), axis=0), [[1, 0], [0, 0]])
        before = tf.transpose(before)  # [2, pairs + 1]
        # From each pair, the first pair that no longer fits beside it and all between.
        follower = tf.searchsorted(before, before + self.row_length, "right", tf.int64) - 1
        follower = tf.reduce_min(follower, axis=0)
        pairs = tf.shape(lengths, tf.int64)[0]

        def another(start, cuts):
            start = follower[start]
            return start, cuts.write(cuts.size(), start)

        cuts = tf.TensorArray(tf.int64, size=0, dynamic_size=True).write(0, 0)
        _, cuts = tf.while_loop(
            lambda start, _: start < pairs, another, (tf.constant(0, tf.int64), cuts)
        )
        return cuts.stack()
