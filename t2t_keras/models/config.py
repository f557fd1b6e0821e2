"""The shape of a Transformer: one frozen dataclass and the paper's presets (Table 3)."""

import dataclasses

from t2t_keras.errors import (
    InputError,
    require_positive,
    require_rate,
    require_whole_number,
)
from t2t_keras.layers import variants
from t2t_keras.layers.attention import MultiHeadCrossAttention
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.models.first_edition import upgrade_fields

_CHOICES = {
    "activation": variants.ACTIVATIONS,
    "attention_score": variants.ATTENTION_SCORES,
    "attention_weights": variants.ATTENTION_WEIGHTS,
    "embedding_sharing": ("all", "target", "none"),
    "feed_forward": variants.FEED_FORWARDS,
    "norm": variants.NORMS,
    "position_embedding": variants.POSITION_EMBEDDINGS,
}


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides the weights and the graph of a model; the defaults are "base".

    Args:
        vocab_size: number of ids that source and target share; id 0 is padding.
        source_vocab_size: number of ids of the source, where it has a vocabulary of its own; None:
            vocab_size.
        num_encoder_layers: N of the encoder.
        num_decoder_layers: N of the decoder.
        model_dim: d_model, width of everything between sub-layers.
        feed_forward_dim: d_ff, inner width of the feed-forward networks.
        num_heads: h, attention heads.
        key_dim: d_k, width of a head's queries and keys; model_dim / num_heads if None.
        value_dim: d_v, width of a head's values; key_dim if None. `dataclasses.replace` keeps
            both; give None for them where num_heads changes.
        dropout: P_drop, on each sub-layer's output and on embedding + position (section 5.4).
        attention_dropout: rate at which attention weights are dropped; the paper has none.
        activation_dropout: rate in the inner layer of feed-forward networks; the paper has none.
        position_embedding: "sinusoidal" (section 3.5) or "learned" (Table 3, row E), added to the
            embedded tokens; "rotary" (Su et al. 2021) or "relative" (Shaw et al. 2018), in
            self-attention.
        max_positions: longest sequence of learned positions; the others have no limit.
        max_relative_distance: longest distance of relative positions that has vectors of its own.
        norm: "post" (section 3.1) or "pre" (Xiong et al. 2020), placement of the layer norms.
        norm_epsilon: added to the variance in layer norms.
        attention_score: "scaled_dot_product" (section 3.2.1), "dot_product" (unscaled) or
            "additive" (Bahdanau et al. 2015), in all attention.
        attention_weights: "softmax" (section 3.2.1), or "hard", one key for each query.
        attention_temperature: T of softmax(scores / T); the lower, the nearer to hard.
        attention_window: r, positions that self-attention is restricted to (section 4); None: all.
        fused_qkv: whether W^Q, W^K, W^V are one matrix; the results are equal.
        feed_forward: "dense" or "convolution", two of kernel size 1 (section 3.3); equal too.
        activation: "relu" (section 3.3), "gelu" or "silu", of the feed-forward networks.
        attention_bias: whether the projections of attention add biases; the paper's do not.
        embedding_sharing: "all", one matrix for both embeddings and the output projection (section
            3.4); "target", one for target embedding and output projection; or "none".
        scale_embedding: whether embeddings are multiplied by √model_dim (section 3.4).
        output_bias: whether the logits have a bias; the paper's have none.

    Raises:
        InputError: if a value is out of its range.

    Example:
        >>> config = t2t.TransformerConfig.base(vocab_size=32_000, norm="pre")
        >>> config.key_dim
        64
    """

    vocab_size: int
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    model_dim: int = 512
    feed_forward_dim: int = 2048
    num_heads: int = 8
    key_dim: int | None = None
    value_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    position_embedding: str = "sinusoidal"
    max_positions: int = 512
    max_relative_distance: int = 16
    norm: str = "post"
    norm_epsilon: float = 1e-6
    attention_score: str = "scaled_dot_product"
    attention_weights: str = "softmax"
    attention_temperature: float = 1.0
    attention_window: int | None = None
    fused_qkv: bool = True
    feed_forward: str = "dense"
    activation: str = "relu"
    attention_bias: bool = False
    embedding_sharing: str = "all"
    scale_embedding: bool = True
    output_bias: bool = False
    source_vocab_size: int | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type in (int, int | None) and value is not None:
                require_whole_number(field.name, value)
            if field.name.endswith("dropout"):
                require_rate(field.name, value)
            if field.name in ("norm_epsilon", "attention_temperature"):
                require_positive(field.name, value)
            if field.name in _CHOICES and value not in _CHOICES[field.name]:
                names = ", ".join(_CHOICES[field.name])
                raise InputError(f"{field.name} is {value!r}: give one of {names}.")
        if self.embedding_sharing == "all" and self.encoder_vocab_size != self.vocab_size:
            raise InputError(
                f"source_vocab_size is {self.source_vocab_size} and vocab_size {self.vocab_size}, "
                'but source and target share a matrix: give embedding_sharing "target" or "none".'
            )
        if self.key_dim is None:
            if self.model_dim % self.num_heads:
                raise InputError(
                    f"num_heads is {self.num_heads}, which does not divide model_dim "
                    f"{self.model_dim}: change one of them or give key_dim."
                )
            object.__setattr__(self, "key_dim", self.model_dim // self.num_heads)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.key_dim)

    @classmethod
    def of(cls, config):
        """Returns a config unchanged, or the config of its fields, a dict of any edition."""
        if isinstance(config, dict):
            return cls(**upgrade_fields(config))
        if not isinstance(config, cls):
            raise InputError(f"config is {config!r}: give a TransformerConfig, or its fields.")
        return config

    @classmethod
    def tiny(cls, vocab_size, **overrides):
        """Returns 4 + 4 layers of width 128, about 2.6 million weights at 10,000 ids."""
        sizes = {
            "num_encoder_layers": 4,
            "num_decoder_layers": 4,
            "model_dim": 128,
            "feed_forward_dim": 256,
            "num_heads": 4,
        }
        return cls(vocab_size, **(sizes | overrides))

    @classmethod
    def base(cls, vocab_size, **overrides):
        """Returns the paper's base model (Table 3, first row), 63 million weights at 37,000 ids."""
        return cls(vocab_size, **overrides)

    @classmethod
    def big(cls, vocab_size, **overrides):
        """Returns the paper's big model (Table 3, last row), 214 million weights at 37,000 ids."""
        sizes = {"model_dim": 1024, "feed_forward_dim": 4096, "num_heads": 16, "dropout": 0.3}
        return cls(vocab_size, **(sizes | overrides))

    @classmethod
    def parsing(cls, vocab_size, **overrides):
        """Returns the paper's model for parsing: 4 layers, d_model 1024 (section 6.3).

        It names neither d_ff nor h; they are those of the big model.
        """
        layers = {"num_encoder_layers": 4, "num_decoder_layers": 4}
        return cls.big(vocab_size, **(layers | overrides))

    @property
    def encoder_vocab_size(self):
        """The number of ids of the source, int."""
        return self.source_vocab_size or self.vocab_size

    # The layers of a model, by the names above; see `layers.variants` for the tables.

    def make_self_attention(self, *, causal, dtype=None, name=None):
        """Returns the self-attention of an encoder layer, or of a decoder layer if causal."""
        return variants.make_self_attention(self, causal=causal, **self._attention(dtype, name))

    def make_cross_attention(self, dtype=None, name=None):
        """Returns the attention of a decoder layer to the encoder's output."""
        return MultiHeadCrossAttention(**self._attention(dtype, name))

    def _attention(self, dtype, name):
        return {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "attention": variants.make_attention(self, dtype=dtype, name="scores"),
            "fused": self.fused_qkv,
            "use_bias": self.attention_bias,
            "dtype": dtype,
            "name": name,
        }

    def make_feed_forward(self, **kwargs):
        """Returns the feed-forward network of a layer."""
        kind = variants.FEED_FORWARDS[self.feed_forward]
        return kind(self.feed_forward_dim, self.activation_dropout, self.activation, **kwargs)

    def make_residual(self, **kwargs):
        """Returns norm, dropout and residual connection of one sub-layer."""
        return variants.NORMS[self.norm](self.dropout, self.norm_epsilon, **kwargs)

    def make_final_norm(self, **kwargs):
        """Returns the layer that follows the last layer of a stack."""
        return variants.NORMS[self.norm].final_norm(epsilon=self.norm_epsilon, **kwargs)

    def make_embeddings(self, **kwargs):
        """Returns target embedding, source embedding and output projection.

        They are one `SharedEmbedding`, two or three, as `embedding_sharing` says.
        """

        def make(vocab_size, output_bias, name):
            return SharedEmbedding(
                vocab_size, self.model_dim, self.scale_embedding, output_bias, name=name, **kwargs
            )

        tied = self.embedding_sharing != "none"
        target = make(self.vocab_size, tied and self.output_bias, "embedding")
        source = output = target
        if self.embedding_sharing != "all":
            source = make(self.encoder_vocab_size, False, "source_embedding")
        if not tied:
            output = make(self.vocab_size, self.output_bias, "output_projection")
        return target, source, output

    def make_positions(self, **kwargs):
        """Returns the layer that adds positions to embedded tokens."""
        return variants.make_positions(self, **kwargs)
