"""The encoder: a stack of N identical layers (paper, section 3.1)."""

import keras
import tensorflow as tf

from t2t_keras.models.stack import ConfiguredLayer


@keras.saving.register_keras_serializable(package="t2t_keras")
class EncoderLayer(ConfiguredLayer):
    """Self-attention, then a feed-forward network, each in its residual connection.

    Args:
        config: `TransformerConfig`.

    Call arguments:
        x: [batch, source, model_dim].
        attention_mask: of the self-attention, from `make_self_masks().whole` of the config.

    Returns:
        [batch, source, model_dim].
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.attention = config.make_self_attention(causal=False, dtype=dtype, name="attention")
        self.feed_forward = config.make_feed_forward(dtype=dtype, name="feed_forward")
        self.attention_residual = config.make_residual(dtype=dtype, name="attention_residual")
        self.feed_forward_residual = config.make_residual(dtype=dtype, name="feed_forward_residual")
        self.build_parts()

    def call(self, x, attention_mask=None):
        return self._chain(x, lambda y: self.attention(y, attention_mask=attention_mask))

    def weigh(self, x, attention_mask=None):
        """Returns what `call` does and its attention weights [batch, heads, source, source]."""
        weights = []

        def attention(y):
            weights.append(self.attention.weigh(y, attention_mask))
            return self.attention(y, attention_mask=attention_mask)

        return self._chain(x, attention), weights[0]

    def _chain(self, x, attention):
        x = self.attention_residual(x, sublayer=attention)
        return self.feed_forward_residual(x, sublayer=self.feed_forward)


@keras.saving.register_keras_serializable(package="t2t_keras")
class Encoder(ConfiguredLayer):
    """Embedded source in, one vector of context for each position out.

    Args:
        config: `TransformerConfig`.

    Call arguments:
        x: [batch, source, model_dim], embeddings with positions.
        attention_mask: of the self-attention, from `make_self_masks().whole` of the config.

    Returns:
        [batch, source, model_dim].
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        dtype = self.dtype_policy
        self.layers = [
            EncoderLayer(self.config, dtype=dtype, name=f"layer_{i}")
            for i in range(self.config.encoder_layers)
        ]
        self.final_norm = self.config.make_final_norm(dtype=dtype)
        self.build_parts()

    def call(self, x, attention_mask=None):
        for layer in self.layers:
            x = layer(x, attention_mask=attention_mask)
        return self.final_norm(x)

    def weigh(self, x, attention_mask=None):
        """Returns what `call` does and all attention weights.

        Returns:
            [batch, source, model_dim] and float32 [batch, layers, heads, source, source].
        """
        weights = []
        for layer in self.layers:
            x, layer_weights = layer.weigh(x, attention_mask)
            weights.append(layer_weights)
        return self.final_norm(x), tf.stack(weights, axis=1)
