"""What all searches share: the protocol of a model, and the hypotheses with their scores."""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.settings import LENGTH_PENALTY_OFFSET, SearchSettings
from t2t_keras.types import Array

NEG_INF = float("-inf")
"""The log P and the score of an empty slot."""


class SearchableModel(Protocol):
    """Protocol of a model that predicts the next token for a search.

    A search calls `encode` once, `initial_state` once, and then `step` and `reorder` in turn.
    Memory and state are nests of tensors [batch, ...], from which a search may drop sentences, and
    of scalars, which it keeps.
    """

    @property
    def max_length(self) -> int | None:
        """The longest sequence of tokens that the model can read, int; None without a limit."""

    def encode(self, source_ids: tf.Tensor) -> Any:
        """Returns the memory of source_ids, int32 [batch, source], 0 on padding."""

    def initial_state(self, memory: Any, beams: int) -> Any:
        """Returns the state of `beams` hypotheses without a token, by the memory of `encode`."""

    def step(self, ids: tf.Tensor, state: Any, return_attention_weights=False) -> tuple:
        """Reads the newest token of every hypothesis, ids int32 [batch, beams].

        Args:
            state: from `initial_state`, `step` or `reorder`.
            return_attention_weights: whether to return the weights as well, which only a search
                with an `AttendingModel` asks for.

        Returns:
            Logits of the next token, [batch, beams, vocab], and the new state; with them, if asked
            for, the attention to the source that predicts it, float32 [batch, heads, beams,
            source].
        """

    def reorder(self, state: Any, parents: tf.Tensor) -> Any:
        """Returns the state whose hypotheses continue from parents, int32 [batch, beams]."""


class WrappedModel:
    """Base of models that change the outputs of a `SearchableModel`, whose state is `inner`."""

    def __init__(self, model):
        self.model = model

    @property
    def max_length(self):
        return self.model.max_length

    def encode(self, source_ids: tf.Tensor) -> Any:
        return self.model.encode(source_ids)

    def reorder(self, state, parents: tf.Tensor) -> Any:
        return state._replace(inner=self.model.reorder(state.inner, parents))


class Hypotheses(NamedTuple):
    """Several output sequences of every sentence.

    Within a search its integers are of `ops.index_dtype`.
    """

    # int32 [batch, hypotheses, length], without the begin token, 0 after the end; a sequence cut at
    # its maximum length has no end token
    ids: tf.Tensor
    lengths: tf.Tensor  # int32 [batch, hypotheses], the end token counted
    # float32 [batch, hypotheses], log P of all tokens, the end included
    log_probabilities: tf.Tensor
    # float32 [batch, hypotheses], log P / length penalty; -inf, with length 0, marks that a
    # sentence has no further hypothesis
    scores: tf.Tensor
    # nest of tensors [batch, hypotheses, length], the requested records of each token; empty by
    # default
    records: Any = ()

    def with_tokens(self, change):
        """Returns the hypotheses with `change` of ids and records, [batch, hypotheses, length]."""
        ids, records = tf.nest.map_structure(change, (self.ids, self.records))
        return self._replace(ids=ids, records=records)


class LengthPenalty(NamedTuple):
    """The length penalty, which divides log P in a score: ((k + length) / (k + 1))^α."""

    alpha: float  # α; 0 makes the score log P itself, the paper uses 0.6
    # k; 5 is the paper's (section 6.1; Wu et al. 2016, equation 14), 0 gives length^α
    offset: float = 5.0
    # number from 0, the amount by which log P of each token is too large, for instance if
    # probabilities cover only a part of the vocabulary
    token_cost: float = 0.0

    @classmethod
    def of(cls, penalty: "float | LengthPenalty") -> "LengthPenalty":
        """Returns a `LengthPenalty` unchanged, or the paper's with this α.

        Raises:
            InputError: if α or k is out of its range.
        """
        penalty = penalty if isinstance(penalty, cls) else cls(penalty)
        alpha, offset, token_cost = penalty
        alpha = SearchSettings.checked({"length_penalty": alpha})["length_penalty"]
        offset = LENGTH_PENALTY_OFFSET.check("length_penalty_offset", offset)
        return cls(alpha, offset, token_cost)

    def __call__(self, lengths: Array) -> tf.Tensor:
        """Returns the penalty, float32, of lengths, integers of any shape, the end counted."""
        lengths = tf.maximum(self.offset + tf.cast(lengths, tf.float32), 1.0)  # of 0: finite
        return tf.pow(lengths / (self.offset + 1.0), self.alpha)

    def corrected(self, log_probabilities, lengths):
        """Returns log P minus `token_cost` · lengths, integers broadcastable to it."""
        if not self.token_cost:
            return log_probabilities
        return log_probabilities - self.token_cost * tf.cast(lengths, tf.float32)


def score_hypotheses(ids, lengths, log_probabilities, length_penalty, records=()):
    """Returns the `Hypotheses` of ids, integers [batch, hypotheses, length].

    Lengths are integers, broadcastable to [batch, hypotheses], log P float32 [batch, hypotheses],
    the penalty a `LengthPenalty`, and records a nest of tensors [batch, hypotheses, length].
    """
    lengths = tf.broadcast_to(tf.cast(lengths, ids.dtype), tf.shape(log_probabilities))
    log_p = length_penalty.corrected(log_probabilities, lengths)
    scores = log_p / length_penalty(lengths)
    return Hypotheses(ids, lengths, log_probabilities, scores, records)


def gather_beams(nest, parents):
    """Gathers the parents of new hypotheses, integers [batch, new_beams].

    It turns a nest of tensors [batch, beams, ...] into one of [batch, new_beams, ...].
    """
    return tf.nest.map_structure(lambda x: tf.gather(x, parents, axis=1, batch_dims=1), nest)


def concat_beams(first, second):
    """Concatenates two `Hypotheses` along the beams."""
    return tf.nest.map_structure(lambda *pair: tf.concat(pair, axis=1), first, second)


def forced_ids(prefix_ids, step):
    """Returns the id that each output must have at a step, from 0: integers [batch]; 0: any id.

    `prefix_ids`, integers [batch, prefix], are the beginning of each output; 0: any id.
    """
    return ops.pad_end(prefix_ids)[:, tf.minimum(step, tf.shape(prefix_ids)[1])]
