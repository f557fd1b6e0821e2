"""The shape of a Transformer: one frozen dataclass and the paper's presets (Table 3)."""

import dataclasses
import math
from dataclasses import MISSING

from t2t_keras.errors import InputError
from t2t_keras.settings import Choice, Range, Switch, documented, setting, settings_of

_COUNT = Range(1, math.inf, whole=True)
_OPTIONAL = dataclasses.replace(_COUNT, optional=True)
_RATE = Range(0, 1, exclude_most=True)
_POSITIVE = Range(0, math.inf, exclude_least=True)

TINY = {
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "model_dim": 128,
    "feed_forward_dim": 256,
    "num_heads": 4,
}
BIG = {"model_dim": 1024, "feed_forward_dim": 4096, "num_heads": 16, "dropout": 0.3}
PARSING = BIG | {"num_encoder_layers": 4, "num_decoder_layers": 4}
"""Fields of the presets that differ from "base"."""


@documented
@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """All settings of a model's weights and graph; the defaults are "base".

    Args: the fields below.

    Raises:
        InputError: if a value is out of its range, or two fields contradict each other.

    Example:
        >>> config = t2t.TransformerConfig.base(vocab_size=32_000, norm="pre")
        >>> config.key_dim
        64
    """

    vocab_size: int = setting(
        MISSING, _COUNT, "Size of the vocabulary that source and target share; id 0 is padding."
    )
    num_encoder_layers: int = setting(6, _COUNT, "N, layers of the encoder (section 3.1).")
    num_decoder_layers: int = setting(6, _COUNT, "N, layers of the decoder.")
    model_dim: int = setting(512, _COUNT, "d_model, width of everything between sub-layers.")
    feed_forward_dim: int = setting(2048, _COUNT, "d_ff, inner width of feed-forward networks.")
    num_heads: int = setting(8, _COUNT, "h, attention heads of each layer (section 3.2.2).")
    key_dim: int | None = setting(
        None, _OPTIONAL, "d_k, width of a head's queries and keys; None: model_dim / num_heads."
    )
    value_dim: int | None = setting(
        None,
        _OPTIONAL,
        "d_v, width of a head's values; None: key_dim. `dataclasses.replace` keeps both; give None "
        "for them if num_heads changes.",
    )
    dropout: float = setting(
        0.1,
        _RATE,
        "P_drop, dropout rate of sub-layers' outputs and of embedding + position (section 5.4); 0: "
        "none.",
    )
    attention_dropout: float = setting(
        0.0, _RATE, "Rate at which attention weights are dropped; 0: none, as in the paper."
    )
    activation_dropout: float = setting(
        0.0, _RATE, "Rate in the inner layer of feed-forward networks; 0: none, as in the paper."
    )
    position_embedding: str = setting(
        "sinusoidal",
        Choice(("sinusoidal", "learned", "rotary", "relative", "fairseq_sinusoidal")),
        '"sinusoidal" (section 3.5), "learned" (Table 3, row E) or "fairseq_sinusoidal" (M2M-100, '
        'NLLB), added to the embedded tokens; "rotary" (Su et al. 2021) or "relative" (Shaw et al. '
        "2018), in self-attention.",
    )
    max_positions: int = setting(512, _COUNT, "Longest sequence of learned positions.")
    max_relative_distance: int = setting(
        16, _COUNT, "Longest distance of relative positions that has vectors of its own."
    )
    norm: str = setting(
        "post", Choice(("post", "pre")), '"post"-norm (section 3.1) or "pre" (Xiong et al. 2020).'
    )
    norm_epsilon: float = setting(1e-6, _POSITIVE, "Added to the variance in layer norms.")
    attention_score: str = setting(
        "scaled_dot_product",
        Choice(("scaled_dot_product", "dot_product", "additive")),
        '"scaled_dot_product" (section 3.2.1), "dot_product" (unscaled) or "additive" (Bahdanau et '
        "al. 2015), in all attention.",
    )
    attention_weights: str = setting(
        "softmax",
        Choice(("softmax", "hard")),
        '"softmax" (section 3.2.1), or "hard", one key for each query.',
    )
    attention_temperature: float = setting(
        1.0, _POSITIVE, "T of softmax(scores / T); the lower, the nearer to hard attention."
    )
    attention_window: int | None = setting(
        None,
        _OPTIONAL,
        "r, neighboring positions that self-attention is restricted to (section 4); None: all.",
    )
    fused_qkv: bool = setting(
        True, Switch(), "Whether W^Q, W^K, W^V are stored as one matrix; the function is the same."
    )
    feed_forward: str = setting(
        "dense",
        Choice(("dense", "convolution")),
        '"dense" or "convolution", two of kernel size 1 (section 3.3); the function is the same.',
    )
    activation: str = setting(
        "relu",
        Choice(("relu", "gelu", "silu")),
        '"relu" (section 3.3), "gelu" or "silu", of the feed-forward networks.',
    )
    attention_bias: bool = setting(
        False, Switch(), "Whether the projections of attention add biases; the paper's do not."
    )
    embedding_sharing: str = setting(
        "all",
        Choice(("all", "target", "none")),
        '"all", one matrix for both embeddings and the output projection (section 3.4); "target", '
        'one for target embedding and output projection; or "none".',
    )
    scale_embedding: bool = setting(
        True, Switch(), "Whether embeddings are multiplied by √model_dim (section 3.4)."
    )
    output_bias: bool = setting(False, Switch(), "Whether logits have a bias; the paper's do not.")
    source_vocab_size: int | None = setting(
        None,
        _OPTIONAL,
        "Size of a source vocabulary of its own, as imported models may have; None: vocab_size.",
    )

    def __post_init__(self):
        for name, field in settings_of(self).items():
            object.__setattr__(self, name, field.allowed.check(name, getattr(self, name)))
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
    def of(cls, config: "TransformerConfig | dict") -> "TransformerConfig":
        """Returns a config unchanged, or makes one from a dict of its fields.

        Raises:
            InputError: for an unknown field, or another type.
        """
        if isinstance(config, dict):
            if unknown := sorted(config.keys() - {field.name for field in dataclasses.fields(cls)}):
                raise InputError(
                    f"a TransformerConfig has no field {unknown[0]!r}: remove it, or load "
                    "the model with the version of t2t_keras that wrote it."
                )
            return cls(**config)
        if not isinstance(config, cls):
            raise InputError(f"config is {config!r}: give a TransformerConfig, or its fields.")
        return config

    @classmethod
    def tiny(cls, vocab_size: int, **overrides) -> "TransformerConfig":
        """Returns 4 + 4 layers of width 128, about 2.6 million weights at 10,000 ids."""
        return cls(vocab_size, **(TINY | overrides))

    @classmethod
    def base(cls, vocab_size: int, **overrides) -> "TransformerConfig":
        """Returns the paper's base model (Table 3, first row), 63 million weights at 37,000 ids."""
        return cls(vocab_size, **overrides)

    @classmethod
    def big(cls, vocab_size: int, **overrides) -> "TransformerConfig":
        """Returns the paper's big model (Table 3, last row), 214 million weights at 37,000 ids."""
        return cls(vocab_size, **(BIG | overrides))

    @classmethod
    def parsing(cls, vocab_size: int, **overrides) -> "TransformerConfig":
        """Returns the paper's model for parsing: 4 layers, d_model 1024 (section 6.3).

        The paper gives neither d_ff nor h for it; they are taken from the big model.
        """
        return cls(vocab_size, **(PARSING | overrides))

    @property
    def encoder_vocab_size(self) -> int:
        """The number of ids of the source, int."""
        return self.source_vocab_size or self.vocab_size
