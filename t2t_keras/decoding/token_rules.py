"""Rules for the next token of a hypothesis, by the tokens that it has: repetitions and length.

A rule changes logits before their softmax, in every search and in sampling: log P is of the changed
distribution, as in CTranslate2. `RuledModel` applies rules to any model. Forced tokens, such as
those of a prefix, keep the logits of the model.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.hypotheses import NEG_INF, WrappedModel, forced_ids, gather_beams


@dataclasses.dataclass(frozen=True)
class RepetitionPenalty:
    """Makes tokens that a hypothesis has less likely (Keskar et al. 2019, equation 2)."""

    # above 0; positive logits of these tokens are divided by it, negative ones multiplied
    penalty: float

    def __call__(self, logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Returns the changed logits; the protocol of rules.

        Args:
            logits: float32 [rows, vocab].
            tokens: int32 [rows, length], the tokens of each row's hypothesis.
        """
        less = tf.where(logits > 0, logits / self.penalty, logits * self.penalty)
        is_there = _marked(tokens, tf.ones_like(tokens), logits)
        return tf.where(is_there, less, logits)


@dataclasses.dataclass(frozen=True)
class NoRepeatedNgrams:
    """Forbids the token that would repeat an n-gram of a hypothesis (Paulus et al. 2017)."""

    size: int  # n, at least 1

    def __call__(self, logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        num_ngrams = tf.maximum(tf.shape(tokens)[1] - self.size + 1, 0)
        tokens = ops.pad_end(tokens, self.size)  # one shorter than an n-gram can be cut, too
        # The last n - 1 tokens stand at num_ngrams, the first n - 1 of each n-gram before it.
        is_same = tf.ones_like(tokens[:, :num_ngrams], tf.bool)  # [rows, n-grams]
        for i in range(self.size - 1):
            last = tokens[:, num_ngrams + i, tf.newaxis]
            is_same &= tokens[:, i : num_ngrams + i] == last
        ends = tokens[:, self.size - 1 : self.size - 1 + num_ngrams]  # [rows, n-grams]
        is_banned = _marked(ends, tf.cast(is_same, tf.int32), logits)
        return tf.where(is_banned, NEG_INF, logits)


@dataclasses.dataclass(frozen=True)
class MinLength:
    """Forbids the end before an output has `length` tokens."""

    length: int  # tokens before the end
    eos_id: int

    def __call__(self, logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        is_end = tf.range(tf.shape(logits)[1]) == self.eos_id  # [vocab]
        return tf.where(is_end & (tf.shape(tokens)[1] < self.length), NEG_INF, logits)


def _marked(ids, marks, logits):
    """Returns which of ids [rows, n] have a mark, int32 1 or 0: bool [rows, vocab]."""
    rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, tf.newaxis], tf.shape(ids))
    return tf.scatter_nd(tf.stack([rows, ids], axis=2), marks, tf.shape(logits)) > 0


class RuledModel(WrappedModel):
    """Wraps a `SearchableModel`, so that its logits follow rules, in their order.

    Args:
        model: `SearchableModel`.
        rules: list of functions such as `NoRepeatedNgrams`.
        prefix_ids: int32 [batch, prefix] or None, the search's: where it forces a token, logits
            stay those of the model.
        exempt: bool [vocab] or None, tokens whose logits stay those of the model.
    """

    def __init__(self, model, rules, prefix_ids=None, exempt=None):
        super().__init__(model)
        self.rules = rules
        self.prefix_ids = prefix_ids
        self.exempt = exempt

    def initial_state(self, memory, beams):
        inner = self.model.initial_state(memory, beams)
        shapes = ((x, tf.TensorShape(getattr(x, "shape", ()))) for x in tf.nest.flatten(inner))
        batch = tf.shape(next(x for x, shape in shapes if shape.rank != 0))[0]
        prefix_ids = self.prefix_ids
        if prefix_ids is None:
            prefix_ids = tf.zeros([batch, 0], tf.int32)
        return _RuledState(inner, tf.zeros([batch, beams, 0], tf.int32), prefix_ids)

    def step(self, ids, state, return_attention_weights=False):
        asked = {"return_attention_weights": True} if return_attention_weights else {}
        logits, inner, *weights = self.model.step(ids, state.inner, **asked)
        read = tf.concat([state.read, ids[..., tf.newaxis]], axis=2)
        _, beams, vocab = logits.shape
        vocab = vocab or tf.shape(logits)[2]
        before = tf.cast(tf.reshape(logits, [-1, vocab]), tf.float32)  # [batch · beams, vocab]
        tokens = tf.reshape(read, [-1, tf.shape(read)[2]])[:, 1:]  # without the begin token
        after = before
        for rule in self.rules:
            after = rule(after, tokens)
        forced = forced_ids(state.prefix_ids, tf.shape(tokens)[1])  # [batch]
        stays = tf.repeat(forced > 0, beams)[:, tf.newaxis]
        if self.exempt is not None:
            stays |= self.exempt
        changed = tf.reshape(tf.where(stays, before, after), [-1, beams, vocab])
        state = state._replace(inner=inner, read=read)
        return changed, state, *weights

    def reorder(self, state, parents):
        return state._replace(
            inner=self.model.reorder(state.inner, parents), read=gather_beams(state.read, parents)
        )


class _RuledState(NamedTuple):
    """A decoding state, and the tokens that its hypotheses have read."""

    inner: Any  # the model's state
    read: tf.Tensor  # int32 [batch, beams, length], the begin and the tokens of each hypothesis
    prefix_ids: tf.Tensor  # int32 [batch, prefix]


def rules_of(settings, eos_id):
    """Returns the rules of a search's settings, a list for `RuledModel`; eos_id: int, the end."""
    given, rules = vars(settings), []
    if given.get("repetition_penalty", 1) != 1:
        rules.append(RepetitionPenalty(settings.repetition_penalty))
    if given.get("no_repeat_ngram_size"):
        rules.append(NoRepeatedNgrams(settings.no_repeat_ngram_size))
    if given.get("min_target_length"):
        rules.append(MinLength(settings.min_target_length, eos_id))
    return rules
