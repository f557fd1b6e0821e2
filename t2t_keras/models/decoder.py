"""The decoder: a stack of N identical layers (paper, section 3.1).

Training and decoding are two methods over the same weights: `call` sees all positions at once,
`step` one new position of every hypothesis of beam search.
"""

import keras
import tensorflow as tf

from t2t_keras.models.stack import ConfiguredLayer


@keras.saving.register_keras_serializable(package="t2t_keras")
class DecoderLayer(ConfiguredLayer):
    """Masked self-attention, attention to the encoder's output, feed-forward network.

    Args:
        config: `TransformerConfig`.

    Call arguments:
        x: [batch, target, model_dim].
        memory: [batch, source, model_dim], the encoder's output.
        self_mask: of the self-attention, from `make_self_masks().causal` of the config.
        memory_mask: bool, broadcastable to [batch, heads, target, source].

    Returns:
        [batch, target, model_dim].
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.self_attention = config.make_self_attention(
            causal=True, dtype=dtype, name="self_attention"
        )
        self.cross_attention = config.make_cross_attention(dtype=dtype, name="cross_attention")
        self.feed_forward = config.make_feed_forward(dtype=dtype, name="feed_forward")
        self.self_residual = config.make_residual(dtype=dtype, name="self_residual")
        self.cross_residual = config.make_residual(dtype=dtype, name="cross_residual")
        self.feed_forward_residual = config.make_residual(dtype=dtype, name="feed_forward_residual")
        self.build_parts()

    def call(self, x, memory, self_mask=None, memory_mask=None):
        return self._chain(
            x,
            lambda y: self.self_attention(y, attention_mask=self_mask),
            lambda y: self.cross_attention(y, memory, attention_mask=memory_mask),
        )

    def weigh(self, x, memory, self_mask=None, memory_mask=None):
        """Returns what `call` does and its attention weights, to the target and to the source.

        Returns:
            [batch, target, model_dim], float32 [batch, heads, target, target] and float32 [batch,
            heads, target, source].
        """
        weights = []

        def self_attention(y):
            weights.append(self.self_attention.weigh(y, self_mask))
            return self.self_attention(y, attention_mask=self_mask)

        def cross_attention(y):
            weights.append(self.cross_attention.weigh(y, memory, memory_mask))
            return self.cross_attention(y, memory, attention_mask=memory_mask)

        return self._chain(x, self_attention, cross_attention), *weights

    def step(self, x, memory, memory_mask, cache, rows, ancestors=None):
        """Runs the layer on one new position of every hypothesis.

        Args:
            x: [batch · beams, model_dim].
            memory: `KeyValue` of the encoder's output, [batch, heads, source, width].
            memory_mask: bool, broadcastable to [batch, heads, beams, source].
            cache: `KeyValue` of earlier positions, [batch, heads, steps · beams, width].
            rows: `BeamRows` of x.
            ancestors: see `MultiHeadSelfAttention.step`.

        Returns:
            [batch · beams, model_dim] and the cache with one step more.
        """
        caches = []

        def self_attention(y):
            y, new = self.self_attention.step(y, cache, rows, ancestors)
            caches.append(new)
            return y

        x = self._chain(
            x, self_attention, lambda y: self.cross_attention.read(y, memory, rows, memory_mask)
        )
        return x, caches[0]

    def _chain(self, x, self_attention, cross_attention):
        x = self.self_residual(x, sublayer=self_attention)
        x = self.cross_residual(x, sublayer=cross_attention)
        return self.feed_forward_residual(x, sublayer=self.feed_forward)


@keras.saving.register_keras_serializable(package="t2t_keras")
class Decoder(ConfiguredLayer):
    """Embedded target and the encoder's output in, one vector for each next token out.

    Args:
        config: `TransformerConfig`.

    Call arguments:
        x: [batch, target, model_dim], embeddings with positions.
        memory: [batch, source, model_dim], the encoder's output.
        self_mask: of the self-attention, from `make_self_masks().causal` of the config.
        memory_mask: bool, broadcastable to [batch, heads, target, source].

    Returns:
        [batch, target, model_dim].
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        dtype = self.dtype_policy
        self.layers = [
            DecoderLayer(self.config, dtype=dtype, name=f"layer_{i}")
            for i in range(self.config.decoder_layers)
        ]
        self.final_norm = self.config.make_final_norm(dtype=dtype)
        self.build_parts()

    def call(self, x, memory, self_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, self_mask=self_mask, memory_mask=memory_mask)
        return self.final_norm(x)

    def weigh(self, x, memory, self_mask=None, memory_mask=None):
        """Returns what `call` does and all attention weights, to the target and to the source.

        Returns:
            [batch, target, model_dim], float32 [batch, layers, heads, target, target] and float32
            [batch, layers, heads, target, source].
        """
        to_target, to_source = [], []
        for layer in self.layers:
            x, self_weights, cross_weights = layer.weigh(x, memory, self_mask, memory_mask)
            to_target.append(self_weights)
            to_source.append(cross_weights)
        return self.final_norm(x), tf.stack(to_target, axis=1), tf.stack(to_source, axis=1)

    @property
    def matrices(self):
        """The variables of two axes that steps read: all but the projections of the memory."""
        projections = [layer.cross_attention.kv_projection for layer in self.layers]
        others = {id(weight) for projection in projections for weight in projection.weights}
        return [w for w in self.weights if len(w.shape) == 2 and id(w) not in others]

    def project_memory(self, memory):
        """Returns each layer's `KeyValue` of the encoder's output [batch, source, model_dim]."""
        return tuple(layer.cross_attention.project_memory(memory) for layer in self.layers)

    def initial_caches(self, batch):
        """Returns each layer's `KeyValue` of hypotheses without a token."""
        return tuple(layer.self_attention.initial_cache(batch) for layer in self.layers)

    def step(self, x, memories, memory_mask, caches, rows, ancestors=None):
        """Runs the stack on one new position of every hypothesis.

        Arguments as for `DecoderLayer.step`, with memories and caches of all layers.

        Returns:
            [batch · beams, model_dim] and the layers' caches with one step more.
        """
        new_caches = []
        for layer, memory, cache in zip(self.layers, memories, caches, strict=True):
            x, new_cache = layer.step(x, memory, memory_mask, cache, rows, ancestors)
            new_caches.append(new_cache)
        return self.final_norm(x), tuple(new_caches)
