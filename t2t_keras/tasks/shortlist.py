"""A lexical shortlist: a search considers only probable translations of its source tokens.

Jean et al. 2015, "On Using Very Large Target Vocabulary"; Devlin 2017. The output projection of a
large vocabulary takes nearly half of a decoding step. A `Shortlist` lists the most probable targets
of each source token. The candidates of a sentence are these targets, the most frequent
targets, special tokens and bytes, and the tokens of its prefix and of its terms.

A batch is searched over the candidates of all its sentences, and each sentence is masked to its
own, so that it does not depend on the others. Inside the search an id is an index in the list of
candidates, which begins with all special tokens and bytes: these keep their ids.
"""

import io
import zipfile
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.base_tokenizer import FIRST_WORD
from t2t_keras.data.batching import shift_right
from t2t_keras.data.files import local_path, write_file
from t2t_keras.data.lexical_table import learn_lexical_table
from t2t_keras.decoding.hypotheses import LengthPenalty
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import masked
from t2t_keras.models.search_steps import require_hidden_step
from t2t_keras.tasks.translation import Translator
from t2t_keras.types import StrPath

_MEASURED, _MEASURED_TOGETHER, _MEASURED_LENGTH = 128, 16, 128
"""Sentences by which the cost of a token is measured, those in one batch, and their tokens."""

_NUM_FREQUENT = 100
"""Most frequent target ids, which are candidates of every sentence."""


class Shortlist(NamedTuple):
    """The candidates for each source token, and the candidates for every sentence."""

    table: np.ndarray  # int32 array [source_vocab, k], the most probable targets of each source id
    common: np.ndarray  # int32 array [count], candidates of every sentence
    vocabulary: str  # `Tokenizer.fingerprint` of the ids
    # the mean of -log Σ P(candidate) over tokens of the training text. A softmax over only
    # the candidates makes log P of a token too large by about this value. It depends on the
    # weights, see `measured`
    token_cost: float = 0.0

    @classmethod
    def learn(cls, shards, translator, k):
        """Learns the shortlist of a translator's ids from its training text, `Shards`.

        Args: k, int, targets of each source id; 100 is usual.

        Raises:
            InputError: if k is below 1, or the model is not a `Transformer`.
        """
        _require_transformer(translator)
        config, tokenizer = translator.model.config, translator.tokenizer
        table, frequent = learn_lexical_table(
            shards, config.encoder_vocab_size, config.vocab_size, k
        )
        first_ids = np.arange(min(FIRST_WORD, config.vocab_size))
        common = np.union1d(first_ids, frequent[:_NUM_FREQUENT]).astype(np.int32)
        return cls(table, common, tokenizer.fingerprint()).measured(shards, translator)

    def measured(self, shards, translator):
        """Returns the shortlist with the `token_cost` of a translator of the same ids.

        The first sentences of the shards are used. It raises what `ShortlistTranslator` raises.
        """
        return self._replace(token_cost=_token_cost(ShortlistTranslator(translator, self), shards))

    def save(self, path: StrPath) -> None:
        """Writes a file that `load` reads; it appears under its name when it is complete."""
        content = io.BytesIO()
        np.savez_compressed(content, **self._asdict())
        write_file(path, content.getvalue())

    @classmethod
    def load(cls, path):
        """Reads a file that `save` wrote; raises InputError if it is missing, damaged or other."""
        try:
            with np.load(local_path(path), allow_pickle=False) as arrays:
                vocabulary, token_cost = str(arrays["vocabulary"]), float(arrays["token_cost"])
                return cls(arrays["table"], arrays["common"], vocabulary, token_cost)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path} is not a shortlist ({error}): give a file that Shortlist.save wrote, or "
                "learn it again."
            ) from error


