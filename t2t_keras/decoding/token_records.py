"""Records of a beam search: values that it keeps for every token in addition to its id.

A search asks its `records` for the values of the newest token of each candidate, and keeps them
with the ids through reordering, compaction and n-best lists.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.hypotheses import SearchableModel, WrappedModel, gather_beams


class TokenRecords(NamedTuple):
    """log P of tokens, and the source position that an `AttendingModel` attended to most.

    The class itself is the `records` of a search.
    """

    sums: tf.Tensor  # float32 [batch, hypotheses, length], log P of all tokens up to each one
    # `ops.index_dtype` [batch, hypotheses, length], the position attended to for each token
    sources: tf.Tensor

    @classmethod
    def empty(cls, ids):
        """Returns the records of hypotheses that have no token yet, ids [batch, hypotheses, 0]."""
        return cls(tf.zeros_like(ids, tf.float32), tf.zeros_like(ids))

    @classmethod
    def newest(cls, candidates, model_state):
        """Returns the records of the newest tokens of `_Candidates`, [batch, candidates].

        They continue the beams of the state that the step returned.
        """
        sources = gather_beams(model_state.attended, candidates.parents)
        return cls(candidates.log_probabilities, sources)

    def log_probabilities(self, lengths: tf.Tensor) -> tf.Tensor:
        """Returns log P of each token, float32 [batch, hypotheses, length], 0 on padding."""
        before = tf.pad(self.sums[..., :-1], [[0, 0], [0, 0], [1, 0]])
        is_token = tf.sequence_mask(lengths, tf.shape(self.sums)[2])
        return tf.where(is_token, self.sums - before, 0.0)


class AttendingModel(WrappedModel):
    """Wraps a `SearchableModel`, so that states contain the source positions attended to most.

    Args:
        model: `SearchableModel` whose `step` takes `return_attention_weights`.
        has_text: bool [batch, source], the source positions that count.
    """

    def __init__(self, model: SearchableModel, has_text: tf.Tensor):
        super().__init__(model)
        self.has_text = has_text

    def initial_state(self, memory, beams):
        attended = tf.zeros([tf.shape(self.has_text)[0], beams], ops.index_dtype())
        return _AttendingState(self.model.initial_state(memory, beams), self.has_text, attended)

    def step(self, ids, state, return_attention_weights=False):
        logits, inner, weights = self.model.step(ids, state.inner, return_attention_weights=True)
        attended = attended_positions(weights, state.has_text)
        outputs = logits, state._replace(inner=inner, attended=attended)
        return (*outputs, weights) if return_attention_weights else outputs

    # `reorder` leaves `attended`, which the next step replaces before it is read.


class _AttendingState(NamedTuple):
    """A decoding state, and what its newest step attended to."""

    inner: Any  # the model's state
    has_text: tf.Tensor  # bool [batch, source]
    attended: tf.Tensor  # `ops.index_dtype` [batch, beams], the source position attended to most


def attended_positions(weights, has_text):
    """Returns the source position that each row attends to most, `ops.index_dtype` [batch, rows].

    Weights are float32 [batch, heads, rows, source], cross-attention of the last layer; the heads
    are averaged, and the positions of has_text, bool [batch, source], count.
    """
    weights = tf.reduce_mean(weights, axis=1)  # [batch, rows, source]
    weights = tf.where(has_text[:, tf.newaxis], weights, -1.0)
    return tf.argmax(weights, axis=2, output_type=ops.index_dtype())
