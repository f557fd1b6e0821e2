"""Constraints on the outputs of a beam search: none, or tokens that must appear.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural
Machine Translation": hypotheses with equally many of their tokens form a bank, and the beams are
distributed over the banks in turn. Hypotheses that contain more of the tokens therefore do not
compete with the others. A sentence without such tokens has one bank and an ordinary search.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.hypotheses import NEG_INF, gather_beams
from t2t_keras.types import Array

_TOKEN_BONUS = 4.0
"""What a required token adds to log P where there are more banks than beams.

It was chosen for a search that required phrases: with four from the references of 256 sentences of
Multi30k, 4 beams and one small model, BLEU was 44.4 with 0, 48.0 with 2 and 49.4 with 4.
"""


class Constraint:
    """What may continue the hypotheses of a beam search; this base forbids nothing.

    A search asks it for the continuations of each hypothesis, the candidates among them, and those
    that stay live: here the most likely ones. Its state is a nest of tensors [batch, ...].
    """

    def initial_state(self, beams):
        """Returns the state of `beams` hypotheses, an int, without a token."""
        del beams
        return ()

    def top_k(self, logits, k, state):
        """Returns `ops.top_k_log_softmax` of the continuations that a search considers.

        They are at least k; a logit of -inf marks an unused entry; the log normalizer covers all
        ids. Logits are float32 [batch · beams, vocab].
        """
        del state
        return ops.top_k_log_softmax(logits, k)

    def select(self, log_probabilities, ids, count, state):
        """Returns log P and index in beams · k of the candidates, [batch, count].

        Among the first half, those that end become finished hypotheses.

        log P, float32 [batch, beams · k], is of whole sequences, ids are their newest tokens, and
        the count is 2 · beams.
        """
        del ids, state
        return tf.math.top_k(log_probabilities, count)

    def keep(self, log_probabilities, candidates, beams, state):
        """Returns log P and index of the candidates that stay live, [batch, beams].

        A search returns them in this order if they have no end at its maximum length.

        log P, float32 [batch, candidates], is -inf for those that end. `candidates` have `ids` and
        `parents`, integers [batch, candidates]: newest tokens, and the beams that they continue.
        """
        del candidates, state
        return tf.math.top_k(log_probabilities, beams)

    def advance(self, ids, parents, state):
        """Returns the state of hypotheses with one more token.

        Integers [batch, hypotheses], ids are newest tokens and parents the beams they continue.
        """
        del ids, parents
        return state


class _Found(NamedTuple):
    """How often each required token appears, in `ops.index_dtype`."""

    counts: tf.Tensor  # [batch, tokens], in a complete output
    found: tf.Tensor  # [batch, hypotheses, tokens], in each hypothesis so far, up to the count

    @property
    def missing(self):
        """Which tokens must still appear, bool [batch, hypotheses, tokens]."""
        return self.found < self.counts[:, tf.newaxis]


@dataclasses.dataclass(frozen=True, eq=False)
class RequiredTokens(Constraint):
    """Requires each token to appear exactly `counts` times in the output of a sentence.

    A forced prefix takes precedence, and its tokens count. log P of all tokens is the model's own.
    """

    ids: tf.Tensor  # int32 [tokens], all different; none is 0
    counts: tf.Tensor  # int32 [batch, tokens], how often each appears in the output of a sentence
    eos_id: int  # the token that ends a sequence
    reserved: Array  # bool [vocab], True for the tokens

    def renumbered(self, ids, places):
        """Returns the constraint for a search over candidates, which have ids of their own.

        Candidates are ids, integers [candidates], the required ones included; the end keeps its id.
        `places`, int32 [vocab], are the new ids of all tokens.
        """
        ids, reserved = tf.gather(places, self.ids), tf.gather(self.reserved, ids)
        return dataclasses.replace(self, ids=ids, reserved=reserved)

    def initial_state(self, beams):
        counts = ops.to_index(self.counts)
        return _Found(counts, tf.tile(tf.zeros_like(counts)[:, tf.newaxis], [1, beams, 1]))

    def top_k(self, logits, k, state):
        # The most likely tokens that are not reserved, then the most likely ones that are missing.
        normalizer = ops.top_k_log_softmax(logits, 1)[2]
        incomplete = tf.reshape(tf.reduce_any(state.missing, axis=2), [-1, 1])
        banned = (incomplete & (tf.range(tf.shape(logits)[1]) == self.eos_id)) | self.reserved
        top, ids = ops.top_k(tf.where(banned, NEG_INF, logits), k)
        next_ids = tf.where(state.missing, ops.to_index(self.ids), 0)  # [batch, beams, tokens]
        next_ids = ops.pad_end(tf.reshape(next_ids, [-1, tf.shape(next_ids)[2]]), k)
        next_logits = tf.where(next_ids == 0, NEG_INF, tf.gather(logits, next_ids, batch_dims=1))
        next_logits, index = tf.math.top_k(next_logits, k)
        next_ids = tf.gather(next_ids, index, batch_dims=1)
        top = tf.concat([top, next_logits], axis=1)  # [batch · beams, 2 · k]
        return top, tf.concat([ops.to_index(ids), next_ids], axis=1), normalizer

    def select(self, log_probabilities, ids, count, state):
        continuations = ids.shape[1] // state.found.shape[1]
        parents = tf.zeros_like(ids) + ops.arange(ids.shape[1]) // continuations
        bank = tf.reduce_sum(self.advance(ids, parents, state).found, axis=2)
        bank = tf.where(log_probabilities > NEG_INF, bank, 0)  # [batch, beams · k]
        index = _deal(log_probabilities, bank)[:, :count]
        return tf.gather(log_probabilities, index, batch_dims=1), index

    def keep(self, log_probabilities, candidates, beams, state):
        exists = log_probabilities > NEG_INF
        kept = exists & (tf.cumsum(tf.cast(exists, tf.int32), axis=1) <= beams)
        # Those that may end come first: a search that reaches its maximum length returns them.
        missing = self.advance(candidates.ids, candidates.parents, state).missing
        is_complete = kept & ~tf.reduce_any(missing, axis=2)
        log_probabilities, index = tf.math.top_k(
            tf.where(kept, log_probabilities, NEG_INF), log_probabilities.shape[1]
        )
        comes_later = ~tf.gather(is_complete, index, batch_dims=1)
        order = tf.argsort(tf.cast(comes_later, tf.int32), stable=True)[:, :beams]
        return tuple(tf.gather(x, order, batch_dims=1) for x in (log_probabilities, index))

    def advance(self, ids, parents, state):
        state = state._replace(found=gather_beams(state.found, parents))
        counted = (ids[..., tf.newaxis] == ops.to_index(self.ids)) & state.missing
        return state._replace(found=state.found + tf.cast(counted, state.found.dtype))


def _deal(log_probabilities, bank):
    """Returns the order in which candidates get beams, integers [batch, candidates].

    First the best candidate of each bank, then the second best of each, and so on. Within a round
    the bank with most of the tokens comes first, so that some hypothesis always advances; the
    others follow by log P, to which each of the tokens adds `_TOKEN_BONUS`. Ties keep their order.

    Args: log_probabilities, float32, and bank, integers, both [batch, candidates].
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