class ShortlistTranslator(Translator):
    """A translator whose searches choose among the candidates of a shortlist.

    A search computes log P over the candidates and subtracts the shortlist's cost of each token
    from its scores. They are then comparable with scores over the whole vocabulary; otherwise
    longer translations would win. `score` and `align` use the whole vocabulary.

    Args:
        translator: of a `Transformer`; its settings are kept.
        shortlist: `Shortlist` of its vocabulary.

    Raises:
        InputError: if the shortlist belongs to another vocabulary, the translator has another model
            such as kNN-MT or is of a subclass, or twice its beam size exceeds the candidates of an
            empty sentence.
    """

    def __init__(self, translator, shortlist):
        _require_transformer(translator)
        if not isinstance(self, type(translator)):  # whose own methods would be lost
            raise InputError(
                f"a shortlist would drop what {type(translator).__name__} changes in Translator: "
                "leave it out."
            )
        self._table, self._common = (tf.Variable(part) for part in shortlist[:2])
        self._vocabulary, self._token_cost = shortlist.vocabulary, shortlist.token_cost
        super().__init__(translator.model, translator.tokenizer, **vars(translator.settings))
        self.protection = translator.protection
        self.tracked = self._table, self._common
        self.export_record = {"shortlist": shortlist.table.shape[1]}

    def check(self):
        _require_transformer(self)
        super().check()
        if self._vocabulary != self.tokenizer.fingerprint():
            raise InputError(
                "the translator's vocabulary is not the one that the shortlist was learned with: "
                "learn a shortlist from the shards of the translator's own run."
            )
        beam_size, most = self.settings.beam_size, self._common.shape[0] // 2
        if beam_size > most:
            raise InputError(
                f"beam_size is {beam_size}: with this shortlist give at most {most}, half of the "
                "candidates of an empty sentence."
            )

    def save(self, folder):
        raise InputError(
            f"a translator with a shortlist cannot be saved to {folder}: save the translator that "
            "it was made from, and the shortlist with `Shortlist.save`."
        )

    @staticmethod
    def step_products(model):
        return Translator.step_products(model) | {"output_matrices": []}

    def find(
        self,
        model,
        source_ids,
        max_lengths,
        prefix_ids,
        constraint=None,
        length_penalty=0.6,
        **options,
    ):
        demanded = prefix_ids
        if constraint is not None:
            required = tf.where(constraint.counts > 0, constraint.ids, 0)
            demanded = tf.concat([prefix_ids, required], axis=1)
        candidates = self._candidates(source_ids, demanded)
        if constraint is not None:
            constraint = constraint.renumbered(candidates.ids, candidates.places)
        hypotheses = super().find(
            _NarrowedModel(model, candidates),
            source_ids,
            max_lengths,
            tf.gather(candidates.places, prefix_ids),
            constraint,
            length_penalty=LengthPenalty.of(length_penalty)._replace(token_cost=self._token_cost),
            **options,
        )
        return hypotheses._replace(ids=tf.gather(candidates.ids, hypotheses.ids))

    def _candidates(self, source_ids, demanded):
        """Returns the `_Candidates` of int32 [batch, source] and [batch, demanded]."""
        batch = tf.shape(source_ids)[0]
        vocab = self.model.config.vocab_size
        targets = tf.gather(self._table, source_ids)  # [batch, source, k]
        own = tf.concat([tf.reshape(targets, [batch, -1]), demanded], axis=1)
        own = tf.concat([own, tf.tile(self._common[tf.newaxis], [batch, 1])], axis=1)
        rows = tf.broadcast_to(tf.range(batch)[:, tf.newaxis], tf.shape(own))
        allowed = tf.scatter_nd(tf.stack([rows, own], axis=2), tf.ones_like(own), [batch, vocab])
        allowed = allowed > 0  # [batch, vocab]
        # At least those of every sentence, even in a batch without one.
        common = tf.scatter_nd(self._common[:, tf.newaxis], tf.ones_like(self._common), [vocab])
        union = tf.reduce_any(allowed, axis=0) | (common > 0)  # [vocab]
        ids = tf.cast(tf.where(union)[:, 0], tf.int32)
        places = tf.cumsum(tf.cast(union, tf.int32)) - 1  # [vocab]
        # A multiple of this size is searched faster; no sentence has the further ones.
        missing = -tf.size(ids) % ops.TOP_K_BLOCK
        allowed = tf.pad(tf.gather(allowed, ids, axis=1), [[0, 0], [0, missing]])
        return _Candidates(tf.pad(ids, [[0, missing]]), places, allowed)


