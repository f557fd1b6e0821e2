"""Batches by token budget (paper section 5.1: about 25,000 source and 25,000 target tokens).

`LengthBuckets` pads pairs of similar length, `Packing` puts several pairs into each row. Both
process one shard of pairs at a time. `assign_batches` chooses the pairs of each batch only from the
lengths, then `make_batch` makes the batches one by one. The number of batches of a shard does not
depend on the seed, so that a run can resume at any batch.
"""

import abc
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import BOS_ID, PAD_ID
from t2t_keras.data.shards import PAIRS_PER_SHARD, RaggedPairs
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.graphs import PARALLEL_CALLS, after, deterministic, no_autograph
from t2t_keras.settings import Range
from t2t_keras.types import Batch

_SEED = Range(-(2**63), 2**63 - 1, whole=True)


class Batcher(abc.ABC):
    """Base class; `LengthBuckets` and `Packing` define `assign_batches` and `make_batch`."""

    @no_autograph
    def __call__(self, examples: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
        """Batches a dataset of pairs.

        Args:
            examples: `{"source": [n], "target": [m]}` or `(source, target)`, integers of any type
                that end with the end-of-sequence id. In vectors of a static length the ids 0 are
                padding and left out.
            seed: shuffles the batches of each shard of `PAIRS_PER_SHARD` pairs, in another order at
                each iteration. As with `tf.data.Dataset.shuffle`, the orders also depend on
                `tf.random.set_seed`. None: the same order each time; of `LengthBuckets`, by length.

        Returns:
            `(inputs, labels, weights)`, every pair once; see `make_batch`.

        Raises:
            InputError: if examples are not such a dataset, if texts without targets are given for
                pairs or pairs for texts, and in the debug mode of tf.data. If a pair is longer
                than the rows, `fit` and `evaluate` raise it, and a loop over the dataset
                `tf.errors.InvalidArgumentError`.
        """
        _require_no_debug_mode()
        if seed is not None:
            seed = _SEED.check("seed", seed)
        pairs = _token_pairs(examples, self).ragged_batch(PAIRS_PER_SHARD)
        shards = pairs.map(lambda *sides: self._fitting(RaggedPairs.from_ragged(*sides)))
        if seed is None:
            seeds = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).repeat()
        else:
            seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
        seeds = seeds.map(lambda number: tf.stack([seed or 0, number]))
        shards = tf.data.Dataset.zip(shards, seeds)
        return deterministic(self.batches(shards, shuffle=seed is not None))

    @no_autograph
    def batches(self, shards: tf.data.Dataset, shuffle: bool, skip: int = 0) -> tf.data.Dataset:
        """Batches shards, `(RaggedPairs, seed int64 [2])`, to `(inputs, labels, weights)`.

        Args:
            shuffle: True for a shard's batches in random order, False in a fixed order.
            skip: number of batches to leave out; they are never made.
        """

        def assign(pairs, seed):
            return pairs, self.assign_batches(pairs.lengths, seed if shuffle else None)

        def split(pairs, batches):
            return tf.data.Dataset.range(batches.nrows()).map(lambda n: (pairs, batches[n]))

        # One shard is read and assigned while the batches of the shard before are consumed.
        drafts = shards.map(assign).prefetch(1).flat_map(split)
        return drafts.skip(skip).map(self.make_batch, num_parallel_calls=PARALLEL_CALLS)

    padded_sides = ("source", "target")  # those where the id 0 is padding
    has_targets = True  # False: for texts without a target
    max_lengths = None  # (source, target), the longest sides of a pair; None: any

    def check_length(self, longest: int) -> None:
        """Raises InputError if a side of `longest` tokens cannot be batched."""
        if self.max_lengths and longest > min(self.max_lengths):
            raise InputError(f"a pair of {longest}{self._too_long()}")

    def _too_long(self):
        return (
            f" tokens does not fit a row of {min(self.max_lengths)}, the longest that batches "
            "have; give longer rows (bucket_lengths, row_length), or filter longer pairs out"
        )

    def _fitting(self, pairs):
        """Returns a shard's `RaggedPairs`; a graph that gets one too long for the rows fails."""
        if not self.max_lengths:
            return pairs
        over = tf.reduce_max(tf.where(pairs.lengths > self.max_lengths, pairs.lengths, 0))
        fits = tf.debugging.Assert(over == 0, ["a pair of ", over, self._too_long()])
        return after([fits], pairs)

    @abc.abstractmethod
    def assign_batches(self, lengths: tf.Tensor, seed: tf.Tensor | None) -> tf.RaggedTensor:
        """Decides which pairs share a batch, from their lengths, int32 `[pairs, 2]`, alone.

        Args:
            seed: int64 `[2]`, or None for no shuffling. The number of batches does not depend on
                it.

        Returns:
            Indices of the pairs of each batch: int64 `[batches, (pairs)]`, or
            `[batches, (rows), (pairs)]`.
        """

    @abc.abstractmethod
    def make_batch(self, pairs: RaggedPairs, members: tf.Tensor | tf.RaggedTensor) -> Batch:
        """Makes one batch of a shard's pairs; members: one row of what `assign_batches` returned.

        Returns:
            `({"source_ids", "target_ids", …}, labels, weights)`: int32 `[batch, source]`, int32
            `[batch, target]`, int32 `[batch, target]` and float32 `[batch, target]`. The target ids
            are the labels shifted right after the begin-of-sequence id; the weights are 1 on
            labels and 0 on padding.
        """


