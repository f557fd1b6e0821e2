"""Writing token shards: block by block, in bounded memory, on all cores, and on after a kill.

A block is `PAIRS_AT_A_TIME` pairs of the corpus in a row. Which pairs of a block go to which shard
depends on the block's number alone, so that a call that goes on behind another one's blocks comes
to the same bytes.
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

PAIRS_AT_A_TIME = 8192

_ENDINGS = (".lengths", ".source", ".target")
_BLOCKS_A_JOURNAL = 16
_JOURNAL = "journal.json"


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

    The split's folder appears when it is complete. Until then its parts lie in a hidden folder
    beside it, from which the same call goes on after a kill.

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
    blocks = Blocks(corpus, split, tokenizer, filters, target_tokenizer)
    shards = shards or blocks.default_shards()
    path = os.path.join(directory, split)
    unfinished = _Unfinished(path, shard_names(shards), blocks.fingerprint(shards))
    tally = unfinished.tally
    for number, block in blocks.encode(first=unfinished.blocks):
        tally.add(block)
        for shard, piece in block.pieces(number, shards):
            unfinished.append(shard, piece)
        if (number + 1) % _BLOCKS_A_JOURNAL == 0:
            unfinished.keep_journal(number + 1)
        if progress:
            progress(sum(tally.counts))
    return unfinished.finish(split)


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

    def pieces(self, number, shards):
        """Yields (shard, [lengths, source ids, target ids]) of block `number`: an even share for
        every shard, the larger ones in turn.
        """
        bounds = np.linspace(0, len(self.lengths), shards + 1).astype(int)
        for place, (first, last) in enumerate(itertools.pairwise(bounds)):
            sides = [ids[at[first] : at[last]] for ids, at in (self.source, self.target)]
            yield (place - number) % shards, [self.lengths[first:last], *sides]


class Blocks:
    """The blocks of a split, to be encoded.

    Args:
        corpus, split, tokenizer, filters, target_tokenizer: as `write_shards` takes them.
    """

    def __init__(self, corpus, split, tokenizer, filters=None, target_tokenizer=None):
        self._examples = corpus.examples(split)
        self._filters = filters or Filters()
        self._tokenizers = {"source": tokenizer, "target": target_tokenizer or tokenizer}

    def __len__(self):
        return math.ceil(int(self._examples.cardinality()) / PAIRS_AT_A_TIME)

    def default_shards(self):
        """Returns how many shards of about `PAIRS_PER_SHARD` pairs there are."""
        return max(1, math.ceil(int(self._examples.cardinality()) / PAIRS_PER_SHARD))

    def encode(self, first=0, count=-1):
        """Yields (number, `Block`) of `count` blocks from `first` on; -1: of all the rest."""
        blocks = self._examples.skip(first * PAIRS_AT_A_TIME).batch(PAIRS_AT_A_TIME).take(count)
        encoded = blocks.map(self._encode, num_parallel_calls=PARALLEL_CALLS).prefetch(2)
        for number, (faults, window) in enumerate(steady(encoded), start=first):
            yield (
                number,
                Block(
                    faults.numpy(),
                    window.lengths.numpy(),
                    (window.source_values.numpy(), window.source_splits.numpy()),
                    (window.target_values.numpy(), window.target_splits.numpy()),
                ),
            )

    def fingerprint(self, shards):
        """Returns a str that another corpus, tokenizer or filter would hardly have."""
        digest = hashlib.sha256(repr((shards, len(self), self._filters)).encode())
        for _, block in self.encode(count=1):
            for array in (block.faults, *block.source, *block.target):
                digest.update(array.tobytes())
        return digest.hexdigest()

    def _encode(self, lines):
        sides = [
            encode_with_end(lines[side], tokenizer) for side, tokenizer in self._tokenizers.items()
        ]
        faults = self._filters.faults(lines["source"], lines["target"], *sides)
        good = [tf.ragged.boolean_mask(side, faults == 0) for side in sides]
        return tf.math.bincount(faults, minlength=1 + len(REASONS)), Window.of(*good)


@dataclasses.dataclass
class Tally:
    """What is counted of a split while its blocks are encoded."""

    counts: list = dataclasses.field(default_factory=lambda: [0] * (1 + len(REASONS)))
    tokens: list = dataclasses.field(default_factory=lambda: [0, 0])
    longest: list = dataclasses.field(default_factory=lambda: [0, 0])

    def add(self, block):
        """Counts a `Block`."""
        lengths = block.lengths
        self.counts = np.add(self.counts, block.faults).tolist()
        self.tokens = np.add(self.tokens, lengths.sum(axis=0)).tolist()
        self.longest = np.maximum(self.longest, lengths.max(axis=0, initial=0)).tolist()

    def report(self):
        """Returns the `FilterReport`."""
        return FilterReport(self.counts[0], dict(zip(REASONS, self.counts[1:], strict=True)))

    def described(self, names):
        """Returns what stands in the report of a split with shards of these names.

        Raises:
            InputError: if no pair is left.
        """
        report = self.report()
        if not report.kept:
            raise InputError(
                f"no pair is left ({report}); check the corpus and the limits of its filters"
            )
        return {
            **report.as_dict(),
            "shards": names,
            "source_tokens": self.tokens[0],
            "target_tokens": self.tokens[1],
            "longest_source": self.longest[0],
            "longest_target": self.longest[1],
        }


def shard_bytes(piece):
    """Returns what `piece`, [lengths, source ids, target ids], adds to the shard's three files."""
    return [np.asarray(array, "<i4").tobytes() for array in piece]


