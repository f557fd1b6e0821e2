"""Token shards: a corpus cut into ids once, laid down so that reading costs almost nothing.

A split is a folder of `report.json` and, per shard, three files of raw little-endian int32:
`.lengths` `[pairs, 2]`, `.source` and `.target`, the ids of all its pairs one after another. Each
shard is an even sample of the corpus, small enough to be held, shuffled and sorted as a whole.
"""

import dataclasses
import json
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.files import new_folder
from t2t_keras.data.filters import REASONS, FilterReport, Filters
from t2t_keras.data.options import PARALLEL_CALLS, steady
from t2t_keras.data.pairs import encode_with_end
from t2t_keras.errors import InputError

PAIRS_PER_SHARD = 1 << 17

_PAIRS_AT_A_TIME = 8192
_REPORT = "report.json"


class Window(NamedTuple):
    """Tokenized pairs held in memory as two ragged arrays, each by its values and row splits."""

    source_values: tf.Tensor  # int32 [source tokens]
    source_splits: tf.Tensor  # int64 [pairs + 1]
    target_values: tf.Tensor  # int32 [target tokens]
    target_splits: tf.Tensor  # int64 [pairs + 1]

    @classmethod
    def of(cls, source, target):
        """A window of two RaggedTensors int32 `[pairs, (length)]`."""
        return cls(source.values, source.row_splits, target.values, target.row_splits)

    @property
    def source(self):
        """RaggedTensor int32 `[pairs, (length)]`."""
        return tf.RaggedTensor.from_row_splits(self.source_values, self.source_splits, False)

    @property
    def target(self):
        """RaggedTensor int32 `[pairs, (length)]`."""
        return tf.RaggedTensor.from_row_splits(self.target_values, self.target_splits, False)

    @property
    def lengths(self):
        """int32 `[pairs, 2]`: tokens of each source and target."""
        splits = tf.stack([self.source_splits, self.target_splits], axis=1)
        return tf.cast(splits[1:] - splits[:-1], tf.int32)


@dataclasses.dataclass(frozen=True)
class Shards:
    """A tokenized split on disk, opened by `open_shards`."""

    paths: tuple  # without their endings
    report: dict

    def window(self, index):
        """Reads a whole shard: index int64 scalar → `Window`."""
        path = tf.gather(tf.constant(self.paths), index)
        lengths = tf.cast(self.lengths(index), tf.int64)
        splits = tf.pad(tf.cumsum(lengths, axis=0), [[1, 0], [0, 0]])  # [pairs + 1, 2]
        return Window(_read(path, ".source"), splits[:, 0], _read(path, ".target"), splits[:, 1])

    def lengths(self, index):
        """Reads the lengths of a shard's pairs: index int64 scalar → int32 `[pairs, 2]`."""
        return tf.reshape(_read(tf.gather(tf.constant(self.paths), index), ".lengths"), [-1, 2])


