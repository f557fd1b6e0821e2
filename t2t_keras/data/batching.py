"""Batches by token budget (paper section 5.1: about 25,000 source and 25,000 target tokens).

A batcher works window by window: it plans from the lengths alone which pairs share a batch, then
the batches are built one by one. How many batches a window gives does not depend on the seed, so
the place of every batch in a run can be computed.
"""

import abc

import tensorflow as tf

from t2t_keras.data.ids import PAD_ID, START_ID
from t2t_keras.data.options import PARALLEL_CALLS, steady
from t2t_keras.data.shards import PAIRS_PER_SHARD, Window
from t2t_keras.errors import InputError
from t2t_keras.graphs import as_written


class Batcher(abc.ABC):
    """What length buckets and packing have in common: the same call, the same batches.

    A subclass says in `plan` which pairs share a batch and in `build` how the batch looks.
    """

    def __call__(self, examples, seed=None):
        """Batches a dataset of pairs.

        Args:
            examples: dataset of `{"source": int32 [n], "target": int32 [m]}`, the sides ending
                with the end id.
            seed: shuffles the batches of each window of `PAIRS_PER_SHARD` pairs; None keeps the
                order of lengths.

        Returns:
            A dataset of `(inputs, labels, weights)` that delivers every pair once; see `build`.
        """
        windows = examples.ragged_batch(PAIRS_PER_SHARD).enumerate()

        def seeded(index, pairs):
            return Window.of(pairs["source"], pairs["target"]), tf.stack([seed or 0, index])

        return steady(self.batches(windows.map(as_written(seeded)), shuffle=seed is not None))

    @as_written
    def batches(self, windows, shuffle, skip=0):
        """Batches a dataset of windows.

        Args:
            windows: dataset of `(Window, seed)`, the seed int64 `[2]`.
            shuffle: whether a window's batches come in random order or in order of lengths.
            skip: how many batches to leave out, which then cost no building.

        Returns:
            A dataset of `(inputs, labels, weights)`.
        """

        def planned(window, seed):
            return window, self.plan(window.lengths, seed if shuffle else None)

        def drawn(window, plan):
            return tf.data.Dataset.range(plan.nrows()).map(lambda batch: (window, plan[batch]))

        # One window is read and planned while the batches of the one before are consumed.
        drafts = windows.map(planned).prefetch(1).flat_map(drawn)
        return drafts.skip(skip).map(self.build, num_parallel_calls=PARALLEL_CALLS)

    def check(self, longest):
        """Raises InputError if a side of `longest` tokens cannot be batched."""
        del longest

    @abc.abstractmethod
    def plan(self, lengths, seed):
        """Decides which pairs share a batch.

        Args:
            lengths: int32 `[pairs, 2]`, tokens of source and target.
            seed: int64 `[2]`, or None to shuffle nothing. The number of batches does not depend
                on it.

        Returns:
            RaggedTensor int64 `[batches, (pairs)]`, or `[batches, (rows), (pairs)]`.
        """

    @abc.abstractmethod
    def build(self, window, members):
        """Builds one batch.

        Args:
            window: `Window`.
            members: one row of the plan.

        Returns:
            `({"source_ids", "target_ids", …}, labels, weights)`: int32 `[batch, source]`, int32
            `[batch, target]`, int32 `[batch, target]` and float32 `[batch, target]`, where the
            target ids are the labels shifted right behind a start id, and the weights are 1 on
            labels and 0 on padding.
        """