class LengthBuckets(Batcher):
    """Length bucketing: batches of pairs similar in both lengths, padded to the longest of each.

    The pairs of a shard are sorted by their longer side, then by the difference of source and
    target, ascending and descending in turn so that neighbors stay similar. The sorted shard is
    cut into batches, each as large as the token budget allows.

    With `bucket_lengths` each batch has one of these shapes instead; XLA compiles for each shape. A
    pair is in the first bucket with room for both sides. All batches of a bucket have the same
    number of rows, as many as the budget allows. Pairs that do not fill the last batch of a shard
    move to the next bucket if that needs fewer positions; else the batch is filled up with rows of
    padding, of weight 0.

    Args:
        tokens_per_batch: maximum tokens of a batch on either side, padding included. A longer pair
            makes its own batch.
        batch_multiple: the number of pairs of a batch is a multiple of this, such as the number of
            replicas, if the budget has room for it and the shard enough pairs; with
            `bucket_lengths` always, so that all replicas have the same shape.
        bucket_lengths: tuple of the only shapes of rows, (source, target), or one int for both
            sides; each at least as long as the one before. `bucket_shapes.bucket_shapes` chooses
            them. None: the lengths of the pairs.

    Raises:
        InputError: if an argument is below 1 or not whole, or bucket_lengths do not rise.

    Example:
        >>> pairs = [("a house", "ein Haus"), ("a dog sees me", "ein Hund sieht mich")]
        >>> examples = t2t.encode_pairs(pairs, tokenizer)
        >>> batches = t2t.LengthBuckets(tokens_per_batch=4096)(examples, seed=1)
        >>> inputs, labels, weights = next(iter(batches))
        >>> sorted(inputs), labels.shape[0], labels.shape == weights.shape
        (['source_ids', 'target_ids'], 2, True)
    """

    def __init__(
        self,
        tokens_per_batch: int,
        batch_multiple: int = 1,
        bucket_lengths: Sequence[int | tuple[int, int]] | None = None,
    ):
        self.tokens_per_batch = require_whole_number("tokens_per_batch", tokens_per_batch)
        self.batch_multiple = require_whole_number("batch_multiple", batch_multiple)
        self.bucket_lengths = bucket_lengths
        sizes = self.tokens_per_batch, self.batch_multiple
        if bucket_lengths is None:
            self.shapes = _SmallestShapes(*sizes)
        else:
            self.shapes = _FixedShapes(*sizes, bucket_lengths)
        self.max_lengths = self.shapes.max_lengths

    def assign_batches(self, lengths: tf.Tensor, seed: tf.Tensor | None) -> tf.RaggedTensor:
        order = tf.range(tf.shape(lengths, tf.int64)[0])
        if seed is not None:  # sorting is stable, so equal lengths stay shuffled
            order = tf.random.experimental.stateless_shuffle(order, seed, alg="philox")
        sorting, splits = self.shapes.cut(tf.gather(lengths, order))
        order = tf.gather(order, sorting)
        batches = tf.RaggedTensor.from_row_splits(order, splits, validate=False)
        return batches if seed is None else _shuffle_rows(batches, seed)

    def make_batch(self, pairs: RaggedPairs, members: tf.Tensor) -> Batch:
        source, labels = tf.gather(pairs.source, members), tf.gather(pairs.target, members)
        source, labels = self.shapes.pad(source, labels)
        return decoder_batch(labels, source_ids=source)