def write_shards(
    corpus,
    split,
    tokenizer,
    directory,
    filters=None,
    shards=None,
    progress=None,
    target_tokenizer=None,
):
    """Tokenizes a split of a corpus once and for all.

    Args:
        corpus: anything with `examples(split)`; see `sources.py`.
        split: which part to take.
        tokenizer: a `Tokenizer`; every source and target gets its end id.
        directory: where the split's folder is made; an older one is replaced.
        filters: `Filters`; those without limits by default.
        shards: into how many shards the pairs go; by default as many as hold about
            `PAIRS_PER_SHARD` each.
        progress: called with the number of pairs read so far, now and then.
        target_tokenizer: of the targets, where they are no text in the vocabulary of the sources,
            such as `Labels`; None: `tokenizer`.

    Returns:
        A `FilterReport`.

    Raises:
        InputError: if no pair is left.
    """
    examples = corpus.examples(split)
    if shards is None:
        shards = max(1, -(-int(examples.cardinality()) // PAIRS_PER_SHARD))
    encoded = examples.batch(_PAIRS_AT_A_TIME).map(
        _Encoder(tokenizer, target_tokenizer or tokenizer, filters or Filters()),
        num_parallel_calls=PARALLEL_CALLS,
    )
    counts = np.zeros(1 + len(REASONS), np.int64)
    tokens, longest = np.zeros(2, np.int64), np.zeros(2, np.int64)
    path = os.path.join(directory, split)
    with new_folder(path) as folder:
        names = [f"{shard:05d}-of-{shards:05d}" for shard in range(shards)]
        paths = [os.path.join(folder, name) for name in names]
        for name in paths:  # a shard may stay empty
            _append(name, np.zeros([0, 2]), [], [])
        for block, (faults, window) in enumerate(steady(encoded.prefetch(2))):
            counts += faults.numpy()
            lengths = window.lengths.numpy()
            if len(lengths):
                tokens += lengths.sum(axis=0)
                longest = np.maximum(longest, lengths.max(axis=0))
                # Every shard gets an even share of each block, in turn the larger ones.
                _spread(window, lengths, np.roll(paths, block))
            if progress:
                progress(int(counts.sum()))
        dropped = dict(zip(REASONS, counts[1:].tolist(), strict=True))
        report = FilterReport(int(counts[0]), dropped)
        if not report.kept:
            raise InputError(
                f"no pair of split {split!r} is left for {path} ({report}); check the corpus and "
                "the limits of its filters"
            )
        described = {
            **report.as_dict(),
            "shards": names,
            "source_tokens": int(tokens[0]),
            "target_tokens": int(tokens[1]),
            "longest_source": int(longest[0]),
            "longest_target": int(longest[1]),
        }
        with open(os.path.join(folder, _REPORT), "w", encoding="utf-8") as file:
            json.dump(described, file, indent=2)
    logging.info("%s: %s", path, report)
    return report


def open_shards(directory, split):
    """Finds the shards that `write_shards` made.

    Args:
        directory: as given to `write_shards`.
        split: likewise.

    Returns:
        `Shards`.

    Raises:
        InputError: if there are none.
    """
    folder = os.path.join(directory, split)
    try:
        with open(os.path.join(folder, _REPORT), encoding="utf-8") as file:
            report = json.load(file)
    except FileNotFoundError as error:
        raise InputError(
            f"there is no tokenized split {split!r} in {directory}; prepare it first"
        ) from error
    return Shards(tuple(os.path.join(folder, name) for name in report["shards"]), report)


def read_shards(directory, split):
    """Reads a tokenized split pair by pair.

    Args:
        directory: as given to `write_shards`.
        split: likewise.

    Returns:
        A dataset of `{"source": int32 [n], "target": int32 [m]}`, both ending with the end id.
    """
    shards = open_shards(directory, split)

    def pairs(index):
        window = shards.window(index)
        ends = tf.stack([window.source_splits, window.target_splits], axis=1)
        bounds = tf.data.Dataset.from_tensor_slices((ends[:-1], ends[1:]))
        return bounds.map(
            lambda first, last: {
                "source": window.source_values[first[0] : last[0]],
                "target": window.target_values[first[1] : last[1]],
            }
        )

    dataset = tf.data.Dataset.range(len(shards.paths)).flat_map(pairs)
    return steady(dataset.apply(tf.data.experimental.assert_cardinality(shards.report["kept"])))


class _Encoder:
    """Lines to ids and counts, in the graph."""

    def __init__(self, source_tokenizer, target_tokenizer, filters):
        self._tokenizers = {"source": source_tokenizer, "target": target_tokenizer}
        self._filters = filters

    def __call__(self, lines):
        sides = [
            encode_with_end(lines[side], tokenizer) for side, tokenizer in self._tokenizers.items()
        ]
        faults = self._filters.faults(lines["source"], lines["target"], *sides)
        good = [tf.ragged.boolean_mask(side, faults == 0) for side in sides]
        return tf.math.bincount(faults, minlength=1 + len(REASONS)), Window.of(*good)


def _spread(window, lengths, paths):
    bounds = np.linspace(0, len(lengths), len(paths) + 1).astype(int)
    source, target = window.source_values.numpy(), window.target_values.numpy()
    source_splits, target_splits = window.source_splits.numpy(), window.target_splits.numpy()
    for path, first, last in zip(paths, bounds[:-1], bounds[1:], strict=True):
        _append(
            path,
            lengths[first:last],
            source[source_splits[first] : source_splits[last]],
            target[target_splits[first] : target_splits[last]],
        )


def _append(path, *arrays):
    for ending, array in zip((".lengths", ".source", ".target"), arrays, strict=True):
        with open(path + ending, "ab") as file:
            file.write(np.asarray(array, "<i4").tobytes())


def _read(path, ending):
    return tf.io.decode_raw(tf.io.read_file(path + ending), tf.int32, little_endian=True)