class LengthBuckets(Batcher):
    """Batches of pairs alike in both lengths, padded to the longest of each side.

    A window is sorted by the longer side, and where that is equal by how much the source surpasses
    the target, up and down in turn so that neighbours stay alike; then batches are cut off, each
    as large as the budget allows.

    Args:
        tokens_per_batch: most tokens of a batch on either side, padding included. A pair that is
            longer by itself makes a batch of its own.
        batch_multiple: batches hold a multiple of so many pairs where the budget has room for it,
            such as the number of replicas.
    """

    def __init__(self, tokens_per_batch, batch_multiple=1):
        if tokens_per_batch < 1 or batch_multiple < 1:
            raise InputError(
                f"tokens_per_batch {tokens_per_batch} and batch_multiple {batch_multiple} must be "
                "at least 1"
            )
        self.tokens_per_batch = tokens_per_batch
        self.batch_multiple = batch_multiple

    def plan(self, lengths, seed):
        pairs = tf.shape(lengths, tf.int64)[0]
        order = tf.range(pairs)
        if seed is not None:  # the sorts are stable, so equal lengths stay shuffled
            order = tf.random.experimental.stateless_shuffle(order, seed, alg="philox")
        longest = tf.reduce_max(lengths, axis=1)
        surplus = lengths[:, 0] - lengths[:, 1]
        surplus = tf.where(longest % 2 == 0, surplus, -surplus)
        key = 2 * tf.cast(longest, tf.int64) * tf.reduce_max(tf.cast(longest, tf.int64))
        key += tf.cast(surplus, tf.int64)
        order = tf.gather(order, tf.argsort(tf.gather(key, order), stable=True))
        longest = tf.gather(longest, order)
        plan = tf.RaggedTensor.from_row_splits(order, self._cut(longest), validate=False)
        return plan if seed is None else shuffled(plan, seed)

    def build(self, window, members):
        source = tf.gather(window.source, members).to_tensor()
        labels = tf.gather(window.target, members).to_tensor()
        return as_batch(source, labels)

    def _cut(self, longest):
        """Where batches begin, and the end: int64 `[batches + 1]`, from int32 `[pairs]`."""
        pairs = tf.size(longest, tf.int64)

        def another(start, cuts):
            # No batch that begins here can hold more pairs than its first pair leaves room for.
            ahead = longest[start : start + tf.cast(self.tokens_per_batch, tf.int64)]
            ahead = ahead[: self.tokens_per_batch // ahead[0]]
            size = tf.range(1, tf.size(ahead) + 1) * _running_maximum(ahead)
            count = tf.reduce_sum(tf.cast(size <= self.tokens_per_batch, tf.int64))
            rest = count % self.batch_multiple
            count = tf.maximum(tf.where(count > rest, count - rest, count), 1)
            return start + count, cuts.write(cuts.size(), start + count)

        cuts = tf.TensorArray(tf.int64, size=0, dynamic_size=True).write(0, 0)
        _, cuts = tf.while_loop(
            lambda start, _: start < pairs, another, (tf.constant(0, tf.int64), cuts)
        )
        return cuts.stack()


def shuffled(plan, seed):
    """Shuffles the rows of a RaggedTensor."""
    order = tf.range(plan.nrows())
    return tf.gather(plan, tf.random.experimental.stateless_shuffle(order, seed, alg="philox"))


def as_batch(source_ids, labels, **more_inputs):
    """Completes a batch from its padded sources and labels.

    Args:
        source_ids: int32 `[batch, source]`.
        labels: int32 `[batch, target]`.
        **more_inputs: further inputs, as they are.

    Returns:
        `(inputs, labels, weights)`.
    """
    real = labels != PAD_ID
    start = tf.fill([tf.shape(labels)[0], 1], START_ID)
    shifted = tf.concat([start, labels[:, :-1]], axis=1)
    target_ids = tf.where(real, shifted, PAD_ID)
    inputs = {"source_ids": source_ids, "target_ids": target_ids, **more_inputs}
    return inputs, labels, tf.cast(real, tf.float32)


def _running_maximum(values):
    """The largest of all values so far, by doubling: each round looks twice as far back."""

    def further(step, values):
        before = tf.concat([values[:step], values[:-step]], axis=0)
        return 2 * step, tf.maximum(values, before)

    _, values = tf.while_loop(
        lambda step, values: step < tf.size(values),
        further,
        (tf.constant(1), values),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )
    return values
