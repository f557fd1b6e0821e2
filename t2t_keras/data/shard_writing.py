"""Writing token shards: text pairs are filtered, encoded and distributed over shards.

The corpus is processed in blocks of `PAIRS_PER_BLOCK` consecutive pairs, in bounded memory and on
all cores. The shard of a pair depends only on its block's number and its position in the block, so
that `write_shards` and the Apache Beam pipeline of `apache_beam_shards.py` write the same bytes.

Start with `write_shards`. A killed preparation resumes after its last journal entry.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.base_tokenizer import encode_with_eos, is_blank
from t2t_keras.data.files import (
    crc32_of,
    local_path,
    make_folder,
    read_json,
    replace,
    sync,
    write_json,
)
from t2t_keras.data.shards import FILE_ENDINGS, PAIRS_PER_SHARD, REPORT, RaggedPairs
from t2t_keras.errors import InputError
from t2t_keras.graphs import PARALLEL_CALLS, deterministic, no_autograph
from t2t_keras.types import Corpus, Encoder, StrPath

PAIRS_PER_BLOCK = 8192
REASONS = ("bad UTF-8", "empty side", "over-length", "length ratio")
"""Why a pair is dropped; a pair to which several apply is counted under the first of them."""

_BLOCKS_PER_JOURNAL_ENTRY = 16
_JOURNAL = "journal.json"
_OWN_FILE = re.compile(  # a temporary name is of a process that was killed
    r"(\d+-of-\d+\.(lengths|source|target)|(report|journal|sum)\.json)(\.\d+(\.t2t)?\.tmp)?"
)


def write_shards(
    corpus: Corpus,
    split: str,
    tokenizer: Encoder,
    directory: StrPath,
    filters: Filters | None = None,
    shards: int | None = None,
    progress: Callable[[int], object] | None = None,
    target_tokenizer: Encoder | None = None,
) -> FilterReport:
    """Tokenizes a split of a corpus and writes it as token shards.

    The split's folder appears when it is complete. Until then its files are in a hidden folder
    next to it, from which the same call resumes after a kill.

    Args:
        corpus: see `corpora.py`.
        tokenizer: every source and target gets its end-of-sequence id.
        directory: folder in which the split's folder is made; an older one is replaced.
        filters: by default without limits.
        shards: number of shards; by default as many as hold about `PAIRS_PER_SHARD` pairs each.
        progress: function that is called with the number of pairs read so far.
        target_tokenizer: tokenizer of the targets if their vocabulary differs, such as
            `LabelEncoder`; None: `tokenizer`.

    Returns:
        The `FilterReport` of the split.

    Raises:
        InputError: if no pair is left, or the split's folder holds other files than token shards.
    """
    encoder = BlockEncoder(tokenizer, filters, target_tokenizer)
    return write_examples(corpus.examples(split), encoder, directory, split, shards, progress)


def write_examples(examples, encoder, directory, split, shards=None, progress=None):
    """Does the work of `write_shards`, with a `BlockEncoder` and a dataset of known cardinality."""
    path = os.path.realpath(os.path.join(local_path(directory), split))
    names = shard_names(examples, shards)
    settings = repr((len(names), int(examples.cardinality()), encoder.fingerprint()))
    writer = _ResumableWriter(path, names, hashlib.sha256(settings.encode()).hexdigest())
    writer.resume(examples)
    for counts, pairs, digest in _encode_blocks(examples, encoder, first=writer.blocks):
        writer.append(counts, pairs, digest)
        if progress:
            progress(sum(writer.report.counts))
    writer.finish()
    return publish_split(path, names, writer.report, writer.checksums)


@dataclasses.dataclass(frozen=True)
class Filters:
    """Limits of the sentence pairs that are kept.

    Pairs that are not valid UTF-8 or have a blank side, see `is_blank`, are always dropped.
    """

    max_length: int | None = None  # tokens of a side, end of sequence included; None: no limit
    max_ratio: float | None = None  # of the two sides' tokens without end of sequence

    def reject_reasons(
        self,
        source_texts: tf.Tensor,
        target_texts: tf.Tensor,
        source_ids: tf.RaggedTensor,
        target_ids: tf.RaggedTensor,
    ) -> tf.Tensor:
        """Finds the first reason for which each pair is dropped.

        Args:
            source_texts, target_texts: string `[batch]`.
            source_ids, target_ids: int32 `[batch, (length)]`, with end of sequence.

        Returns:
            int32 `[batch]`: 0 for a pair that is kept, else 1 + the index in `REASONS`.
        """
        lengths = tf.stack([source_ids.row_lengths(), target_ids.row_lengths()])  # [2, batch]
        longest, shortest = tf.reduce_max(lengths, axis=0), tf.reduce_min(lengths, axis=0)
        none = tf.zeros_like(longest, tf.bool)
        over_length = none if self.max_length is None else longest > self.max_length
        uneven = none
        if self.max_ratio is not None:
            longer, shorter = (tf.cast(x - 1, tf.float32) for x in (longest, shortest))
            uneven = longer > self.max_ratio * shorter
        bad = _is_bad(source_texts) | _is_bad(target_texts)
        empty = is_blank(source_texts) | is_blank(target_texts) | (shortest <= 1)
        reasons = tf.stack([none, bad, empty, over_length, uneven])  # [1 + reasons, batch]
        return tf.argmax(tf.cast(reasons, tf.int32), axis=0, output_type=tf.int32)


def _is_bad(texts):
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore") != texts


@dataclasses.dataclass(frozen=True)
class FilterReport:
    """Counts of a split or of a part of it; `+` adds the counts of two parts."""

    # pairs kept, and dropped for each of `REASONS`
    counts: Sequence[int] = (0,) * (1 + len(REASONS))
    tokens: Sequence[int] = (0, 0)  # of all sources and of all targets that are kept
    longest: Sequence[int] = (0, 0)  # tokens of the longest source and of the longest target

    @classmethod
    def of_block(cls, counts: np.ndarray, pairs: RaggedPairs) -> FilterReport:
        """Makes the report of a `BlockEncoder`'s result, given as NumPy arrays."""
        lengths = _lengths(pairs)
        return cls(
            counts.tolist(), lengths.sum(axis=0).tolist(), lengths.max(axis=0, initial=0).tolist()
        )

    @property
    def kept(self) -> int:
        """The number of pairs that are kept."""
        return self.counts[0]

    @property
    def dropped(self) -> dict[str, int]:
        """The number of pairs that are dropped for each of `REASONS`."""
        return dict(zip(REASONS, self.counts[1:], strict=True))

    def __add__(self, other):
        return FilterReport(
            np.add(self.counts, other.counts).tolist(),
            np.add(self.tokens, other.tokens).tolist(),
            np.maximum(self.longest, other.longest).tolist(),
        )

    def __str__(self):
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return f"{self.kept:,} pairs kept; dropped: {dropped}"


