"""Writing token shards: block by block, in bounded memory, on all cores, and on after a kill."""

import dataclasses
import json
import os
import shutil

from absl import logging

from t2t_keras.data.files import write_file
from t2t_keras.data.shard_blocks import (
    ENDINGS,
    BlockEncoder,
    Blocks,
    Tally,
    complete,
    shard_bytes,
    shard_names,
    unfinished_folder,
)

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
    encoder = BlockEncoder(tokenizer, filters, target_tokenizer)
    path = os.path.join(directory, split)
    return write_blocks(Blocks(corpus.examples(split)), encoder, path, shards, progress)


def write_blocks(blocks, encoder, path, shards=None, progress=None):
    """Does what `write_shards` does for the `Blocks` of a split with a `BlockEncoder`.

    Args:
        blocks: `Blocks`.
        encoder: `BlockEncoder`.
        path: the split's folder.
        shards, progress: as `write_shards` takes them.

    Returns:
        A `FilterReport`.

    Raises:
        InputError: if no pair is left.
    """
    shards = shards or blocks.default_shards()
    names = shard_names(shards)
    unfinished = _Unfinished(path, names, blocks.fingerprint(encoder, shards))
    tally = unfinished.tally
    for number, block in blocks.encode(encoder, first=unfinished.blocks):
        tally += Tally.of(block)
        for shard, piece in block.pieces(number, shards):
            unfinished.append(shard, piece)
        if (number + 1) % _BLOCKS_A_JOURNAL == 0:
            unfinished.keep_journal(number + 1, tally)
        if progress:
            progress(sum(tally.counts))
    unfinished.remove_journal()
    return complete(path, names, tally)


class _Unfinished:
    """The hidden folder of a split in the making.

    Attributes:
        blocks: how many blocks an earlier call left in it.
        tally: what was counted of them.
    """

    def __init__(self, path, names, fingerprint):
        self._names = names
        self._folder = unfinished_folder(path)
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
        for ending, content in zip(ENDINGS, shard_bytes(piece), strict=True):
            with open(os.path.join(self._folder, self._names[shard] + ending), "ab") as file:
                file.write(content)

    def keep_journal(self, blocks, tally):
        sizes = {name: os.path.getsize(os.path.join(self._folder, name)) for name in self._files()}
        journal = {
            "fingerprint": self._fingerprint,
            "blocks": blocks,
            "tally": dataclasses.asdict(tally),
            "sizes": sizes,
        }
        write_file(os.path.join(self._folder, _JOURNAL), json.dumps(journal).encode())

    def remove_journal(self):
        if os.path.exists(os.path.join(self._folder, _JOURNAL)):
            os.remove(os.path.join(self._folder, _JOURNAL))

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
        return [name + ending for name in self._names for ending in ENDINGS]
