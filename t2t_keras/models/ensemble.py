"""Ensembles: several trained models predict each token together.

Memory and decoding state are tuples of the members' memories and states.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.models.lora import merge_lora
from t2t_keras.models.search_steps import CombinedModel, require_own_steps
from t2t_keras.models.transformer import Transformer
from t2t_keras.settings import ENSEMBLE_MEANS
from t2t_keras.types import Array

_OF_MEMBERS = "config", "input_signature", "encode", "initial_state", "step", "reorder"


class Ensemble(CombinedModel):
    """Several models with the same vocabulary, whose predictions are averaged. It is not trained.

    Args:
        members: list of `Transformer`s, whose sizes may differ, or of models that offer a search
            the same methods. LoRA is merged into copies of them.
        mean: "probabilities", (1 / n) · Σ P_i(y); or "log_probabilities", P(y) ∝ Π P_i(y)^(1/n),
            in which one member can make a token unlikely.

    Call arguments are inputs and return_attention_weights, as for `Transformer`. It returns log P
    of the next token, float32 [batch, target, vocab_size]; with it, if asked for, the
    `AttentionWeights` of the first member.

    Raises:
        InputError: if there is no member, a member is another kind of model or overrides `call`
            without `encode` and `step`, vocabularies or dtypes differ, or an attribute is
            replaced.

    Example:
        >>> config = t2t.TransformerConfig.tiny(vocab_size=100)
        >>> model = t2t.Ensemble([t2t.Transformer(config), t2t.Transformer(config)])
        >>> ids = np.array([[5, 8, 1]])
        >>> model({"source_ids": ids, "target_ids": ids}).shape
        TensorShape([1, 3, 100])
    """

    fixed = ("members", "mean")

    def __init__(self, members: Sequence[Transformer], mean: str = "probabilities", **kwargs):
        if not hasattr(members, "__iter__"):
            raise InputError(f"members is a {type(members).__name__}: give a list of models.")
        members = list(members)
        if not members:
            raise InputError("an ensemble has no members: give a list of at least one model.")
        if mean not in ENSEMBLE_MEANS:
            raise InputError(f"mean is {mean!r}: give {' or '.join(ENSEMBLE_MEANS)}.")
        for number, member in enumerate(members, start=1):
            _check_member(members[0], member, number)
        super().__init__(dtype=members[0].dtype_policy, **kwargs)
        self.mean = mean
        self.members = [merge_lora(member) for member in members]
        self.built = True

    def __reduce__(self):
        return Ensemble, (list(self.members), self.mean)  # for pickle

    def call(self, inputs: dict, return_attention_weights: bool = False) -> Any:
        first, *others = self.members
        logits, weights = first(inputs, return_attention_weights=True)
        logits = self._mean([logits, *(member(inputs) for member in others)])
        return (logits, weights) if return_attention_weights else logits

    def encode(self, source_ids: Array) -> tuple:
        """Returns the memory of source_ids, int32 [batch, source]."""
        return tuple(member.encode(source_ids) for member in self.members)

    def initial_state(self, memory: tuple, beams: int) -> tuple:
        """Returns the state of `beams` hypotheses without a token."""
        pairs = zip(self.members, memory, strict=True)
        return tuple(member.initial_state(its, beams) for member, its in pairs)

    def step(self, ids: tf.Tensor, state: tuple, return_attention_weights: bool = False) -> tuple:
        """Reads one more token of every hypothesis, see `Transformer.step`; returns log P.

        Attention weights come from the first member, as in a call.
        """
        steps = [
            member.step(ids, its, return_attention_weights=True)
            for member, its in zip(self.members, state, strict=True)
        ]
        logits, states, weights = zip(*steps, strict=True)
        outputs = self._mean(logits), states
        return (*outputs, weights[0]) if return_attention_weights else outputs

    def reorder(self, state: tuple, parents: tf.Tensor) -> tuple:
        """Returns the state whose hypotheses continue from parents, int32 [batch, beams]."""
        pairs = zip(self.members, state, strict=True)
        return tuple(member.reorder(its, parents) for member, its in pairs)

    def _mean(self, logits):
        """Returns log P of the mean of predictions, a list of [..., vocab], in float32."""
        log_probabilities = tf.stack([tf.nn.log_softmax(tf.cast(x, tf.float32)) for x in logits])
        if self.mean == "probabilities":
            return tf.reduce_logsumexp(log_probabilities, axis=0) - math.log(len(logits))
        return tf.nn.log_softmax(tf.reduce_mean(log_probabilities, axis=0))


def _check_member(first, member, number):
    """Raises InputError unless a model can be a member of an ensemble with the first one."""
    is_known = all(hasattr(member, name) for name in _OF_MEMBERS)
    if not is_known or "source_ids" not in member.input_signature:
        raise InputError(
            f"member {number} of the ensemble is a {type(member).__name__}: give Transformers."
        )
    require_own_steps(member)
    for name, one, other in (
        ("vocab_size", first.config.vocab_size, member.config.vocab_size),
        ("source_vocab_size", first.config.encoder_vocab_size, member.config.encoder_vocab_size),
        ("dtype", first.dtype_policy.name, member.dtype_policy.name),
    ):
        if one != other:
            raise InputError(
                f"member {number} of the ensemble has {name} {other} and member 1 has {one}: give "
                "models with the same vocabulary and dtype."
            )
