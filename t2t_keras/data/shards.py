"""Token shards: a corpus cut into ids once, laid down so that reading costs almost nothing.

A split is a folder of `report.json` and, per shard, three files of raw little-endian int32:
`.lengths` `[pairs, 2]`, `.source` and `.target`, the ids of all its pairs one after another. Each
shard is an even sample of the corpus, small enough to be held, shuffled and sorted as a whole.
`shard_writing.py` writes them.
"""

import dataclasses
import json
import os
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.data.options import steady
from t2t_keras.errors import InputError
from t2t_keras.graphs import as_written

PAIRS_PER_SHARD = 1 << 17
REPORT = "report.json"
_MEND = "delete the split's folder and prepare it again, or copy it anew."


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


def open_shards(directory, split):
    """Finds the shards that `write_shards` made.

    Args:
        directory: as given to `write_shards`.
        split: likewise.

    Returns:
        `Shards`.

    Raises:
        InputError: if there are none, or if their files are not as they were written.
    """
    folder = os.path.join(directory, split)
    try:
        with open(os.path.join(folder, REPORT), encoding="utf-8") as file:
            report = json.load(file)
    except FileNotFoundError as error:
        raise InputError(
            f"there is no tokenized split {split!r} in {directory}; prepare it first"
        ) from error
    except ValueError as error:
        raise InputError(f"{folder}/{REPORT} is damaged ({error}): {_MEND}") from error
    paths = tuple(os.path.join(folder, name) for name in report["shards"])
    for side in ("source", "target"):
        _require_size([f"{path}.{side}" for path in paths], 4 * report[f"{side}_tokens"])
    return Shards(paths, report)


def _require_size(paths, expected):
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise InputError(f"{missing[0]} is missing: {_MEND}")
    found = sum(map(os.path.getsize, paths))
    if found != expected:
        raise InputError(
            f"the files {paths[0]} to {paths[-1]} have {found:,} bytes instead of {expected:,}: "
            f"{_MEND}"
        )


@as_written
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


def _read(path, ending):
    return tf.io.decode_raw(tf.io.read_file(path + ending), tf.int32, little_endian=True)