class _Unfinished:
    """The hidden folder of a split in the making.

    Attributes:
        blocks: how many blocks an earlier call left in it.
        tally: what was counted of them.
    """

    def __init__(self, path, names, fingerprint):
        self._path, self._names = path, names
        self._folder = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.unfinished")
        self._fingerprint = fingerprint
        journal = self._journal()
        if journal is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.makedirs(self._folder)
            journal = {"blocks": 0, "tally": {}, "sizes": {}}
        else:
            logging.info("%s: going on behind %d blocks", path, journal["blocks"])
        self.blocks = journal["blocks"]
        self.tally = Tally(**journal["tally"])
        for name in self._files():  # a shard may stay empty
            with open(os.path.join(self._folder, name), "ab") as file:
                file.truncate(journal["sizes"].get(name, 0))

    def append(self, shard, piece):
        for ending, content in zip(_ENDINGS, shard_bytes(piece), strict=True):
            with open(os.path.join(self._folder, self._names[shard] + ending), "ab") as file:
                file.write(content)

    def keep_journal(self, blocks):
        sizes = {name: os.path.getsize(os.path.join(self._folder, name)) for name in self._files()}
        journal = {
            "fingerprint": self._fingerprint,
            "blocks": blocks,
            "tally": dataclasses.asdict(self.tally),
            "sizes": sizes,
        }
        write_file(os.path.join(self._folder, _JOURNAL), json.dumps(journal).encode())

    def finish(self, split):
        """Gives the folder its name; returns the `FilterReport`."""
        try:
            described = self.tally.described(self._names)
        except InputError as error:
            shutil.rmtree(self._folder)
            raise InputError(f"split {split!r}, {self._path}: {error}") from error
        write_file(os.path.join(self._folder, REPORT), json.dumps(described, indent=2).encode())
        if os.path.exists(os.path.join(self._folder, _JOURNAL)):
            os.remove(os.path.join(self._folder, _JOURNAL))
        shutil.rmtree(self._path, ignore_errors=True)
        os.replace(self._folder, self._path)
        logging.info("%s: %s", self._path, self.tally.report())
        return self.tally.report()

    def _journal(self):
        try:
            with open(os.path.join(self._folder, _JOURNAL), encoding="utf-8") as file:
                journal = json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        if journal["fingerprint"] != self._fingerprint:
            return None
        # After a crash of the machine a file may be shorter than it was: nothing is filled up.
        whole = all(self._holds(name, size) for name, size in journal["sizes"].items())
        return journal if whole else None

    def _holds(self, name, size):
        path = os.path.join(self._folder, name)
        return os.path.exists(path) and os.path.getsize(path) >= size

    def _files(self):
        return [name + ending for name in self._names for ending in _ENDINGS]