class BlockEncoder:
    """Encodes pairs of text in a graph, and drops those that the filters reject."""

    def __init__(self, tokenizer, filters=None, target_tokenizer=None):
        self._filters = filters or Filters()
        self._tokenizers = {"source": tokenizer, "target": target_tokenizer or tokenizer}

    def __call__(self, texts):
        """Encodes `{"source", "target"}`, string `[pairs]` each.

        Returns:
            int32 `[1 + reasons]`, as `FilterReport.counts`, and the `RaggedPairs` that are kept.
        """
        sides = [
            encode_with_eos(texts[side], tokenizer) for side, tokenizer in self._tokenizers.items()
        ]
        reasons = self._filters.reject_reasons(texts["source"], texts["target"], *sides)
        kept = [tf.ragged.boolean_mask(side, reasons == 0) for side in sides]
        return tf.math.bincount(reasons, minlength=1 + len(REASONS)), RaggedPairs.from_ragged(*kept)

    def fingerprint(self):
        """Returns a str: if it is equal, all texts are encoded and filtered equally."""
        tokenizers = [tokenizer.fingerprint() for tokenizer in self._tokenizers.values()]
        return repr((self._filters, *tokenizers))


def text_blocks(examples, first=0):
    """Returns the blocks of a split from a number on, `{"source", "target"}` string `[pairs]`."""
    return deterministic(examples.skip(first * PAIRS_PER_BLOCK).batch(PAIRS_PER_BLOCK))


