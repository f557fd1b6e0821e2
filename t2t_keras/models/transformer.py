"""The Transformer (paper, section 3, figure 1), read from top to bottom.

`EncoderLayer` and `DecoderLayer` are the two columns of figure 1, `Encoder` and `Decoder` stack N
of them, and `Transformer` adds the embeddings and the output projection. Training
uses `call`, which computes all positions. A search uses `encode`, `initial_state`, `step` and
`reorder`, which compute the positions of every hypothesis one by one, with the same weights.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import (
    KeyValue,
    MultiHeadCrossAttention,
    Sequences,
    View,
    padding_mask,
)
from t2t_keras.layers.basic import Dropout, MaskedLayer, parts_of
from t2t_keras.layers.value_checks import Limit, require_sequences
from t2t_keras.models import parts
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.trainable_model import TrainableModel
from t2t_keras.types import Array, Shape


class ConfiguredLayer(MaskedLayer):
    """A layer that is described by a `TransformerConfig`, or by its fields as a dict."""

    masks = {"mask": "source"}  # noqa: RUF012

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = TransformerConfig.of(config)
        self.input_spec = keras.layers.InputSpec(axes={-1: self.config.model_dim})

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}

    def add_layers(self, kind, count):
        """Makes `count` layers of a stack, and the norm that follows them."""
        dtype = self.dtype_policy
        self.layers = [kind(self.config, dtype=dtype, name=f"layer_{i}") for i in range(count)]
        keras_compat.track(self, "layer", self.layers)
        self.final_norm = parts.make_final_norm(self.config, dtype=dtype)


# The encoder (section 3.1) ------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="t2t_keras")
class EncoderLayer(ConfiguredLayer):
    """Self-attention, then a feed-forward network, each in its residual connection.

    With `causal` it is the layer of a decoder-only model, such as a language model.

    Call arguments and results are as for `MultiHeadSelfAttention`, x being [batch, source,
    model_dim].

    Args:
        config: as in all models, a `TransformerConfig`, or its fields.
        causal: whether a position attends only to itself and earlier ones.

    Example:
        >>> layer = t2t.models.EncoderLayer(t2t.TransformerConfig.tiny(vocab_size=100))
        >>> embedding = t2t.layers.SharedEmbedding(vocab_size=100, model_dim=128)
        >>> layer(embedding(np.array([[5, 8, 0]]))).shape  # 0 is padding, and masked
        TensorShape([1, 3, 128])
    """

    rematerializes = True

    def __init__(self, config: TransformerConfig | dict, causal: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.causal = causal
        config, dtype = self.config, self.dtype_policy
        with parts_of(self):  # for `keras.RematScope`
            self.attention = parts.make_self_attention(
                config, causal=causal, dtype=dtype, name="attention"
            )
            self.feed_forward = parts.make_feed_forward(config, dtype=dtype, name="feed_forward")
            residual = functools.partial(parts.make_residual, config, dtype=dtype)
            self.attention_residual = residual(name="attention_residual")
            self.feed_forward_residual = residual(name="feed_forward_residual")

    def build(self, input_shape: Shape) -> None:
        self.attention.build(input_shape)
        self.attention_residual.build(input_shape)
        self.feed_forward.build(input_shape)
        self.feed_forward_residual.build(input_shape)

    def call(self, x: tf.Tensor, mask=None, *, return_attention_weights=False) -> Any:
        x, weights = self.attention_residual.around(
            x, lambda x: self.attention(x, mask, return_attention_weights=True)
        )
        x = self.feed_forward_residual.around(x, self.feed_forward)
        return (x, weights) if return_attention_weights else x

    def step(self, x: tf.Tensor, cache: KeyValue, view: View) -> tuple[tf.Tensor, KeyValue]:
        """Computes what `call` does for the newest position; see `MultiHeadSelfAttention.step`."""
        x, cache = self.attention_residual.around(x, lambda x: self.attention.step(x, cache, view))
        return self.feed_forward_residual.around(x, self.feed_forward), cache

    def get_config(self) -> dict:
        return super().get_config() | {"causal": self.causal}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Encoder(ConfiguredLayer):
    """A stack of N `EncoderLayer`s.

    N is the config's `num_encoder_layers`, for a causal stack `num_decoder_layers`. Arguments and
    results are as for `EncoderLayer`; weights are of all layers, [batch, layers, heads, source,
    source]. With `attention_window` they come in blocks, see `LocalSelfAttention`.

    Example:
        >>> encoder = t2t.models.Encoder(t2t.TransformerConfig.tiny(vocab_size=100))
        >>> output, weights = encoder(tf.ones([2, 7, 128]), return_attention_weights=True)
        >>> weights.shape
        TensorShape([2, 4, 4, 7, 7])
    """

    def __init__(self, config: TransformerConfig | dict, causal: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.causal, config = causal, self.config
        count = config.num_decoder_layers if causal else config.num_encoder_layers
        self.add_layers(functools.partial(EncoderLayer, causal=causal), count)

    def build(self, input_shape: Shape) -> None:
        for layer in [*self.layers, self.final_norm]:
            layer.build(input_shape)

    def call(self, x: tf.Tensor, mask=None, *, return_attention_weights=False) -> Any:
        view = self.layers[0].attention.view(x, mask)  # of all layers
        all_weights = []
        for layer in self.layers:
            x, weights = layer(x, view, return_attention_weights=True)
            all_weights.append(weights)
        x = self.final_norm(x)
        return (x, tf.stack(all_weights, axis=1)) if return_attention_weights else x

    def step(self, x: tf.Tensor, caches: tuple, view: View) -> tuple[tf.Tensor, tuple]:
        """Computes what `call` does for the newest position; see `EncoderLayer.step`.

        Caches are tuples over the layers.
        """
        new_caches = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer.step(x, cache, view)  # noqa: PLW2901
            new_caches.append(cache)
        return self.final_norm(x), tuple(new_caches)

    def get_config(self) -> dict:
        return super().get_config() | {"causal": self.causal}


# The decoder (section 3.1) ------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="t2t_keras")
class DecoderLayer(ConfiguredLayer):
    """Masked self-attention, attention to the encoder's output, feed-forward network.

    Call arguments are as for `MultiHeadCrossAttention`; memory is the encoder's output.

    Returns:
        [batch, target, model_dim]; with it, if asked for, float32 [batch, heads, target, target]
        and float32 [batch, heads, target, source].

    Example:
        >>> x, memory = tf.ones([2, 5, 128]), tf.ones([2, 7, 128])
        >>> t2t.models.DecoderLayer(t2t.TransformerConfig.tiny(vocab_size=100))(x, memory).shape
        TensorShape([2, 5, 128])
    """

    rematerializes = True
    masks = MultiHeadCrossAttention.masks

    def __init__(self, config: TransformerConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        with parts_of(self):  # for `keras.RematScope`
            self.self_attention = parts.make_self_attention(
                config, causal=True, dtype=dtype, name="self_attention"
            )
            self.cross_attention = parts.make_cross_attention(
                config, dtype=dtype, name="cross_attention"
            )
            self.feed_forward = parts.make_feed_forward(config, dtype=dtype, name="feed_forward")
            residual = functools.partial(parts.make_residual, config, dtype=dtype)
            self.self_residual = residual(name="self_residual")
            self.cross_residual = residual(name="cross_residual")
            self.feed_forward_residual = residual(name="feed_forward_residual")

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        self.self_attention.build(x_shape)
        self.self_residual.build(x_shape)
        self.cross_attention.build(x_shape, memory_shape)
        self.cross_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(
        self,
        x: tf.Tensor,
        memory: tf.Tensor,
        x_mask=None,
        memory_mask=None,
        *,
        return_attention_weights=False,
    ) -> Any:
        x, self_weights = self.self_residual.around(
            x, lambda x: self.self_attention(x, x_mask, return_attention_weights=True)
        )
        x, cross_weights = self.cross_residual.around(
            x,
            lambda x: self.cross_attention(
                x, memory, x_mask, memory_mask, return_attention_weights=True
            ),
        )
        x = self.feed_forward_residual.around(x, self.feed_forward)
        return (x, self_weights, cross_weights) if return_attention_weights else x

    def step(self, x: tf.Tensor, key_value, cross_view: View, cache, view: View) -> tuple:
        """Computes what `call` does for the newest position of every hypothesis.

        Args:
            x: [batch, beams, model_dim].
            key_value, cross_view: of the memory, [batch, heads, source, width] and its mask.
            cache, view: as for `MultiHeadSelfAttention.step`.

        Returns:
            [batch, beams, model_dim], the cache with one more step, and the weights of
            cross-attention, float32 [batch, heads, beams, source].
        """
        x, cache = self.self_residual.around(x, lambda x: self.self_attention.step(x, cache, view))
        x, weights = self.cross_residual.around(
            x, lambda x: self.cross_attention.step(x, key_value, cross_view)
        )
        return self.feed_forward_residual.around(x, self.feed_forward), cache, weights


@keras.saving.register_keras_serializable(package="t2t_keras")
class Decoder(ConfiguredLayer):
    """A stack of N `DecoderLayer`s.

    N is `num_decoder_layers` of the config. Arguments and results are as for `DecoderLayer`; the
    weights are of all layers, [batch, layers, heads, target, target] and [batch, layers, heads,
    target, source].

    Example:
        >>> decoder = t2t.models.Decoder(t2t.TransformerConfig.tiny(vocab_size=100))
        >>> decoder(tf.ones([2, 5, 128]), tf.ones([2, 7, 128])).shape
        TensorShape([2, 5, 128])
    """

    masks = MultiHeadCrossAttention.masks

    def __init__(self, config: TransformerConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        self.add_layers(DecoderLayer, self.config.num_decoder_layers)

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        for layer in self.layers:
            layer.build(x_shape, memory_shape)
        self.final_norm.build(x_shape)

    def call(
        self,
        x: tf.Tensor,
        memory: tf.Tensor,
        x_mask=None,
        memory_mask=None,
        *,
        return_attention_weights=False,
    ) -> Any:
        first = self.layers[0]  # its views are those of all layers
        self_view = first.self_attention.view(x, x_mask)
        cross_view = first.cross_attention.view(x, memory, x_mask, memory_mask)
        all_weights = []
        for layer in self.layers:
            x, *weights = layer(x, memory, self_view, cross_view, return_attention_weights=True)
            all_weights.append(weights)
        self_weights, cross_weights = (tf.stack(w, axis=1) for w in zip(*all_weights, strict=True))
        x = self.final_norm(x)
        return (x, self_weights, cross_weights) if return_attention_weights else x

    def step(self, x: tf.Tensor, key_values, cross_view, caches, view) -> tuple:
        """Computes what `call` does for the newest position; see `DecoderLayer.step`.

        Keys and values and caches are tuples over the layers; the weights are the last layer's.
        """
        new_caches = []
        for layer, key_value, cache in zip(self.layers, key_values, caches, strict=True):
            x, cache, weights = layer.step(x, key_value, cross_view, cache, view)  # noqa: PLW2901
            new_caches.append(cache)
        return self.final_norm(x), tuple(new_caches), weights


# The model (section 3, figure 1) ------------------------------------------------------------------


class AttentionWeights(NamedTuple):
    """Attention weights of every layer and head; each row sums to 1."""

    encoder: tf.Tensor  # float32 [batch, encoder_layers, heads, source, source]
    decoder: tf.Tensor  # float32 [batch, decoder_layers, heads, target, target]
    cross: tf.Tensor  # float32 [batch, decoder_layers, heads, target, source]


class ProjectedMemory(NamedTuple):
    """The encoder's output as cross-attention reads it; all hypotheses of a sentence share it."""

    key_values: tuple[KeyValue, ...]  # [batch, heads, source, width] of each decoder layer
    mask: tf.Tensor  # bool [batch, 1, 1, source], False on padding