def _token_cost(translator, shards):
    """Returns `Shortlist.token_cost`, over the first sentences of a split by teacher forcing."""
    model, pairs = translator.model, shards.read(0)
    longest = min(_MEASURED_LENGTH, translator.max_source_length)
    total = count = 0.0
    for start in range(0, min(_MEASURED, int(pairs.source.nrows())), _MEASURED_TOGETHER):
        rows = slice(start, min(start + _MEASURED_TOGETHER, _MEASURED))
        source, target = (side[rows, :longest].to_tensor() for side in (pairs.source, pairs.target))
        logits = model({"source_ids": source, "target_ids": shift_right(target)})
        logits = tf.cast(logits, tf.float32)  # [rows, target, vocab]
        candidates = translator._candidates(source, source[:, :0])
        some = masked(tf.gather(logits, candidates.ids, axis=2), candidates.allowed[:, tf.newaxis])
        costs = tf.reduce_logsumexp(logits, axis=2) - tf.reduce_logsumexp(some, axis=2)
        is_token = ops.is_token(target)
        total += float(tf.reduce_sum(tf.where(is_token, costs, 0.0)))
        count += int(tf.math.count_nonzero(is_token))
    return max(total / max(count, 1), 0.0)


def _require_transformer(translator):
    model = translator.model
    if not isinstance(translator, Translator) or not hasattr(model, "hidden_step"):
        raise InputError(
            "a shortlist is for a Translator of a Transformer, not for a "
            f"{type(translator).__name__} of a {type(model).__name__}: leave it out."
        )
    require_hidden_step(model, "a shortlist")


class _Candidates(NamedTuple):
    """The target ids that a batch is searched over."""

    # int32 [candidates], the special tokens and bytes, then the other candidates of the batch in
    # ascending order, padded with 0
    ids: tf.Tensor
    places: tf.Tensor  # int32 [vocab], the index of each candidate in `ids`
    allowed: tf.Tensor  # bool [batch, candidates], whether a sentence may use a candidate


class _NarrowedModel:
    """A `Transformer` for a search, with the `_Candidates` of a batch in place of its words."""

    def __init__(self, model, candidates):
        self.model = model
        self.max_length = model.max_length
        self.candidates = candidates
        projection = model.output_projection
        self.logits = ops.partial_logits(candidates.ids, projection.matrix, model.compute_dtype)
        bias = projection.bias
        bias = 0.0 if bias is None else tf.gather(tf.convert_to_tensor(bias), candidates.ids)
        zeros = tf.zeros(tf.shape(candidates.allowed))
        self.bias = masked(zeros + bias, candidates.allowed)  # [batch, candidates]

    def encode(self, source_ids):
        return self.model.encode(source_ids)

    def initial_state(self, memory, beams):
        return _NarrowedState(self.model.initial_state(memory, beams), self.bias)

    def step(self, ids, state, return_attention_weights=False):
        ids = tf.gather(self.candidates.ids, ids)
        hidden, inner, weights = self.model.hidden_step(ids, state.inner)
        _, beams, width = hidden.shape
        logits = self.logits(tf.reshape(hidden, [-1, width]))  # [batch · beams, candidates]
        logits = tf.reshape(logits, [-1, beams, tf.shape(self.bias)[1]])
        logits = tf.cast(logits, tf.float32) + state.bias[:, tf.newaxis]
        outputs = logits, state._replace(inner=inner)
        return (*outputs, weights) if return_attention_weights else outputs

    def reorder(self, state, parents):
        return state._replace(inner=self.model.reorder(state.inner, parents))


class _NarrowedState(NamedTuple):
    """The decoding state of a `Transformer`, and the candidates of its sentences."""

    inner: Any  # `DecoderState`
    # float32 [batch, candidates], the output projection's bias, minus a large number if the
    # candidate does not belong to the sentence
    bias: tf.Tensor