def _encode_blocks(examples, encoder, first):
    """Yields for each block the encoder's result as NumPy arrays, and the digest of its texts."""

    @no_autograph
    def encode(texts):
        return *encoder(texts), _serialize(texts)

    blocks = text_blocks(examples, first).map(encode, num_parallel_calls=PARALLEL_CALLS)
    for counts, pairs, texts in deterministic(blocks.prefetch(2)).as_numpy_iterator():
        yield counts, pairs, hashlib.sha256(texts).digest()


def _digests(examples, count):
    """Yields the digests of the texts of the first `count` blocks, as `_encode_blocks` does."""
    blocks = text_blocks(examples).take(count).map(_serialize)
    for texts in deterministic(blocks.prefetch(2)).as_numpy_iterator():
        yield hashlib.sha256(texts).digest()


@no_autograph
def _serialize(texts):
    """Returns a string scalar that is different for blocks with different texts."""
    return tf.io.serialize_tensor(tf.stack([texts["source"], texts["target"]]))


def split_by_shard(pairs, block, shards):
    """Distributes the pairs of a block, `RaggedPairs` of NumPy arrays, evenly over all shards.

    The block's number decides which shards get one pair more.

    Yields:
        (shard, list of the bytes that are appended to each of its `FILE_ENDINGS`).
    """
    lengths = _lengths(pairs)
    bounds = np.linspace(0, len(lengths), shards + 1).astype(int)
    for part, (first, last) in enumerate(itertools.pairwise(bounds)):
        source = pairs.source_values[pairs.source_splits[first] : pairs.source_splits[last]]
        target = pairs.target_values[pairs.target_splits[first] : pairs.target_splits[last]]
        arrays = lengths[first:last], source, target
        yield (part - block) % shards, [np.asarray(array, "<i4").tobytes() for array in arrays]


def _lengths(pairs):
    """Returns the lengths of `RaggedPairs` of NumPy arrays, int64 [pairs, 2]."""
    return np.stack([np.diff(pairs.source_splits), np.diff(pairs.target_splits)], axis=1)


def shard_names(examples, shards=None):
    """Returns the names of a split's shards, without endings; `write_shards` chooses how many."""
    shards = shards or max(1, math.ceil(int(examples.cardinality()) / PAIRS_PER_SHARD))
    return [f"{shard:05d}-of-{shards:05d}" for shard in range(shards)]


