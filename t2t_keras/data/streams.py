"""The endless stream of training batches, and the one pass of evaluation."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.data.ids import PAD_ID
from t2t_keras.data.options import steady
from t2t_keras.data.shards import open_shards
from t2t_keras.graphs import as_written

_BATCHES_AHEAD = 8
_AutoShard = tf.data.experimental.AutoShardPolicy


class PaddingShare(NamedTuple):
    """The share of positions that hold padding, on each side."""

    source: float
    target: float

    def __str__(self):
        return f"{self.source:.1%} of source and {self.target:.1%} of target positions are padding"


@as_written
def training_batches(directory, split, batcher, seed, skip=0, service=None):
    """Batches without end, every epoch in another order.

    Batch number n is a function of the shards, the batcher, the seed and n alone: whatever the
    parallelism, and wherever the stream begins. A service gives that up.

    Args:
        directory: where `write_shards` put the split.
        split: its name.
        batcher: a `Batcher`.
        seed: int.
        skip: how many batches an earlier run has used; the stream goes on behind them, or with a
            service at the beginning of their last epoch.
        service: `DataService` that makes the batches; None: this process does.

    Returns:
        An infinite dataset of `(inputs, labels, weights)`; see `Batcher.build`.

    Raises:
        InputError: if the split is missing, or has a pair that the batcher cannot hold.
    """
    shards = _opened(directory, split, batcher)
    epoch, rest = divmod(skip, _batches_per_epoch(shards, batcher)) if skip else (0, 0)

    count = len(shards.paths)

    def visit(number):
        key = tf.stack([tf.constant(seed, tf.int64), number // count])
        order = tf.range(count, dtype=tf.int64)
        order = tf.random.experimental.stateless_shuffle(order, key, alg="philox")
        shard = order[number % count]
        fold = tf.random.experimental.stateless_fold_in
        return shards.window(shard), fold(key, shard, alg="philox")

    windows = tf.data.Dataset.range(epoch * count, np.iinfo(np.int64).max).map(visit)
    batches = batcher.batches(windows, shuffle=True, skip=0 if service else rest)
    if service:
        batches = service.spread(steady(batches))
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    # Each batch of a stream that processes share is drawn by one of them; otherwise all draw all.
    policy = _AutoShard.OFF if service and service.job else _AutoShard.DATA
    return _finished(batches.apply(endless), policy)


@as_written
def evaluation_batches(directory, split, batcher):
    """Batches that hold every pair once, always in the same order.

    Args:
        directory: where `write_shards` put the split.
        split: its name.
        batcher: a `Batcher`.

    Returns:
        A dataset of `(inputs, labels, weights)` whose cardinality is known.

    Raises:
        InputError: if the split is missing, or has a pair that the batcher cannot hold.
    """
    shards = _opened(directory, split, batcher)
    windows = tf.data.Dataset.range(len(shards.paths)).map(
        lambda shard: (shards.window(shard), tf.zeros([2], tf.int64))
    )
    count = batches_per_epoch(directory, split, batcher)
    batches = batcher.batches(windows, shuffle=False)
    return _finished(batches.apply(tf.data.experimental.assert_cardinality(count)))


def batches_per_epoch(directory, split, batcher):
    """How many batches deliver every pair once, the same number in every epoch.

    Args:
        directory: where `write_shards` put the split.
        split: its name.
        batcher: a `Batcher`.

    Returns:
        int.
    """
    return _batches_per_epoch(_opened(directory, split, batcher), batcher)


@as_written
def _batches_per_epoch(shards, batcher):
    counts = tf.data.Dataset.range(len(shards.paths)).map(
        lambda shard: batcher.plan(shards.lengths(shard), None).nrows()
    )
    return int(sum(steady(counts).as_numpy_iterator()))


@as_written
def padding_share(batches):
    """Measures how much of the batches is padding.

    Args:
        batches: finite dataset of `(inputs, labels, weights)`.

    Returns:
        `PaddingShare`, fractions between 0 and 1.
    """

    def count(inputs, _, weights):
        return [
            tf.stack([tf.math.count_nonzero(padding), tf.size(padding, tf.int64)])
            for padding in (inputs["source_ids"] == PAD_ID, weights == 0)
        ]

    counts = batches.map(lambda *batch: tf.stack(count(*batch)))  # [2 sides, 2]
    total = steady(counts).reduce(tf.zeros([2, 2], tf.int64), tf.add).numpy()
    return PaddingShare(*(total[:, 0] / np.maximum(total[:, 1], 1)).tolist())


def _opened(directory, split, batcher):
    shards = open_shards(directory, split)
    batcher.check(max(shards.report["longest_source"], shards.report["longest_target"]))
    return shards


def _finished(batches, policy=_AutoShard.DATA):
    options = tf.data.Options()
    # There are no input files to share out among workers, as far as tf.data can see.
    options.experimental_distribute.auto_shard_policy = policy
    return steady(batches.prefetch(_BATCHES_AHEAD)).with_options(options)
