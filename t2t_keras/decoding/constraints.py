"""Constraints on the outputs of a beam search: none, or phrases that must appear.

`Unconstrained` implements an ordinary search and is the protocol of all constraints: a search
asks its constraint for the continuations of each hypothesis, which candidates to select, and which
of them stay live. Start with `PhraseConstraint` for a real constraint.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural
Machine Translation": hypotheses with equally many tokens of the phrases form a bank, and the beams
are distributed over the banks in turn. Hypotheses that contain more of the phrases therefore do not
compete with the others. A sentence without phrases has one bank and an ordinary search.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.hypotheses import NEG_INF, gather_beams

_TOKEN_BONUS = 4.0
"""What a token of a phrase adds to log P where there are more banks than beams.

With four terms from the references of 256 sentences of Multi30k, 4 beams and one small model, BLEU
is 44.4 with 0, 48.0 with 2 and 49.4 with 4.
"""


class Unconstrained:
    """The rules of a search without a constraint; the protocol of constraints.

    A constraint's state is a nest of tensors [batch, ...], since finished sentences leave the
    batch.
    """

    def initial_state(self, beams):
        """Returns the state of hypotheses without a token.

        Args:
            beams: int, hypotheses of each sentence.
        """
        del beams
        return ()

    def top_k(self, logits, k, state):
        """Returns the continuations of each hypothesis that a search considers.

        Args:
            logits: float32 [batch · beams, vocab].
            k: int, number of most likely continuations needed at least.
            state: the constraint's state.

        Returns:
            The result of `ops.top_k_log_softmax` for at least k ids; a logit of -inf marks an
            unused entry. The log normalizer covers all ids.
        """
        del state
        return ops.top_k_log_softmax(logits, k)

    def select(self, log_probabilities, ids, count, state):
        """Returns the candidates among all continuations.

        Args:
            log_probabilities: float32 [batch, beams · k], log P of whole sequences.
            ids: integers [batch, beams · k], their newest tokens.
            count: int, 2 · beams.
            state: the constraint's state.

        Returns:
            log P and index in beams · k of the candidates, [batch, count]. Among the first half,
            those that end become finished hypotheses.
        """
        del ids, state
        return tf.math.top_k(log_probabilities, count)

    def keep(self, log_probabilities, candidates, beams, state):
        """Returns the candidates that stay live.

        Args:
            log_probabilities: float32 [batch, candidates], log P of those that do not end, -inf of
                the others.
            candidates: object with `ids` and `parents`, integers [batch, candidates]: newest
                tokens, and the beams that they continue.
            beams: int.
            state: the constraint's state.

        Returns:
            Their log P and index, [batch, beams], in the order in which a search returns those that
            have no end at its maximum length.
        """
        del candidates, state
        return tf.math.top_k(log_probabilities, beams)

    def advance(self, ids, parents, state):
        """Returns the state of hypotheses with one more token.

        Args:
            ids, parents: integers [batch, hypotheses], newest tokens, and the beams they continue.
            state: the state of the beams.
        """
        del ids, parents
        return state


class Phrases(NamedTuple):
    """Sequences of tokens that the outputs of sentences must contain.

    Attributes:
        ids: int32 [batch, phrases, length], the tokens of each phrase, then 0; phrases and length
            are at least 1. The phrases of a sentence differ from each other.
        counts: int32 [batch, phrases], how often each must appear at least; 0 for one of padding.
    """

    ids: tf.Tensor
    counts: tf.Tensor

    def num_tokens(self):
        """Returns the tokens of all phrases of each sentence, int32 [batch]."""
        lengths = tf.math.count_nonzero(self.ids, axis=2, dtype=tf.int32)
        return tf.reduce_sum(lengths * self.counts, axis=1)

    def joined(self, others):
        """Returns `Phrases` that contain these and the others, which must be different ones."""
        length = tf.maximum(tf.shape(self.ids)[2], tf.shape(others.ids)[2])
        ids = [
            tf.pad(x.ids, [[0, 0], [0, 0], [0, length - tf.shape(x.ids)[2]]])
            for x in (self, others)
        ]
        return Phrases(tf.concat(ids, axis=1), tf.concat([self.counts, others.counts], axis=1))


class _PhraseState(NamedTuple):
    """The phrases of the sentences, and how far each hypothesis has matched them.

    Attributes:
        ids, counts: as in `Phrases`, in `ops.index_dtype`.
        matched: bool [batch, hypotheses, phrases, length], whether the newest tokens of a
            hypothesis are the first tokens of a phrase, up to each length.
        found: `ops.index_dtype` [batch, hypotheses, phrases], how often each phrase has appeared,
            up to its count.
        ended: bool [batch, hypotheses, phrases], whether the newest token completed a missing
            phrase. If the next token makes its last word longer, the phrase is missing again.
    """

    ids: tf.Tensor
    counts: tf.Tensor
    matched: tf.Tensor
    found: tf.Tensor
    ended: tf.Tensor

    @property
    def missing(self):
        """Which phrases must still appear, bool [batch, hypotheses, phrases]."""
        return self.found < self.counts[:, tf.newaxis]

    @property
    def is_complete(self):
        """Which hypotheses have all phrases and may end, bool [batch, hypotheses]."""
        return ~tf.reduce_any(self.missing, axis=2)

    def progress(self):
        """Returns how many first tokens of each missing phrase a hypothesis ends with.

        Returns:
            Integers [batch, hypotheses, phrases], tokens; 0 for phrases that are not missing.
        """
        matched = self.matched & self.missing[..., tf.newaxis]
        places = ops.arange(tf.shape(self.ids)[2]) + 1
        return tf.reduce_max(tf.where(matched, places, 0), axis=3)

    def bank(self, continues_word):
        """Returns how many tokens of its phrases each hypothesis has, integers [batch, hypotheses].

        Of the phrases that have begun only the longest counts, minus phrases that its next token
        would undo. The next token always adds one, since no phrase begins with a token that
        continues a word.

        Args:
            continues_word: function of ids to the flags of `PhraseConstraint`.
        """
        lengths = tf.math.count_nonzero(self.ids, axis=2, dtype=self.ids.dtype)[:, tf.newaxis]
        whole = tf.reduce_sum(self.found * lengths, axis=2)
        ended = tf.reduce_sum(tf.where(self.ended, lengths, 0), axis=2, keepdims=True)
        undone = tf.where(continues_word(self.next_ids()), ended, 0)
        return whole + tf.reduce_max(self.progress() - undone, axis=2)

    def next_ids(self):
        """Returns the next token of each missing phrase, 0 for others, integers like `found`."""
        is_next = ops.arange(tf.shape(self.ids)[2]) == self.progress()[..., tf.newaxis]
        is_next &= self.missing[..., tf.newaxis]
        return tf.reduce_sum(tf.where(is_next, self.ids[:, tf.newaxis], 0), axis=3)


class PhraseConstraint(Unconstrained):
    """Phrases that must appear in the output of each sentence; it ends when all of them have.

    The phrases follow a forced prefix. log P of all tokens is the model's own.

    Args:
        phrases: `Phrases` of the sentences.
        eos_id: int, the token that ends a sequence.
        continues_word: bool [vocab] or None, tokens that would make a phrase's last word longer.
            They cannot begin a phrase and may not follow one, except as the next token of another
            phrase; then the first phrase must appear again.
        reserved: bool [vocab] or None, tokens that appear only as the next token of a missing
            phrase. A phrase of one such token appears exactly as often as its count.
    """

    def __init__(self, phrases, eos_id, continues_word=None, reserved=None):
        self.phrases = phrases
        self.eos_id = eos_id
        self.continues_word = continues_word
        self.reserved = reserved

    def renumbered(self, ids, places):
        """Returns the constraint for a search over a part of the vocabulary, with new token ids.

        Args:
            ids: integers [candidates], the tokens of this part.
            places: int32 [vocab], their new ids; the end keeps its id.
        """
        phrases = self.phrases._replace(ids=tf.gather(places, self.phrases.ids))
        flags = (
            None if flags is None else tf.gather(flags, ids)
            for flags in (self.continues_word, self.reserved)
        )
        return PhraseConstraint(phrases, self.eos_id, *flags)

    def _continues_word(self, ids):
        """Returns which ids continue a word, bool like ids."""
        if self.continues_word is None:
            return tf.zeros_like(ids, tf.bool)
        return tf.gather(self.continues_word, ids)

    def initial_state(self, beams):
        ids, counts = (ops.to_index(part) for part in self.phrases)
        batch, phrases, length = tf.unstack(tf.shape(ids))
        return _PhraseState(
            ids,
            counts,
            matched=tf.zeros([batch, beams, phrases, length], tf.bool),
            found=tf.zeros([batch, beams, phrases], ids.dtype),
            ended=tf.zeros([batch, beams, phrases], tf.bool),
        )

    def top_k(self, logits, k, state):
        # 1. The most likely tokens that are allowed.
        normalizer = ops.top_k_log_softmax(logits, 1)[2]
        top, ids = ops.top_k(tf.where(self._is_banned(logits, state), NEG_INF, logits), k)
        # 2. With them, the next tokens of phrases: the k most likely ones that are not among them.
        next_ids = state.next_ids()  # [batch, beams, phrases]
        next_ids = tf.reshape(next_ids, [-1, tf.shape(next_ids)[2]])
        ids, next_ids = ops.to_index(ids), ops.pad_end(next_ids, k)  # [batch · beams, phrases + k]
        next_logits = tf.gather(logits, next_ids, batch_dims=1)
        allowed_ids = tf.where(top > NEG_INF, ids, -1)
        is_known = (next_ids == 0) | _is_repeated(next_ids) | _is_any_of(next_ids, allowed_ids)
        next_logits, index = tf.math.top_k(tf.where(is_known, NEG_INF, next_logits), k)
        next_ids = tf.gather(next_ids, index, batch_dims=1)
        top, ids = tf.concat([top, next_logits], axis=1), tf.concat([ids, next_ids], axis=1)
        return top, ids, normalizer  # [batch · beams, 2 · k], and [batch · beams, 1]

    def _is_banned(self, logits, state):
        """Returns which tokens may only continue a phrase, bool [batch · beams, vocab]."""
        vocab = tf.shape(logits)[1]
        column = [-1, 1]
        banned = ~tf.reshape(state.is_complete, column) & (tf.range(vocab) == self.eos_id)
        if self.continues_word is not None:
            ended = tf.reduce_any(state.ended, axis=2)
            banned |= tf.reshape(ended, column) & self.continues_word
        if self.reserved is not None:
            banned |= self.reserved
        return banned

    def select(self, log_probabilities, ids, count, state):
        continuations = ids.shape[1] // state.found.shape[1]
        parents = tf.zeros_like(ids) + ops.arange(ids.shape[1]) // continuations
        bank = self.advance(ids, parents, state).bank(self._continues_word)
        bank = tf.where(log_probabilities > NEG_INF, bank, 0)  # [batch, beams · k]
        index = _deal(log_probabilities, bank)[:, :count]
        return tf.gather(log_probabilities, index, batch_dims=1), index

    def keep(self, log_probabilities, candidates, beams, state):
        exists = log_probabilities > NEG_INF
        kept = exists & (tf.cumsum(tf.cast(exists, tf.int32), axis=1) <= beams)
        # Those that may end come first: a search that reaches its maximum length returns them.
        is_complete = self.advance(candidates.ids, candidates.parents, state).is_complete
        log_probabilities, index = tf.math.top_k(
            tf.where(kept, log_probabilities, NEG_INF), log_probabilities.shape[1]
        )
        comes_later = ~tf.gather(is_complete & kept, index, batch_dims=1)
        order = tf.argsort(tf.cast(comes_later, tf.int32), stable=True)[:, :beams]
        return tuple(tf.gather(x, order, batch_dims=1) for x in (log_probabilities, index))

    def advance(self, ids, parents, state):
        matched, found, ended = gather_beams((state.matched, state.found, state.ended), parents)
        undone = ended & self._continues_word(ids)[..., tf.newaxis]
        found -= tf.cast(undone, found.dtype)
        before = tf.concat([tf.ones_like(matched[..., :1]), matched[..., :-1]], axis=3)
        phrases = state.ids[:, tf.newaxis]  # [batch, 1, phrases, length]
        matched = before & (phrases == ids[..., tf.newaxis, tf.newaxis]) & (phrases != 0)
        is_last = (phrases != 0) & (ops.pad_end(phrases)[..., 1:] == 0)
        ended = tf.reduce_any(matched & is_last, axis=3)  # [batch, hypotheses, phrases]
        counted = ended & (found < state.counts[:, tf.newaxis])
        return state._replace(
            matched=matched & ~ended[..., tf.newaxis],  # a phrase does not overlap itself
            found=found + tf.cast(counted, found.dtype),
            ended=counted,
        )


def _is_repeated(ids):
    """Returns which ids, integers [rows, ids], occur earlier in their row, bool [rows, ids]."""
    places = tf.range(tf.shape(ids)[1])
    is_before = places < places[:, tf.newaxis]
    return tf.reduce_any((ids[:, :, tf.newaxis] == ids[:, tf.newaxis]) & is_before, axis=2)


def _is_any_of(ids, others):
    """Returns which ids, integers [rows, ids], are among others, [rows, others]: bool."""
    return tf.reduce_any(ids[:, :, tf.newaxis] == others[:, tf.newaxis], axis=2)


def _deal(log_probabilities, bank):
    """Returns the order in which candidates get beams, integers [batch, candidates].

    First the best candidate of each bank, then the second best of each, and so on. Within a round
    the bank with most tokens of the phrases comes first, so that some hypothesis always advances;
    the others follow by log P, to which tokens of phrases add `_TOKEN_BONUS`. Within a bank the
    order is by log P; ties keep the given order.

    Args:
        log_probabilities: float32 [batch, candidates].
        bank: integers [batch, candidates].
    """
    order = tf.math.top_k(log_probabilities, log_probabilities.shape[1]).indices
    bank = tf.gather(bank, order, batch_dims=1)
    by_bank = tf.argsort(bank, stable=True)
    order, bank = (tf.gather(x, by_bank, batch_dims=1) for x in (order, bank))
    rank = tf.range(log_probabilities.shape[1]) - tf.searchsorted(bank, bank)  # within its bank
    # Within a round the fullest bank comes first.
    round_ = 2 * rank + tf.cast(bank < bank[:, -1:], tf.int32)
    values = tf.gather(log_probabilities, order, batch_dims=1)
    values += _TOKEN_BONUS * tf.cast(bank, tf.float32)
    by_value = tf.argsort(-values, stable=True)
    order, round_ = (tf.gather(x, by_value, batch_dims=1) for x in (order, round_))
    return tf.gather(order, tf.argsort(round_, stable=True), batch_dims=1)