def staging_dir(path):
    """Returns the hidden folder of an unfinished split; raises InputError for a user's files."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path} is a file: give a folder for token shards.")
    names = os.listdir(path) if os.path.isdir(path) else []
    others = [name for name in names if not (_OWN_FILE.fullmatch(name) or name.startswith("."))]
    if others or (names and REPORT not in names):
        raise InputError(f"{path} holds other files than token shards: give another folder.")
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.unfinished")


def publish_split(path, names, report, checksums):
    """Writes the report into a split's staging folder and gives the folder its final name.

    Args:
        path: the split's folder; an older one is replaced.
        names: names of its shards, whose files are synced to the disk.
        report: `FilterReport` of all blocks, which is returned.
        checksums: {name of file: CRC-32}.

    Raises:
        InputError: if no pair is left.
    """
    folder = staging_dir(path)
    if not report.kept:
        shutil.rmtree(folder)
        raise InputError(
            f"split {os.path.basename(path)!r}, {path}: no pair is left ({report}); check the "
            "corpus and the limits of its filters"
        )
    content = {
        "kept": report.kept,
        "dropped": report.dropped,
        "shards": names,
        "source_tokens": report.tokens[0],
        "target_tokens": report.tokens[1],
        "longest_source": report.longest[0],
        "longest_target": report.longest[1],
        "crc32": checksums,
    }
    write_json(os.path.join(folder, REPORT), content)
    shutil.rmtree(path, ignore_errors=True)
    replace(folder, path)
    logging.info("%s: %s", path, report)
    return report


class _ResumableWriter:
    """Appends blocks to the shards of a split in its staging folder, and keeps a journal of them.

    Args:
        settings: fingerprint of everything that determines the files, except the texts.

    Attributes:
        blocks, report: the number of blocks that are written, and their `FilterReport`.
        checksums: {name of file: CRC-32 of what was written to it}.
    """

    def __init__(self, path, names, settings):
        self._folder, self._names, self._settings = staging_dir(path), names, settings
        self._journal = os.path.join(self._folder, _JOURNAL)
        self._files = [name + ending for name in names for ending in FILE_ENDINGS]
        self.blocks, self.report, self._texts = 0, FilterReport(), ""
        self.checksums = dict.fromkeys(self._files, 0)

    def resume(self, examples):
        """Resumes from the files of an earlier call, or makes an empty staging folder.

        An earlier call's files are used only if its settings were the same, if they are unchanged
        since, and if `examples` still begins with the texts of all blocks that it wrote.
        """
        sizes = {}
        if journal := self._usable_journal(examples):
            self.blocks, self._texts, sizes = (journal[k] for k in ("blocks", "texts", "sizes"))
            self.report, self.checksums = FilterReport(**journal["report"]), journal["crc32"]
            logging.info("%s: resuming behind %d blocks", self._folder, self.blocks)
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
            make_folder(self._folder)
        for name in self._files:  # a shard may stay empty
            with open(os.path.join(self._folder, name), "ab") as file:
                file.truncate(sizes.get(name, 0))

    def append(self, counts, pairs, digest):
        """Appends the next block, and regularly a journal entry."""
        for shard, contents in split_by_shard(pairs, self.blocks, len(self._names)):
            for ending, content in zip(FILE_ENDINGS, contents, strict=True):
                name = self._names[shard] + ending
                with open(os.path.join(self._folder, name), "ab") as file:
                    file.write(content)
                self.checksums[name] = zlib.crc32(content, self.checksums[name])
        self.blocks += 1
        self.report += FilterReport.of_block(counts, pairs)
        self._texts = _chain(self._texts, digest)
        if self.blocks % _BLOCKS_PER_JOURNAL_ENTRY == 0:
            journal = {
                "settings": self._settings,
                "blocks": self.blocks,
                "texts": self._texts,
                "report": dataclasses.asdict(self.report),
                "crc32": self.checksums,
                "sizes": self._sync(),  # before the journal reaches the disk
            }
            write_json(self._journal, journal)

    def finish(self):
        """Syncs all files to the disk and removes the journal."""
        self._sync()
        if os.path.exists(self._journal):
            os.remove(self._journal)

    def _sync(self):
        """Syncs all files to the disk and returns their sizes, a dict."""
        paths = {name: os.path.join(self._folder, name) for name in self._files}
        for path in paths.values():
            sync(path)
        return {name: os.path.getsize(path) for name, path in paths.items()}

    def _usable_journal(self, examples):
        """Returns the journal of an earlier call; None if there is none, or it does not fit."""
        if not os.path.exists(self._journal):
            return None
        try:
            journal = read_json(self._journal)
            fits = journal["settings"] == self._settings and all(
                crc32_of(os.path.join(self._folder, name), journal["sizes"][name])
                == journal["crc32"][name]
                for name in self._files
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            fits = False  # damaged, or of another version
        if fits:
            texts = functools.reduce(_chain, _digests(examples, journal["blocks"]), "")
            if texts == journal["texts"]:
                return journal
        logging.warning(
            "%s: texts, settings or files have changed since, or are damaged: starting over",
            self._folder,
        )
        return None


def _chain(texts, digest):
    """Returns the hexadecimal digest of a sequence of blocks that is extended by one block."""
    return hashlib.sha256(texts.encode() + digest).hexdigest()