class DecoderState(NamedTuple):
    """State of the hypotheses of each sentence, with the KV cache of the decoder."""

    memory: ProjectedMemory | tuple  # of the source; () of a language model
    beam_history: tf.Tensor  # `ops.index_dtype` [batch, beams, steps], see `cache_mask`
    # [batch, heads, steps · beams, width] of each decoder layer, of every beam and step
    caches: tuple[KeyValue, ...]
    num_steps: tf.Tensor  # int32 []

    def with_room(self, steps, attentions):
        """Returns the state with room for `steps` steps, int32 [], see `ops.append`."""
        _, beams, room = tf.unstack(tf.shape(self.beam_history))
        more = [(steps - room) * beams] * len(self.caches)
        pairs = zip(attentions, self.caches, more, strict=True)
        return self._replace(
            beam_history=ops.pad_axis(self.beam_history, steps - room, 2, value=-1),
            caches=tuple(attention.with_room(cache, slots) for attention, cache, slots in pairs),
        )


class TokenModel(TrainableModel):
    """What models with a decoder have in common."""

    labels_are_sequences = True

    def _embed(self, ids, embedding, add_positions, sequences):
        """Returns Dropout(√d_model · embedding + position), [batch, length, model_dim]."""
        require_sequences(ids)
        x = add_positions(embedding(ids), sequences.positions, mask=sequences.mask)
        return self.embedding_dropout(x)

    def reorder(self, state: DecoderState, parents: tf.Tensor) -> DecoderState:
        """Returns the state whose hypotheses continue from parents, int32 [batch, beams]."""
        history = tf.gather(state.beam_history, parents, axis=1, batch_dims=1)
        return state._replace(beam_history=history)

    @property
    def output_bias(self):
        """The bias [vocab_size] of the logits, or None, for a fused loss."""
        return self.output_projection.bias

    def get_config(self) -> dict:
        return super().get_config() | {"config": dataclasses.asdict(self.config)}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Transformer(TokenModel):
    """Encoder-decoder Transformer; by default one matrix embeds both sides and gives the logits.

    The weights exist as soon as the model is made.

    Args:
        config: the sizes of all layers.

    Call arguments:
        inputs: dict of int32 tensors, 0 on padding, which may stand anywhere in a row:
            source_ids: [batch, source].
            target_ids: [batch, target], the decoder's input, already shifted right.
            source_segments, target_segments: [batch, source], [batch, target], only if rows
                contain several pairs: the number of each position's pair, from 1.
            source_positions, target_positions: of the same shapes, if rows contain several pairs:
                each position within its pair, from 0.
        training: whether to apply dropout; `fit` passes True.
        return_attention_weights: whether to return the `AttentionWeights` as well.
        return_hidden: whether to return the decoder's output, [batch, target, model_dim], instead
            of the logits.

    Returns:
        Logits of the next token, float32 [batch, target, vocab_size]; with them, if asked for, the
        `AttentionWeights`.

    Raises:
        InputError: if the config is invalid, sequences have length 0 or more than the learned
            positions, or ids or labels are outside of the vocabulary. Ids are not checked in a
            graph of your own, nor in a step on several GPUs.

    Example:
        >>> config = t2t.TransformerConfig.tiny(vocab_size=1000)
        >>> model = t2t.Transformer(config)
        >>> labels = np.random.default_rng(0).integers(4, 1000, size=(8, 5))
        >>> shifted = np.concatenate([np.full((8, 1), 3), labels[:, :-1]], axis=1)
        >>> inputs = {"source_ids": labels[:, ::-1], "target_ids": shifted}
        >>> model(inputs).shape
        TensorShape([8, 5, 1000])
        >>> model.compile(t2t.adam(config.model_dim), t2t.LabelSmoothedCrossEntropy(0.1))
        >>> history = model.fit(inputs, labels, epochs=2, verbose=0)
    """

    fast_forms = TrainableModel.fast_forms | {
        "with_room": ("initial_state", "step", "reorder"),
        "hidden_step": ("step",),
    }

    def __init__(self, config: TransformerConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = TransformerConfig.of(config)
        config, dtype = self.config, self.dtype_policy
        # A layer that is several of these has the name of the first.
        self.embedding, self.source_embedding, self.output_projection = parts.make_embeddings(
            config, dtype=dtype
        )
        positions = functools.partial(parts.make_positions, config, dtype=dtype)
        self.source_positions = positions(name="source_positions")
        self.target_positions = positions(name="target_positions")
        self.embedding_dropout = Dropout(config.dropout, dtype=dtype, name="embedding_dropout")
        self.encoder = Encoder(config, dtype=dtype, name="encoder")
        self.decoder = Decoder(config, dtype=dtype, name="decoder")
        shape = (None, None, config.model_dim)
        for layer in dict.fromkeys((self.embedding, self.source_embedding, self.output_projection)):
            layer.build((None, None))
        for layer in (self.source_positions, self.target_positions, self.embedding_dropout):
            layer.build(shape)
        self.encoder.build(shape)
        self.decoder.build(shape, shape)
        self.built = True

    def call(
        self, inputs: dict, training=None, return_attention_weights=False, return_hidden=False
    ) -> Any:
        del training  # Keras hands it to the layers
        if not isinstance(inputs, dict) or not {"source_ids", "target_ids"} <= inputs.keys():
            given = list(inputs) if isinstance(inputs, dict) else f"a {type(inputs).__name__}"
            raise InputError(
                f"inputs are {given}: give a dict of source_ids and target_ids, [batch, length]."
            )
        self.require_in_range(inputs)
        source_ids, source = inputs["source_ids"], sequences_of(inputs, "source")
        target_ids, target = inputs["target_ids"], sequences_of(inputs, "target")
        x = self._embed(source_ids, self.source_embedding, self.source_positions, source)
        # memory: [batch, source, model_dim]
        memory, encoder_weights = self.encoder(x, source, return_attention_weights=True)
        x = self._embed(target_ids, self.embedding, self.target_positions, target)
        # hidden: [batch, target, model_dim]
        hidden, decoder_weights, cross_weights = self.decoder(
            x, memory, target, source, return_attention_weights=True
        )
        output = hidden if return_hidden else self.output_projection.logits(hidden)
        if not return_attention_weights:
            return output
        encoder_layer, decoder_layer = self.encoder.layers[0], self.decoder.layers[0]
        return output, AttentionWeights(
            encoder_layer.attention.full_weights(encoder_weights, tf.shape(memory)[1]),
            decoder_layer.self_attention.full_weights(decoder_weights, tf.shape(hidden)[1]),
            cross_weights,
        )

    def encode(self, source_ids: Array) -> ProjectedMemory:
        """Returns the `ProjectedMemory` of source_ids, int32 [batch, source]."""
        source = Sequences(mask=ops.is_token(source_ids))
        x = self._embed(source_ids, self.source_embedding, self.source_positions, source)
        memory = self.encoder(x, source)  # [batch, source, model_dim]
        layers = self.decoder.layers
        key_values = tuple(layer.cross_attention.project_memory(memory) for layer in layers)
        return ProjectedMemory(key_values, padding_mask(source.mask))

    def initial_state(self, memory: ProjectedMemory, beams: int) -> DecoderState:
        """Returns the state of `beams` hypotheses of each sentence, which have no token yet."""
        batch = tf.shape(memory.mask)[0]
        caches = tuple(attention.initial_cache(batch) for attention in self._attentions)
        history = tf.zeros([batch, beams, 0], ops.index_dtype())
        return DecoderState(memory, history, caches, tf.constant(0))

    def step(self, ids: tf.Tensor, state: DecoderState, return_attention_weights=False) -> tuple:
        """Reads ids, int32 [batch, beams], the newest token of every hypothesis.

        Returns:
            Logits of the next token, float32 [batch, beams, vocab_size], and the new
            `DecoderState`; with them, if asked for, the last layer's cross-attention with which the
            next token is predicted, float32 [batch, heads, beams, source].
        """
        hidden, state, weights = self.hidden_step(ids, state)
        logits = self.output_projection.logits(hidden)
        return (logits, state, weights) if return_attention_weights else (logits, state)

    def hidden_step(self, ids: tf.Tensor, state: DecoderState) -> tuple:
        """Like `step`, but returns the decoder's output [batch, beams, model_dim] and attention."""
        memory, history, caches, num_steps = state
        history, view = self._attentions[0].step_view(history, num_steps)
        # [batch, beams, model_dim]: beams take the place of length
        rows = Sequences(positions=num_steps)
        x = self._embed(ids, self.embedding, self.target_positions, rows)
        hidden, caches, weights = self.decoder.step(
            x, memory.key_values, View(memory.mask), caches, view
        )
        return hidden, DecoderState(memory, history, caches, num_steps + 1), weights

    def with_room(self, state: DecoderState, steps: tf.Tensor, round_up=None) -> DecoderState:
        """Returns a state with room for `steps` steps, int32 [], see `ops.append`.

        `round_up` maps the length of the sources, int32 [], to a padded one; None: no padding.
        """
        if round_up is not None:
            key_values, mask = state.memory
            more = round_up(tf.shape(mask)[3]) - tf.shape(mask)[3]
            key_values = tf.nest.map_structure(lambda x: ops.pad_axis(x, more, 2), key_values)
            memory = ProjectedMemory(key_values, ops.pad_axis(mask, more, 3))
            state = state._replace(memory=memory)
        return state.with_room(steps, self._attentions)

    @property
    def _attentions(self):
        return [layer.self_attention for layer in self.decoder.layers]

    # What training, saving and exports ask a model for.

    @property
    def max_length(self) -> int | None:
        """The maximum sequence length of the position embedding; None without a limit."""
        return self.source_positions.max_positions

    @property
    def limits(self):
        """The `Limit`s of ids and labels."""
        config = self.config
        return {
            "source_ids": Limit.of_ids(config.encoder_vocab_size),
            "target_ids": Limit.of_ids(config.vocab_size),
            "labels": Limit.of_labels(config.vocab_size),
        }

    @property
    def input_signature(self) -> dict[str, tf.TensorSpec]:
        """The inputs that a call needs, dict of `tf.TensorSpec`."""
        names = "source_ids", "target_ids"
        return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}

    @property
    def output_matrix(self):
        """The matrix [vocab_size, model_dim] of the output projection, for a fused loss."""
        return self.output_projection.matrix


def sequences_of(inputs, side):
    """Returns the `Sequences` of "source" or "target" rows in the inputs of a model."""
    segments = inputs.get(f"{side}_segments")
    return Sequences(
        mask=ops.is_token(inputs[f"{side}_ids"]),
        segments=None if segments is None else ops.to_index(segments),
        positions=inputs.get(f"{side}_positions"),
    )
