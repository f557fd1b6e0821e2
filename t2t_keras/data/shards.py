"""Token shards: a corpus as token ids, in files that load fast.

A split is a folder of `report.json` and, for each shard, three files of raw little-endian int32:
`.lengths` `[pairs, 2]`, the tokens of each source and target, and `.source` and `.target`, the ids
of all its pairs one after another. Each shard is an even sample of the corpus, small enough to be
held, shuffled and sorted in memory. The report contains the CRC-32 of each file. `shard_writing.py`
writes them.

Start with `open_shards`; `Shards.read` reads one shard within a graph.
"""

import dataclasses
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.data.files import crc32_of, local_path, read_json
from t2t_keras.errors import InputError
from t2t_keras.graphs import after

PAIRS_PER_SHARD = 1 << 17
REPORT = "report.json"
FILE_ENDINGS = (".lengths", ".source", ".target")
_FIX = "delete the split's folder and prepare it again, or copy it again."


class RaggedPairs(NamedTuple):
    """Tokenized pairs in memory as two ragged arrays, each given by its values and row splits."""

    source_values: tf.Tensor  # int32 [source tokens]
    source_splits: tf.Tensor  # int64 [pairs + 1]
    target_values: tf.Tensor  # int32 [target tokens]
    target_splits: tf.Tensor  # int64 [pairs + 1]

    @classmethod
    def from_ragged(cls, source, target):
        """Makes the pairs from two RaggedTensors int32 `[pairs, (length)]`."""
        return cls(source.values, source.row_splits, target.values, target.row_splits)

    @property
    def source(self):
        """RaggedTensor int32 `[pairs, (length)]`."""
        return _ragged(self.source_values, self.source_splits)

    @property
    def target(self):
        """RaggedTensor int32 `[pairs, (length)]`."""
        return _ragged(self.target_values, self.target_splits)

    @property
    def lengths(self):
        """int32 `[pairs, 2]`: tokens of each source and target."""
        splits = tf.stack([self.source_splits, self.target_splits], axis=1)
        return tf.cast(splits[1:] - splits[:-1], tf.int32)


@dataclasses.dataclass(frozen=True)
class Shards:
    """A tokenized split on disk, opened by `open_shards`."""

    paths: tuple[str, ...]  # without their endings
    report: dict  # the content of `report.json`

    def read(self, index):
        """Reads a shard: index int64 scalar → `RaggedPairs`."""
        path = self._path(index)
        source, target = _read_ids(path + ".source"), _read_ids(path + ".target")
        lengths = tf.cast(self.read_lengths(index), tf.int64)
        splits = tf.pad(tf.cumsum(lengths, axis=0), [[1, 0], [0, 0]])  # [pairs + 1, 2]
        sizes = tf.stack([tf.size(source, tf.int64), tf.size(target, tf.int64)])
        # `open_shards` has checked this; the files may have changed since.
        fits = tf.debugging.Assert(
            tf.reduce_all(sizes == splits[-1]), [path, f"has changed since it was opened: {_FIX}"]
        )
        splits = after([fits], splits)
        return RaggedPairs(source, splits[:, 0], target, splits[:, 1])

    def read_lengths(self, index):
        """Reads the lengths of a shard's pairs: index int64 scalar → int32 `[pairs, 2]`."""
        return tf.reshape(_read_ids(self._path(index) + ".lengths"), [-1, 2])

    def _path(self, index):
        return tf.gather(tf.constant(self.paths), index)


def open_shards(directory, split):
    """Finds the `Shards` that `write_shards` wrote, and checks that they are complete.

    Raises:
        InputError: if there are none, or if a file is missing, truncated or damaged, or does not
            fit the others.
    """
    folder = os.path.join(local_path(directory), split)
    try:
        report = read_json(os.path.join(folder, REPORT))
        shards = Shards(tuple(os.path.join(folder, name) for name in report["shards"]), report)
        expected = [report[key] for key in ("kept", "source_tokens", "target_tokens")]
    except FileNotFoundError as error:
        raise InputError(
            f"there is no tokenized split {split!r} in {directory}; prepare it first"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder}/{REPORT} is damaged ({error}): {_FIX}") from error
    counts = np.sum([_check_shard(path) for path in shards.paths], axis=0).tolist()
    if counts != expected:
        raise InputError(
            f"the shards in {folder} hold {counts} pairs, source tokens and target tokens instead "
            f"of {expected}: {_FIX}"
        )
    for name, checksum in report.get("crc32", {}).items():  # older reports have none
        if crc32_of(path := os.path.join(folder, name)) != checksum:
            raise InputError(f"{path} is damaged (its checksum does not match): {_FIX}")
    return shards


def _check_shard(path):
    """Returns a shard's number of pairs, source tokens and target tokens; raises InputError."""
    for ending in FILE_ENDINGS:
        if not os.path.exists(path + ending):
            raise InputError(f"{path}{ending} is missing: {_FIX}")
    size = os.path.getsize(path + ".lengths")
    if size % 8:
        raise InputError(f"{path}.lengths has {size:,} bytes, not a multiple of 8: {_FIX}")
    lengths = np.fromfile(path + ".lengths", "<i4").reshape(-1, 2)
    totals = lengths.sum(axis=0, dtype=np.int64).tolist()
    for ending, tokens in zip(FILE_ENDINGS[1:], totals, strict=True):
        size = os.path.getsize(path + ending)
        if size != 4 * tokens:
            raise InputError(
                f"{path}{ending} has {size:,} bytes instead of the {4 * tokens:,} of its "
                f".lengths: {_FIX}"
            )
    return [len(lengths), *totals]


def _read_ids(path):
    return tf.io.decode_raw(tf.io.read_file(path), tf.int32, little_endian=True)


def _ragged(values, splits):
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)
