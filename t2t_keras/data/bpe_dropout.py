"""BPE-dropout (Provilkov et al. 2020): training texts are segmented in more than one way.

`BpeDropout` replaces the tokenizer of a training split. `RepeatedCorpus` repeats the split, so that
each repetition is segmented differently.
"""

import collections
import functools
import hashlib
import itertools
import random

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import Tokenizer
from t2t_keras.errors import InputError
from t2t_keras.graphs import deterministic
from t2t_keras.types import Corpus, Texts

_WORD = "▁"  # first character of the tokens that begin a word
_MAX_SEGMENTATIONS = 256  # of a word in one batch; further occurrences repeat them in turn


class BpeDropout:
    """A BPE `Tokenizer` that segments texts at random.

    Tokens are merged by the tokenizer's merges, but before each merge every candidate is dropped
    with a fixed probability (algorithm 1 of the paper). The ids of a text depend on the seed and on
    all texts of its batch: the same call gives the same ids in any process, but a text is segmented
    differently in another batch.

    Args:
        tokenizer: of kind `bpe`.
        rate: the probability p, 0 to 1; 0.1 in the paper.

    Raises:
        InputError: if the tokenizer is of another kind or has no byte tokens, or the rate is not
            in [0, 1].

    Example:

    >>> corpus = RepeatedCorpus(corpus, "train", 8)
    >>> write_shards(corpus, "train", BpeDropout(tokenizer, 0.1), directory)
    """

    def __init__(self, tokenizer: Tokenizer, rate: float, seed: int = 0):
        check_bpe_dropout(tokenizer.kind, rate)
        if not tokenizer.has_bytes:
            raise InputError(
                "BPE-dropout needs the 256 byte tokens right behind the special ones: train the "
                "model with --byte_fallback and without symbols of your own, or give bpe_dropout=0."
            )
        self.eos_id = tokenizer.eos_id
        self._tokenizer, self._rate, self._seed = tokenizer, rate, seed
        pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
        self._pieces = [piece.decode() for piece in pieces]
        # Ids are in the order in which their tokens were learned, which is the order of merging.
        reserved = set(tokenizer.placeholder_ids)
        if tokenizer.languages is not None:
            reserved.update(tokenizer.languages.ids.values())
        self._ids = {piece: id_ for id_, piece in enumerate(self._pieces) if id_ not in reserved}
        learned = set(tokenizer.learned_ids())
        self._learned = {piece: id_ for piece, id_ in self._ids.items() if id_ in learned}
        self._begins_word = np.array([piece.startswith(_WORD) for piece in self._pieces])
        self._smallest_parts = functools.lru_cache(1 << 18)(self._smallest_parts)

    def encode(self, texts: Texts) -> tf.RaggedTensor:
        """Encodes texts with random merges, in Python; shapes as for `Tokenizer.encode`."""
        usual = self._tokenizer.encode(texts)
        values, lengths = tf.numpy_function(
            self._sample, [usual.values, usual.row_splits], [tf.int32, tf.int64], stateful=False
        )
        values, lengths = tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)

    def fingerprint(self) -> str:
        """Returns a str: if it is equal, all texts are encoded equally."""
        return repr((self._tokenizer.fingerprint(), self._rate, self._seed))

    def _sample(self, ids, splits):
        """Segments texts again: ids and row splits → ids and row lengths."""
        digest = hashlib.sha256(f"{self._seed} {splits.tolist()}".encode() + ids.tobytes())
        rng = random.Random(digest.digest())
        begins = self._begins_word[ids]
        begins[splits[:-1][splits[:-1] < len(ids)]] = True
        bounds = [*np.flatnonzero(begins).tolist(), len(ids)]
        words = [ids[first:last].tobytes() for first, last in itertools.pairwise(bounds)]
        samples = {
            word: itertools.cycle(
                [self._segment(word, rng) for _ in range(min(count, _MAX_SEGMENTATIONS))]
            )
            for word, count in collections.Counter(words).items()
        }
        segmented = [next(samples[word]) for word in words]
        ends = np.cumsum([0, *map(len, segmented)])
        lengths = np.diff(ends[np.searchsorted(bounds, splits)])
        return np.fromiter(itertools.chain.from_iterable(segmented), np.int32, ends[-1]), lengths

    def _segment(self, word, rng):
        """Returns random ids of a word, given by the bytes of its usual ids."""
        parts = list(self._smallest_parts(word))
        while True:
            best = None
            for place, pair in enumerate(itertools.pairwise(parts)):
                merged = self._learned.get(pair[0] + pair[1])
                if merged is None or (best is not None and merged >= best[0]):
                    continue
                if rng.random() >= self._rate:
                    best = merged, place
            if best is None:
                return [self._ids[part] for part in parts]
            parts[best[1] : best[1] + 2] = [self._pieces[best[0]]]

    def _smallest_parts(self, word):
        """Returns the characters of a word; tokens that were not learned stay whole: bytes."""
        pieces = [self._pieces[id_] for id_ in np.frombuffer(word, np.int32)]
        return tuple(
            part for piece in pieces for part in (piece if piece in self._learned else (piece,))
        )


class RepeatedCorpus:
    """A corpus whose training split, `split`, is repeated; its other splits are unchanged.

    Repetition n begins with pair n and ends with the pairs before it. Batches of any size therefore
    have other texts in each repetition, and `BpeDropout` segments them differently.
    """

    def __init__(self, corpus: Corpus, split: str, repetitions: int):
        self._corpus, self._split, self._repetitions = corpus, split, repetitions

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the pairs of a split."""
        pairs = self._corpus.examples(split)
        if split != self._split:
            return pairs
        count = self._repetitions * int(pairs.cardinality())
        repeated = tf.data.Dataset.range(self._repetitions).flat_map(
            lambda first: pairs.skip(first).concatenate(pairs.take(first))
        )
        return deterministic(repeated.apply(tf.data.experimental.assert_cardinality(count)))


def check_bpe_dropout(kind: str, rate: float) -> None:
    """Raises InputError if a tokenizer of this kind has no merges, or the rate is not in [0, 1]."""
    if kind != "bpe":
        raise InputError(
            f"a {kind} vocabulary has no merges to leave out: choose bpe, or leave the rate of "
            "BPE-dropout at 0."
        )
    if not 0 <= rate <= 1:
        raise InputError(f"the rate of BPE-dropout is {rate}: give 0 to 1.")
