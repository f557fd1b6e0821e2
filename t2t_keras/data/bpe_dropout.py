"""BPE-dropout (Provilkov et al. 2020): texts of training are cut in more than one way."""

import collections
import functools
import hashlib
import itertools
import random
import re

import numpy as np
import tensorflow as tf

from t2t_keras.data.options import steady
from t2t_keras.errors import InputError

_WORD = "▁"  # with which the pieces begin that begin a word
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_MOST_CUTS = 256  # of a word in one batch; its occurrences beyond take turns


class BpeDropout:
    """Stands for a BPE `Tokenizer` where texts are to be cut at random.

    Pieces are merged as in the tokenizer, but before each merge every possible one is left out with
    a fixed probability, until none is left. The pieces of a text depend on the seed and on all
    texts of its batch, so the same call gives the same ids in any process, and a text has other
    pieces in another batch.

    Args:
        tokenizer: `Tokenizer` of kind `bpe`.
        rate: the probability p, 0 to 1; 0.1 in the paper.
        seed: int.

    Raises:
        InputError: if the vocabulary is of another kind, or the rate is not in [0, 1].

    Example:

    >>> write_shards(Copies(corpus, "train", 8), "train", BpeDropout(tokenizer, 0.1), directory)
    """

    def __init__(self, tokenizer, rate, seed=0):
        require_dropout(tokenizer.kind, rate)
        self.end_id = tokenizer.end_id
        self._tokenizer, self._rate, self._seed = tokenizer, rate, seed
        pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
        self._pieces = [piece.decode() for piece in pieces]
        # Pieces are numbered in the order in which they were learned, which is that of merging.
        self._ids = {piece: id_ for id_, piece in enumerate(self._pieces)}
        self._begins_word = np.array([piece.startswith(_WORD) for piece in self._pieces])
        self._smallest_parts = functools.lru_cache(1 << 18)(self._smallest_parts)

    def encode(self, texts):
        """Cuts texts into ids, as `Tokenizer.encode` does; in a graph by way of Python."""
        whole = self._tokenizer.encode(texts)
        values, lengths = tf.numpy_function(
            self._cut_anew, [whole.values, whole.row_splits], [tf.int32, tf.int64], stateful=False
        )
        values, lengths = tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)

    def _cut_anew(self, ids, splits):
        digest = hashlib.sha256(f"{self._seed} {splits.tolist()}".encode() + ids.tobytes())
        chance = random.Random(digest.digest())
        begins = self._begins_word[ids]
        begins[splits[:-1][splits[:-1] < len(ids)]] = True
        bounds = [*np.flatnonzero(begins).tolist(), len(ids)]
        words = [ids[first:last].tobytes() for first, last in itertools.pairwise(bounds)]
        cuts = {
            word: itertools.cycle([self._cut(word, chance) for _ in range(min(count, _MOST_CUTS))])
            for word, count in collections.Counter(words).items()
        }
        anew = [next(cuts[word]) for word in words]
        ends = np.cumsum([0, *map(len, anew)])  # of the new words
        lengths = np.diff(ends[np.searchsorted(bounds, splits)])
        return np.fromiter(itertools.chain.from_iterable(anew), np.int32, ends[-1]), lengths

    def _cut(self, word, chance):
        """Returns the ids of a word, given by the bytes of those it usually has."""
        parts = list(self._smallest_parts(word))
        while True:
            best = None
            for place, pair in enumerate(itertools.pairwise(parts)):
                merged = self._ids.get(pair[0] + pair[1])
                if merged is None or (best is not None and merged >= best[0]):
                    continue
                if chance.random() >= self._rate:
                    best = merged, place
            if best is None:
                return [self._ids[part] for part in parts]
            parts[best[1] : best[1] + 2] = [self._pieces[best[0]]]

    def _smallest_parts(self, word):
        """Returns the characters of a word; those that the vocabulary lacks are bytes."""
        pieces = [self._pieces[id_] for id_ in np.frombuffer(word, np.int32)]
        return tuple(
            part for piece in pieces for part in ((piece,) if _BYTE.fullmatch(piece) else piece)
        )


class Copies:
    """A corpus whose training split stands several times behind itself, each time to be cut anew.

    Every copy begins a pair later than the one before and ends with what it left out: no two
    batches of a `BpeDropout` then hold the same texts, whatever their size.

    Args:
        corpus: anything with `examples(split)`, where all other splits come from as they are.
        split: the training split's name.
        copies: int, 1 or more.
    """

    def __init__(self, corpus, split, copies):
        self._corpus, self._split, self._copies = corpus, split, copies

    def examples(self, split):
        """The pairs of a split, as the corpus itself gives them."""
        pairs = self._corpus.examples(split)
        if split != self._split:
            return pairs
        count = self._copies * int(pairs.cardinality())
        copies = tf.data.Dataset.range(self._copies).flat_map(
            lambda copy: pairs.skip(copy).concatenate(pairs.take(copy))
        )
        return steady(copies.apply(tf.data.experimental.assert_cardinality(count)))


def require_dropout(kind, rate):
    """Raises InputError if a vocabulary of this kind has no merges to leave out at this rate."""
    if kind != "bpe":
        raise InputError(
            f"a {kind} vocabulary has no merges to leave out: choose bpe, or leave the rate of "
            "BPE-dropout at 0."
        )
    if not 0 <= rate <= 1:
        raise InputError(f"the rate of BPE-dropout is {rate}: give 0 to 1.")
