"""Subword regularization: a text of training is cut into pieces in more than one way.

BPE-dropout (Provilkov et al. 2020) leaves out merges at random; a unigram vocabulary draws from its
own distribution over the ways to cut a text (Kudo 2018). Both are SentencePiece's. In its dropout
a merge once left out is not tried again where the paper would, after another merge nearby, so that
of one rate long words come out in more pieces than in the paper's.
"""

import hashlib
import itertools
import threading

import numpy as np
import tensorflow as tf

from t2t_keras.data.offsets import valid_utf8
from t2t_keras.data.options import steady
from t2t_keras.errors import InputError

KINDS = ("bpe", "unigram")
"""The kinds of vocabulary that can be sampled from."""

# SentencePiece has one random generator for the process.
_generator = threading.Lock()
_SEEDS = 2**32 - 1  # the next number asks SentencePiece for a seed of its own


class SubwordSampler:
    """Stands for a `Tokenizer` where texts are to be cut at random.

    The pieces of a text depend on the seed and on all texts of its batch, so the same call gives
    the same ids in any process, and a text has other pieces in another batch.

    Args:
        tokenizer: `SentencePieceTokenizer`.
        rate: of a BPE vocabulary the share of merges left out, 0: none; of a unigram vocabulary
            α, the exponent on the probabilities of the ways to cut a text, 0: all are alike.
        seed: int.

    Raises:
        InputError: if the vocabulary is of another kind, or the rate is not in [0, 1].

    Example:

    >>> write_shards(Copies(corpus, "train", 8), "train", SubwordSampler(tokenizer, 0.1), directory)
    """

    def __init__(self, tokenizer, rate, seed=0):
        # Imported here: who only uses a vocabulary need not have the package.
        import sentencepiece  # noqa: PLC0415

        require_sampling(tokenizer.kind, rate)
        self.end_id = tokenizer.end_id
        self._rate, self._seed = rate, seed
        self._set_seed = sentencepiece.set_random_generator_seed
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)

    def encode(self, texts):
        """Cuts texts into ids, as `Tokenizer.encode` does; in a graph by way of Python."""
        values, lengths = tf.numpy_function(
            self._sample, [valid_utf8(texts)], [tf.int32, tf.int64], stateful=False
        )
        values, lengths = tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)

    def _sample(self, texts):
        with _generator:
            self._set_seed(self._seed_of(texts))
            rows = self._processor.encode(
                [text.decode() for text in texts],
                enable_sampling=True,
                alpha=self._rate,
                nbest_size=-1,
                num_threads=1,  # each thread begins with the seed
            )
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths.sum()), lengths

    def _seed_of(self, texts):
        digest = hashlib.sha256(str(self._seed).encode())
        for text in texts:
            digest.update(b"\n" + text)
        return int.from_bytes(digest.digest()[:8], "little") % _SEEDS


class Copies:
    """A corpus whose training split stands several times behind itself, each time to be cut anew.

    Every copy begins a pair later than the one before and ends with what it left out: no two
    batches of a `SubwordSampler` then hold the same texts, whatever their size.

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


def require_sampling(kind, rate):
    """Raises InputError if a vocabulary of this kind can't be sampled from at this rate."""
    if kind not in KINDS:
        raise InputError(
            f"a {kind} vocabulary can't be cut at random: choose one of {', '.join(KINDS)}, or "
            "leave the rate of sampling at 0."
        )
    if not 0 <= rate <= 1:
        raise InputError(f"the rate of subword sampling is {rate}: give 0 to 1.")
