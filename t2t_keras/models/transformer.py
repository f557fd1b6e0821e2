"""The Transformer: encoder, decoder and the matrix that they share (paper, section 3, figure 1)."""

import dataclasses
import math
from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.beam_rows import BeamRows
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.few_rows import FEW, LaidOut
from t2t_keras.layers.masks import padding_mask, segment_mask
from t2t_keras.layers.word_dropout import WordDropout
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.decoder import Decoder
from t2t_keras.models.decoder_state import DecoderState, Memory
from t2t_keras.models.encoder import Encoder
from t2t_keras.models.micro_batches import MicroBatchedModel
from t2t_keras.models.one_trace import OnceTracedModel
from t2t_keras.models.replicated import ReplicatedModel
from t2t_keras.models.two_passes import TwoPassModel

_LARGE = 2**22
"""Weights of a decoder that no core's cache holds, so that steps wait for them to be read."""


class AttentionWeights(NamedTuple):
    """Who attends to whom, in every layer and head; each row sums to 1.

    Attributes:
        encoder: float32 [batch, encoder_layers, heads, source, source].
        decoder: float32 [batch, decoder_layers, heads, target, target].
        cross: float32 [batch, decoder_layers, heads, target, source].
    """

    encoder: tf.Tensor
    decoder: tf.Tensor
    cross: tf.Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class Transformer(OnceTracedModel, ReplicatedModel, TwoPassModel, MicroBatchedModel):
    """Encoder-decoder Transformer with one matrix for both embeddings and the softmax.

    Its weights exist as soon as it is made. `call` is the training path; `encode`,
    `initial_state`, `step` and `reorder` are the decoding path, which any search can drive.

    Args:
        config: `TransformerConfig`, or its fields as a dict.

    Call arguments:
        inputs: dict of int32 tensors, 0 on padding:
            source_ids: [batch, source].
            target_ids: [batch, target], the decoder's input, already shifted right.
            source_segments, target_segments: [batch, source], [batch, target], only where rows
                hold several pairs: the number of each position's pair, from 1.
            source_positions, target_positions: likewise, each position within its pair.
        training: whether to drop out; `fit` says yes.

    Returns:
        Logits of the next token, float32 [batch, target, vocab_size].

    Raises:
        InputError: if the config is no good, or sequences have length 0.

    Example:
        >>> model = t2t_keras.Transformer(t2t_keras.TransformerConfig.tiny(vocab_size=1000))
        >>> model({"source_ids": tf.ones([2, 7], tf.int32),
        ...        "target_ids": tf.ones([2, 5], tf.int32)}).shape
        TensorShape([2, 5, 1000])
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = TransformerConfig(**config) if isinstance(config, dict) else config
        # Sentence lengths vary: compile(jit_compile="auto") would compile anew for every length.
        self.supports_jit = False
        config, dtype = self.config, self.dtype_policy
        self.source_words = WordDropout(config.source_word_dropout, name="source_words")
        self.target_words = WordDropout(config.target_word_dropout, name="target_words")
        self.embedding = SharedEmbedding(
            config.vocab_size, config.model_dim, dtype=dtype, name="embedding"
        )
        self.source_positions = config.make_positions(dtype=dtype, name="source_positions")
        self.target_positions = config.make_positions(dtype=dtype, name="target_positions")
        self.embedding_dropout = Dropout(config.dropout, dtype=dtype, name="embedding_dropout")
        self.self_masks = config.make_self_masks()
        self.encoder = Encoder(config, dtype=dtype, name="encoder")
        self.decoder = Decoder(config, dtype=dtype, name="decoder")
        for layer in (self.embedding, self.source_positions, self.target_positions):
            layer.build((None, None, config.model_dim))
        self.built = True

    @property
    def max_length(self):
        """The longest sequence that the positions can tell apart; None without a limit."""
        return self.source_positions.max_positions

    def call(self, inputs, training=None):
        # `fit` tells only a model that takes `training`; from here Keras tells the layers.
        *for_ids, for_softmax = self.embedding.readings(3)
        hidden = self._hidden(*self._prepare(inputs, for_ids))
        loss_alone = self.compiled and len(self.metrics) == 1  # nobody asks for the likeliest
        return self.embedding.logits(
            hidden, for_loss=training, matrix=for_softmax, seek_best=not loss_alone
        )

    def hidden(self, inputs):
        """Returns what the softmax's matrix multiplies, [batch, target, model_dim], of `inputs`."""
        return self._hidden(*self._prepare(inputs, self.embedding.readings(2)))

    def _hidden(self, source, target, masks):
        memory = self.encoder(source, attention_mask=masks.source)
        return self.decoder(target, memory, self_mask=masks.target, memory_mask=masks.memory)

    def attention(self, inputs):
        """Returns the `AttentionWeights` of inputs as `call` takes them."""
        source, target, masks = self._prepare(inputs, self.embedding.readings(2))
        memory, encoder = self.encoder.weigh(source, masks.source)
        _, decoder, cross = self.decoder.weigh(target, memory, masks.target, masks.memory)
        return AttentionWeights(encoder, decoder, cross)

    def _prepare(self, inputs, matrices):
        """Returns the embedded source and target and the `_Masks` between them.

        Args:
            inputs: those of `call`.
            matrices: what source and target ids are looked up in, readings of `embedding`.
        """
        source_ids = self.source_words(inputs["source_ids"])
        target_ids = self.target_words(inputs["target_ids"])
        source, target = (
            self._embed(ids, matrix, add_positions, inputs.get(name))
            for ids, matrix, add_positions, name in (
                (source_ids, matrices[0], self.source_positions, "source_positions"),
                (target_ids, matrices[1], self.target_positions, "target_positions"),
            )
        )
        source_segments = inputs.get("source_segments")
        target_segments = inputs.get("target_segments")
        if source_segments is not None:  # a dropped word is in nobody's segment
            source_segments = tf.where(source_ids != 0, source_segments, 0)
        masks = _Masks(
            source=self.self_masks.whole(source_ids, source_segments),
            target=self.self_masks.causal(target_ids, target_segments),
            memory=padding_mask(source_ids)
            if source_segments is None
            else segment_mask(target_segments, source_segments),
        )
        return source, target, masks

    def _embed(self, ids, matrix, add_positions, positions=None):
        if ids.shape[1] == 0:
            raise InputError(
                f"A batch of ids has shape {tuple(ids.shape)}, sequences of length 0: give each "
                "sequence at least its end or start id."
            )
        x = add_positions(self.embedding.embed(ids, matrix), positions)
        return self.embedding_dropout(x)  # [batch, length, model_dim]

    def encode(self, source_ids):
        """Returns the `Memory` of source_ids, int32 [batch, source]."""
        mask = padding_mask(source_ids)
        source = self._embed(source_ids, self.embedding.matrix, self.source_positions)
        return Memory(self.decoder.project_memory(self.encoder(source, attention_mask=mask)), mask)

    def initial_state(self, memory, beams):
        """Returns the `DecoderState` of hypotheses without a token.

        Args:
            memory: `Memory` of the sources, from `encode`.
            beams: int, hypotheses of each sentence.
        """
        batch = tf.shape(memory.mask)[0]
        ancestry = tf.zeros([batch, beams, 0], tf.int32)
        return DecoderState(memory, ancestry, self.decoder.initial_caches(batch))

    def make_step(self, few_rows=False):
        """Returns `step` for a whole search, function of (ids, state).

        It holds the transposed softmax matrix, whose product takes up to 40 % less time: make it
        in the graph, and after the training, in which it is used.

        Args:
            few_rows: whether it also holds the decoder's matrices in an order for steps of few
                hypotheses, see `few_rows.py`; `for_rows` knows when that is the faster.
        """
        if not few_rows:
            columns = self.embedding.columns()
            return lambda ids, state: self.step(ids, state, columns)
        columns, matrices = self.embedding.column_blocks(), self.decoder.matrices
        laid_out = LaidOut(matrices, self.compute_dtype)

        def step(ids, state):
            with laid_out.instead(tf.size(ids)):
                return self.step(ids, state, columns)

        return step

    def for_rows(self, rows, search):
        """Returns search(step) with the step function that is fastest for so many rows.

        Args:
            rows: int32 scalar, sentences · beams, the greatest number of rows in a step.
            search: function of a step function to a nest of tensors; in a graph it may be called
                twice, once for each side of a condition.
        """
        weights = sum(math.prod(matrix.shape) for matrix in self.decoder.matrices)
        if weights < _LARGE or tf.config.list_physical_devices("GPU"):  # measured on CPUs alone
            return search(self.make_step())
        return tf.cond(
            rows <= FEW.get(self.compute_dtype, 0),
            lambda: search(self.make_step(few_rows=True)),
            lambda: search(self.make_step()),
        )

    def step(self, ids, state, columns=None):
        """Reads one more token of every hypothesis.

        Args:
            ids: int32 [batch, beams], the newest token of each hypothesis.
            state: `DecoderState`, what `initial_state` or the last step returned.
            columns: what `make_step` holds.

        Returns:
            Logits of the next token, float32 [batch, beams, vocab_size], and the new state.
        """
        memory, ancestry, caches = state
        position = tf.shape(ancestry)[2]
        x = self._embed(ids, self.embedding.matrix, self.target_positions, position)
        beams = ancestry.shape[1]
        own = tf.zeros_like(ids) + tf.range(beams)  # [batch, beams]
        ancestry = tf.concat([ancestry, own[..., tf.newaxis]], axis=2)
        hidden, caches = self.decoder.step(
            tf.reshape(x, [-1, self.config.model_dim]),  # [batch · beams, model_dim]
            memory.layers,
            memory.mask,
            caches,
            BeamRows(tf.shape(ids)[0], beams),
            _ancestors(ancestry),
        )
        logits = tf.reshape(
            self.embedding.step_logits(hidden, columns), [-1, beams, self.config.vocab_size]
        )  # [batch, beams, vocab_size]
        return logits, DecoderState(memory, ancestry, caches)

    def reorder(self, state, parents):
        """Lets each hypothesis go on from another one of its sentence.

        Args:
            state: `DecoderState`.
            parents: int32 [batch, beams], on which beam each one stood.

        Returns:
            The `DecoderState`.
        """
        ancestry = tf.gather(state.ancestry, parents, axis=1, batch_dims=1)
        return state._replace(ancestry=ancestry)

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}


def _ancestors(ancestry):
    """Returns whom each hypothesis goes back to, bool [batch, 1, beams, steps · beams].

    Args:
        ancestry: int32 [batch, beams, steps]; the number of beams must be known statically.

    Returns:
        None if there is but one beam: all.
    """
    batch, beams, steps = tf.unstack(tf.shape(ancestry))
    if ancestry.shape[1] == 1:
        return None
    ancestors = ancestry[..., tf.newaxis] == tf.range(beams)  # [batch, beams, steps, beams]
    return tf.reshape(ancestors, [batch, 1, beams, steps * beams])


class _Masks(NamedTuple):
    """Who may attend to whom: for self-attention in the form that it takes, else as bool,
    broadcastable to [batch, heads, query, key].
    """

    source: tf.Tensor
    target: tf.Tensor
    memory: tf.Tensor
