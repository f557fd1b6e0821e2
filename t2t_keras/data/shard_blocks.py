"""What a split becomes as token shards: its blocks as ids, and the bytes of every shard.

A block is `PAIRS_AT_A_TIME` pairs of the corpus in a row. Which pairs of a block go to which shard
depends on the block's number alone, so that whoever writes them, and in whatever order they are
encoded, comes to the same bytes.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import shutil
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.files import write_file
from t2t_keras.data.filters import REASONS, FilterReport, Filters
from t2t_keras.data.options import PARALLEL_CALLS, steady
from t2t_keras.data.pairs import encode_with_end
from t2t_keras.data.shards import PAIRS_PER_SHARD, REPORT, Window
from t2t_keras.errors import InputError
from t2t_keras.graphs import as_written

PAIRS_AT_A_TIME = 8192
ENDINGS = (".lengths", ".source", ".target")


def unfinished_folder(path):
    """Returns the hidden folder beside it in which a split is made until it is complete."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.unfinished")


def complete(path, names, tally):
    """Gives the unfinished folder of a split its name; an older one is replaced.

    Args:
        path: the split's folder.
        names: of its shards.
        tally: `Tally` of all its blocks.

    Returns:
        A `FilterReport`.

    Raises:
        InputError: if no pair is left.
    """
    folder = unfinished_folder(path)
    report = tally.report()
    if not report.kept:
        shutil.rmtree(folder)
        raise InputError(
            f"split {os.path.basename(path)!r}, {path}: no pair is left ({report}); check the "
            "corpus and the limits of its filters"
        )
    content = json.dumps(tally.described(names), indent=2)
    write_file(os.path.join(folder, REPORT), content.encode())
    shutil.rmtree(path, ignore_errors=True)
    os.replace(folder, path)
    logging.info("%s: %s", path, report)
    return report


def shard_names(shards):
    """Returns the names of so many shards, without endings."""
    return [f"{shard:05d}-of-{shards:05d}" for shard in range(shards)]


class Block(NamedTuple):
    """A block of a corpus as ids, and how many of its pairs have which fault.

    Attributes:
        faults: int [1 + reasons], the pairs kept and those dropped for each of `REASONS`.
        lengths: int [pairs, 2], tokens of source and target.
        source: (ids, splits) of all sources one after another.
        target: likewise.
    """

    faults: np.ndarray
    lengths: np.ndarray
    source: tuple
    target: tuple

    @classmethod
    def of(cls, faults, window):
        """A block of what a `BlockEncoder` gives, as NumPy arrays."""
        return cls(
            faults.numpy(),
            window.lengths.numpy(),
            (window.source_values.numpy(), window.source_splits.numpy()),
            (window.target_values.numpy(), window.target_splits.numpy()),
        )

    def pieces(self, number, shards):
        """Yields (shard, [lengths, source ids, target ids]) of block `number`: an even share for
        every shard, the larger ones in turn.
        """
        bounds = np.linspace(0, len(self.lengths), shards + 1).astype(int)
        for place, (first, last) in enumerate(itertools.pairwise(bounds)):
            sides = [ids[at[first] : at[last]] for ids, at in (self.source, self.target)]
            yield (place - number) % shards, [self.lengths[first:last], *sides]


class BlockEncoder:
    """A function of pairs of text, which gives their ids and what is wrong with them.

    Args:
        tokenizer, filters, target_tokenizer: as `write_shards` takes them.
    """

    def __init__(self, tokenizer, filters=None, target_tokenizer=None):
        self.filters = filters or Filters()
        self._tokenizers = {"source": tokenizer, "target": target_tokenizer or tokenizer}

    def __call__(self, lines):
        """Encodes `{"source", "target"}`, string `[pairs]` each.

        Returns:
            int32 `[1 + reasons]`, as `Block.faults`, and the `Window` of the pairs kept.
        """
        sides = [
            encode_with_end(lines[side], tokenizer) for side, tokenizer in self._tokenizers.items()
        ]
        faults = self.filters.faults(lines["source"], lines["target"], *sides)
        good = [tf.ragged.boolean_mask(side, faults == 0) for side in sides]
        return tf.math.bincount(faults, minlength=1 + len(REASONS)), Window.of(*good)


class Blocks:
    """The blocks of a split.

    Args:
        examples: dataset of `{"source", "target"}` string scalars of known cardinality.
    """

    def __init__(self, examples):
        self._examples = examples

    def __len__(self):
        return math.ceil(int(self._examples.cardinality()) / PAIRS_AT_A_TIME)

    def default_shards(self):
        """Returns how many shards of about `PAIRS_PER_SHARD` pairs there are."""
        return max(1, math.ceil(int(self._examples.cardinality()) / PAIRS_PER_SHARD))

    def texts(self):
        """Yields (number, {"source", "target"}), bytes NumPy `[pairs]` each, of every block."""
        yield from enumerate(steady(self._from(0)).as_numpy_iterator())

    def encode(self, encoder, first=0, count=-1):
        """Yields (number, `Block`) of `count` blocks from `first` on; -1: of all the rest."""
        blocks = self._from(first).take(count)
        encoded = blocks.map(as_written(encoder), num_parallel_calls=PARALLEL_CALLS)
        for number, result in enumerate(steady(encoded.prefetch(2)), start=first):
            yield number, Block.of(*result)

    def fingerprint(self, encoder, shards):
        """Returns a str that another corpus, tokenizer or filter would hardly have."""
        digest = hashlib.sha256(repr((shards, len(self), encoder.filters)).encode())
        for _, block in self.encode(encoder, count=1):
            for array in (block.faults, *block.source, *block.target):
                digest.update(array.tobytes())
        return digest.hexdigest()

    def _from(self, first):
        return self._examples.skip(first * PAIRS_AT_A_TIME).batch(PAIRS_AT_A_TIME)


@dataclasses.dataclass(frozen=True)
class Tally:
    """What is counted of a split while its blocks are encoded; `+` is the tally of both parts."""

    counts: list = dataclasses.field(default_factory=lambda: [0] * (1 + len(REASONS)))
    tokens: list = dataclasses.field(default_factory=lambda: [0, 0])
    longest: list = dataclasses.field(default_factory=lambda: [0, 0])

    @classmethod
    def of(cls, block):
        """The tally of one `Block`."""
        lengths = block.lengths
        return cls(
            block.faults.tolist(),
            lengths.sum(axis=0).tolist(),
            lengths.max(axis=0, initial=0).tolist(),
        )

    def __add__(self, other):
        return Tally(
            np.add(self.counts, other.counts).tolist(),
            np.add(self.tokens, other.tokens).tolist(),
            np.maximum(self.longest, other.longest).tolist(),
        )

    def report(self):
        """Returns the `FilterReport`."""
        return FilterReport(self.counts[0], dict(zip(REASONS, self.counts[1:], strict=True)))

    def described(self, names):
        """Returns what stands in the report of a split with shards of these names."""
        return {
            **self.report().as_dict(),
            "shards": names,
            "source_tokens": self.tokens[0],
            "target_tokens": self.tokens[1],
            "longest_source": self.longest[0],
            "longest_target": self.longest[1],
        }


def shard_bytes(piece):
    """Returns what `piece`, [lengths, source ids, target ids], adds to the shard's three files."""
    return [np.asarray(array, "<i4").tobytes() for array in piece]