class _SmallestShapes:
    """Each batch is as long as its longest sentence on either side."""

    max_lengths = None

    def __init__(self, tokens_per_batch, batch_multiple):
        self._tokens, self._multiple = tokens_per_batch, batch_multiple

    def cut(self, lengths):
        """Returns the order of pairs, lengths int32 `[pairs, 2]`, and the batches' row splits."""
        longest = tf.maximum(tf.reduce_max(lengths, axis=1), 1)
        surplus = lengths[:, 0] - lengths[:, 1]
        surplus = tf.where(longest % 2 == 0, surplus, -surplus)
        key = 2 * tf.cast(longest, tf.int64) * tf.reduce_max(tf.cast(longest, tf.int64))
        sorting = tf.argsort(key + tf.cast(surplus, tf.int64), stable=True)
        longest = tf.gather(longest, sorting)

        def add_batch(start, splits):
            # A batch that begins here holds at most as many pairs as if all were like the first.
            ahead = longest[start : start + tf.cast(self._tokens, tf.int64)]
            ahead = ahead[: self._tokens // ahead[0]]
            size = tf.range(1, tf.size(ahead) + 1) * ahead
            count = tf.reduce_sum(tf.cast(size <= self._tokens, tf.int64))
            rest = count % self._multiple
            count = tf.maximum(tf.where(count > rest, count - rest, count), 1)
            return start + count, splits.write(splits.size(), start + count)

        return sorting, _collect_splits(tf.size(longest, tf.int64), add_batch)

    def pad(self, *sides):
        """Returns the sides of a batch, RaggedTensors int32 `[rows, (length)]`, as tensors."""
        lengths = [tf.maximum(side.bounding_shape(axis=1), 1) for side in sides]
        return [
            side.to_tensor(shape=tf.stack([side.nrows(), length]))
            for side, length in zip(sides, lengths, strict=True)
        ]


class _FixedShapes:
    """Each batch has the shape of one bucket; for the methods see `_SmallestShapes`."""

    def __init__(self, tokens_per_batch, batch_multiple, shapes):
        self._shapes = _rising(shapes)  # [buckets, 2]
        multiples = tokens_per_batch // self._shapes.max(axis=1) // batch_multiple
        self._rows = batch_multiple * np.maximum(multiples, 1)
        self.max_lengths = tuple(self._shapes[-1].tolist())

    def cut(self, lengths):
        buckets = tf.argmax(self._holds(lengths[:, tf.newaxis]), axis=1)
        positions = self._shapes.sum(axis=1)
        for bucket, rows in enumerate(self._rows[:-1]):
            members = tf.where(buckets == bucket)[:, 0]
            rest = tf.size(members, tf.int64) % rows
            fills = (rows - rest) * positions[bucket]
            grows = rest * (positions[bucket + 1] - positions[bucket])
            moves = (grows < fills) & tf.reduce_any(buckets == bucket + 1)
            moved = members[tf.size(members, tf.int64) - tf.where(moves, rest, 0) :, tf.newaxis]
            buckets = tf.tensor_scatter_nd_add(buckets, moved, tf.ones_like(moved[:, 0]))
        sorting = tf.argsort(buckets, stable=True)
        buckets, pairs = tf.gather(buckets, sorting), tf.size(buckets, tf.int64)
        first = tf.searchsorted(
            buckets, tf.range(len(self._rows), dtype=tf.int64), out_type=tf.int64
        )
        place = tf.range(pairs) - tf.gather(first, buckets)  # of a pair in its bucket
        starts = tf.where(place % tf.gather(self._rows, buckets) == 0)[:, 0]
        return sorting, tf.concat([starts, [pairs]], axis=0)

    def pad(self, *sides):
        longest = [tf.reduce_max(side.row_lengths()) for side in sides]
        lengths = [*longest, tf.zeros_like(longest[0])][:2]
        holds = self._holds(tf.stack(lengths))
        bucket = tf.argmax(holds & (sides[0].nrows() <= self._rows))
        rows, shape = tf.gather(self._rows, bucket), tf.gather(self._shapes, bucket)
        shapes = [[rows, shape[i]] for i in range(len(sides))]
        return [
            tf.reshape(side.to_tensor(shape=shape), shape)
            for side, shape in zip(sides, shapes, strict=True)
        ]

    def _holds(self, lengths):
        """Returns whether each bucket holds lengths, integers [..., 2]: bool [..., buckets]."""
        return tf.reduce_all(tf.cast(lengths, tf.int64) <= self._shapes, axis=-1)


def _rising(shapes):
    """Returns `bucket_lengths` as an array [buckets, 2]; raises InputError if they do not rise."""
    try:
        lengths = np.array([np.broadcast_to(shape, 2) for shape in shapes])
    except (TypeError, ValueError):  # one number, or three for a shape
        lengths = np.zeros([0, 2])
    rises = lengths.dtype.kind in "iu" and (np.diff(lengths, axis=0, prepend=1) >= 0).all()
    if not lengths.size or not rises:
        raise InputError(
            f"bucket_lengths is {shapes!r}: give whole numbers of at least 1 or pairs (source, "
            "target) of them, each at least as long as the one before, such as (8, 16, 32)."
        )
    return lengths


class FixedRows(Batcher):
    """Base of batchers whose batches all have one shape; arguments as for `Packing`."""

    def __init__(self, tokens_per_batch: int, row_length: int, batch_multiple: int = 1):
        self.tokens_per_batch = require_whole_number("tokens_per_batch", tokens_per_batch)
        self.row_length = require_whole_number("row_length", row_length)
        self.batch_multiple = require_whole_number("batch_multiple", batch_multiple)
        rows = self.tokens_per_batch // self.row_length
        if not rows:
            raise InputError(
                f"row_length is {row_length}: give at most tokens_per_batch, {tokens_per_batch}."
            )
        self._rows = rows // self.batch_multiple * self.batch_multiple or rows

    def _batches_of(self, rows):
        """Returns rows, dense or ragged, as a RaggedTensor `[batches, (rows), …]`."""
        count = tf.shape(rows, tf.int64)[0]
        splits = tf.concat([tf.range(0, count, self._rows), [count]], axis=0)
        return tf.RaggedTensor.from_row_splits(rows, splits, validate=False)


class Packing(FixedRows):
    """Batches whose rows hold several whole pairs, one after another.

    All batches have the same shape; the last one of a shard is filled up with rows of padding.
    There is hardly any other padding. Attention must respect the segments, and positions restart in
    every pair.

    The inputs have four more keys, all int32 of their side's shape: `source_segments` and
    `target_segments`, the number of the pair from 1, and 0 on padding, `source_positions` and
    `target_positions`, counted from 0 in every pair.

    Args:
        tokens_per_batch: tokens of a batch on either side, padding included.
        row_length: tokens of a row on either side; no pair may be longer.
        batch_multiple: as for `LengthBuckets`, of rows.

    Raises:
        InputError: if row_length is not from 1 to tokens_per_batch, or a number is not whole.
    """

    @property
    def max_lengths(self) -> tuple[int, int]:
        """The longest sides of a pair, those of a row."""
        return self.row_length, self.row_length

    def assign_batches(self, lengths: tf.Tensor, seed: tf.Tensor | None) -> tf.RaggedTensor:
        # Rows are filled in one fixed random order, so that their number never changes.
        order = tf.range(tf.shape(lengths, tf.int64)[0])
        order = tf.random.experimental.stateless_shuffle(order, [0, 0], alg="philox")
        splits = self._split(tf.gather(lengths, order))
        rows = tf.RaggedTensor.from_row_splits(order, splits, validate=False)
        if seed is not None:
            rows = _shuffle_rows(rows, seed)
        return self._batches_of(rows)

    def make_batch(self, pairs: RaggedPairs, members: tf.RaggedTensor) -> Batch:
        inputs = self._pack("source", pairs.source, members)
        return self.packed_batch(pairs.target, members, **inputs)

    def packed_batch(
        self, target: tf.RaggedTensor, members: tf.RaggedTensor, **inputs: tf.Tensor
    ) -> Batch:
        """Makes a batch of targets, int32 `[pairs, (length)]`, and further inputs."""
        inputs |= self._pack("target", target, members)
        labels, positions = inputs.pop("target_ids"), inputs["target_positions"]
        inputs, labels, weights = decoder_batch(labels, **inputs)
        # Every pair begins with its own start, where the shift left the end of the pair before.
        first = (labels != PAD_ID) & (positions == 0)
        inputs["target_ids"] = tf.where(first, BOS_ID, inputs["target_ids"])
        return inputs, labels, weights

    def _pack(self, side, sequences, members):
        """Returns ids, segments and positions of one side, int32 `[rows, row_length]` each."""
        ids = tf.gather(sequences, members.values)  # [pairs, (length)]
        lengths = ids.row_lengths()
        segments = tf.ragged.range(1, members.row_lengths() + 1).values  # [pairs]
        segments = ids.with_values(tf.cast(tf.repeat(segments, lengths), tf.int32))
        positions = tf.cast(tf.ragged.range(lengths), tf.int32)

        def rows(values):  # [pairs, (length)] → [rows, row_length]
            joined = members.with_values(values).merge_dims(1, 2)
            shape = [self._rows, self.row_length]
            return tf.ensure_shape(joined.to_tensor(PAD_ID, shape=shape), shape)

        columns = {"ids": ids, "segments": segments, "positions": positions}
        return {f"{side}_{name}": rows(values) for name, values in columns.items()}

    def _split(self, lengths):
        """Returns the row splits of the rows, int64 `[rows + 1]`, from int32 `[pairs, 2]`."""
        before = tf.pad(tf.cumsum(tf.cast(lengths, tf.int64), axis=0), [[1, 0], [0, 0]])
        before = tf.transpose(before)  # [2, pairs + 1]
        # next_start[i]: first pair that does not fit in a row starting at pair i.
        next_start = tf.searchsorted(before, before + self.row_length, "right", tf.int64) - 1
        next_start = tf.reduce_min(next_start, axis=0)

        def add_row(start, splits):
            start = next_start[start]
            return start, splits.write(splits.size(), start)

        return _collect_splits(tf.shape(lengths, tf.int64)[0], add_row)


def decoder_batch(labels: tf.Tensor, **inputs: tf.Tensor) -> Batch:
    """Returns what `Batcher.make_batch` does, of labels int32 `[batch, target]` and inputs."""
    weights = tf.cast(labels != PAD_ID, tf.float32)
    return {"target_ids": shift_right(labels)} | inputs, labels, weights


def shift_right(labels: tf.Tensor, start_id: int = BOS_ID) -> tf.Tensor:
    """Returns the decoder's input that predicts labels, int32 [batch, target], 0 on padding."""
    starts = tf.fill([tf.shape(labels)[0], 1], start_id)
    return tf.where(labels != PAD_ID, tf.concat([starts, labels[:, :-1]], axis=1), PAD_ID)


def _token_pairs(examples, batcher):
    """Returns a dataset of (source, target), int32 [n] and int32 [m]; raises InputError."""
    fix = (
        'give a tf.data.Dataset of {"source": ids, "target": ids} or (source, target), one pair an '
        "element, each a vector of integers; t2t_keras.encode_pairs makes it from texts."
    )
    if not isinstance(examples, tf.data.Dataset):
        raise InputError(f"examples are a {type(examples).__name__}: {fix}")
    specs, names = examples.element_spec, ("source", "target")
    if isinstance(specs, dict) and set(names) <= set(specs):
        specs = [specs[name] for name in names]
        examples = examples.map(lambda pair: tuple(pair[name] for name in names))
    elif not isinstance(specs, tuple) or len(specs) != len(names):
        given = list(specs) if isinstance(specs, dict) else specs
        raise InputError(f"examples have {given}: {fix}")
    for name, spec in zip(names, specs, strict=True):
        shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", tf.string)
        if not dtype.is_integer or shape.rank != 1:
            raise InputError(f"examples have {spec} as {name}: {fix}")
    kind = type(batcher).__name__
    if specs[1].shape[0] == 0 and batcher.has_targets:
        raise InputError(
            f"examples are texts without targets, and {kind} is for pairs: give them to "
            "TextBuckets, TextPacking or TextStream."
        )
    if specs[1].shape[0] != 0 and not batcher.has_targets:
        raise InputError(
            f"examples have targets, which {kind} would leave out: give texts, as encode_texts "
            'makes them, or {"source": ids, "target": tf.zeros([0], tf.int32)}.'
        )

    def ids(name, spec, side):
        side = tf.cast(side, tf.int32)
        if spec.shape[0] is None:  # from a tokenizer: nothing is padded
            return side
        return tf.boolean_mask(side, (side != PAD_ID) | (name not in batcher.padded_sides))

    return examples.map(lambda *pair: tuple(map(ids, names, specs, pair)))


def _require_no_debug_mode():
    runs_eagerly = []
    list(tf.data.Dataset.range(1).map(lambda x: runs_eagerly.append(tf.executing_eagerly()) or x))
    if any(runs_eagerly):
        raise InputError(
            "tf.data is in debug mode, which does not support ragged rows: remove "
            "tf.data.experimental.enable_debug_mode()."
        )


def _collect_splits(pairs, add):
    """Calls `add(start, splits)`, which returns the next start, until it is `pairs`."""
    splits = tf.TensorArray(tf.int64, size=0, dynamic_size=True).write(0, 0)
    _, splits = tf.while_loop(
        lambda start, _: start < pairs, add, (tf.constant(0, tf.int64), splits)
    )
    return splits.stack()


def _shuffle_rows(ragged, seed):
    """Shuffles the rows of a RaggedTensor; seed int64 `[2]`."""
    order = tf.range(ragged.nrows())
    return tf.gather(ragged, tf.random.experimental.stateless_shuffle(order, seed, alg="philox"))
