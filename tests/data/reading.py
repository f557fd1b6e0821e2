"""Token shards as pairs of ids and of given ones, packed rows as sequences, real text, pipes."""

import os
import pathlib
import threading

import pytest
import tensorflow as tf

from t2t_keras.data.shards import RaggedPairs, open_shards


def read_pairs(directory, split="train"):
    """Returns all pairs of a split in the order of its shards, [(source ids, target ids), …]."""
    shards = open_shards(str(directory), split)
    return [
        (tuple(source), tuple(target))
        for index in range(len(shards.paths))
        for pairs in [shards.read(index)]
        for source, target in zip(pairs.source.to_list(), pairs.target.to_list(), strict=True)
    ]


class MemoryShards:
    """`Shards` of lists of pairs."""

    def __init__(self, *shards):
        self.paths = [None] * len(shards)
        self._shards = shards

    def read(self, index):
        return RaggedPairs.from_ragged(
            *(tf.ragged.constant(side, tf.int32) for side in zip(*self._shards[index], strict=True))
        )


def shared_data(name):
    """Returns a folder of real text beside the repository; skips the test where it is missing."""
    beside = pathlib.Path(__file__).parents[3] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("T2T_SHARED_DATA", beside)) / name
    if not folder.is_dir():
        pytest.skip(f"real text is missing: {folder}")
    return folder


def examples_of(rows):
    """A dataset of pairs of ids; rows: (source, target)."""
    sides = [tf.ragged.constant(side, tf.int32, 1) for side in zip(*rows, strict=True)]
    return tf.data.Dataset.from_tensor_slices(dict(zip(("source", "target"), sides, strict=True)))


def packed_sequences(ids, segments, positions):
    """Yields the sequences of packed rows in order; they are numbered and counted from 0."""
    for row, numbers, places in zip(ids.numpy(), segments.numpy(), positions.numpy(), strict=True):
        parts = [row[numbers == number].tolist() for number in range(1, numbers.max() + 1)]
        filled = [
            (id_, number, place)
            for number, part in enumerate(parts, 1)
            for place, id_ in enumerate(part)
        ]
        filled += [(0, 0, 0)] * (len(row) - len(filled))
        assert list(zip(row, numbers, places, strict=True)) == filled
        yield from map(tuple, parts)


def read_in_thread(path):
    """Reads a pipe to its end in a thread; returns a function that returns what was read."""
    found = []
    thread = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    thread.start()

    def result():
        thread.join(timeout=20)
        return found[0]

    return result
