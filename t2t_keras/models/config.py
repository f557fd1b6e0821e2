"""The shape of a Transformer: one frozen dataclass and the paper's presets (Table 3)."""

import dataclasses
from typing import ClassVar

from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.additive_attention import AdditiveAttention
from t2t_keras.layers.attention import DotProductAttention, ScaledDotProductAttention
from t2t_keras.layers.feed_forward import ConvolutionFeedForward, FeedForward
from t2t_keras.layers.local_attention import CausalLocalSelfAttention, LocalSelfAttention
from t2t_keras.layers.masks import DenseMasks, SegmentMasks
from t2t_keras.layers.multi_head import MultiHeadCrossAttention, MultiHeadSelfAttention
from t2t_keras.layers.positions import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.projections import PROJECTIONS
from t2t_keras.layers.residual import PostNormResidual, PreNormResidual
from t2t_keras.layers.selection import ArgMax, Softmax, TemperedSoftmax


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides the weights and the graph of a model; the defaults are "base".

    Attributes:
        vocab_size: number of ids that source and target share; id 0 is padding.
        encoder_layers: layers N of the encoder.
        decoder_layers: layers N of the decoder.
        model_dim: d_model, the width of everything between sub-layers.
        feed_forward_dim: d_ff, the inner width of the feed-forward networks.
        heads: h, attention heads.
        key_dim: d_k, the width of a head's queries and keys; model_dim / heads if None.
        value_dim: d_v, the width of a head's values; key_dim if None. `dataclasses.replace` keeps
            both as they are: with other heads give it None for them.
        dropout: P_drop, on each sub-layer's output and on embedding + position (section 5.4).
        attention_dropout: share of attention weights dropped; the paper does without.
        activation_dropout: share of the feed-forward networks' inner layer dropped; likewise.
        source_word_dropout: share of the source's ids that are padding in training; likewise.
        target_word_dropout: share of the ids that the decoder reads as padding; likewise.
        init_scale: factor on the range (Glorot and Bengio 2010) from which the matrices of
            attention and feed-forward networks are drawn.
        positions: "sinusoidal" (section 3.5) or "learned" (Table 3, row E).
        max_positions: longest sequence that learned positions hold; sinusoidal ones have no limit.
        residual: "post_norm" (section 3.1) or "pre_norm" (Xiong et al. 2020).
        norm_epsilon: added to the variance in layer norms.
        scoring: "scaled_dot_product" (section 3.2.1), "dot_product" (unscaled) or "additive"
            (Bahdanau et al. 2015), in all attention.
        selection: "soft", weights by softmax (section 3.2.1), or "hard", one key for each query.
        inverse_temperature: β of softmax(β · scores); the larger, the nearer soft is to hard.
        window: r, the positions that self-attention is restricted to (section 4); None: all.
        projections: "stacked", W^Q, W^K, W^V in one matrix, or "separate"; the results are equal.
        feed_forward: "dense" or "convolution", two of kernel size 1 (section 3.3); equal too.

    Raises:
        InputError: if a value is out of its range.
    """

    vocab_size: int
    encoder_layers: int = 6
    decoder_layers: int = 6
    model_dim: int = 512
    feed_forward_dim: int = 2048
    heads: int = 8
    key_dim: int | None = None
    value_dim: int | None = None
    dropout: float = 0.1
    positions: str = "sinusoidal"
    max_positions: int = 512
    residual: str = "post_norm"
    norm_epsilon: float = 1e-6
    scoring: str = "scaled_dot_product"
    selection: str = "soft"
    inverse_temperature: float = 1.0
    window: int | None = None
    projections: str = "stacked"
    feed_forward: str = "dense"
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    source_word_dropout: float = 0.0
    target_word_dropout: float = 0.0
    init_scale: float = 1.0

    POSITIONS: ClassVar = ("sinusoidal", "learned")
    RESIDUALS: ClassVar = {"post_norm": PostNormResidual, "pre_norm": PreNormResidual}
    SCORINGS: ClassVar = {
        "scaled_dot_product": ScaledDotProductAttention,
        "dot_product": DotProductAttention,
        "additive": AdditiveAttention,
    }
    SELECTIONS: ClassVar = {"soft": TemperedSoftmax, "hard": ArgMax}
    DROPOUTS: ClassVar = (
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "source_word_dropout",
        "target_word_dropout",
    )
    FEED_FORWARDS: ClassVar = {"dense": FeedForward, "convolution": ConvolutionFeedForward}

    def __post_init__(self):
        self._require_positive_integers()
        for field in self.DROPOUTS:
            if not 0.0 <= getattr(self, field) < 1.0:
                raise InputError(
                    f"{field} is {getattr(self, field)}: give a share from 0 to below 1."
                )
        for field in ("norm_epsilon", "inverse_temperature", "init_scale"):
            if not getattr(self, field) > 0:
                raise InputError(f"{field} is {getattr(self, field)}: give a number above 0.")
        for field, known in (
            ("positions", self.POSITIONS),
            ("residual", self.RESIDUALS),
            ("scoring", self.SCORINGS),
            ("selection", self.SELECTIONS),
            ("projections", PROJECTIONS),
            ("feed_forward", self.FEED_FORWARDS),
        ):
            if getattr(self, field) not in known:
                raise InputError(
                    f"{field} is {getattr(self, field)!r}: give one of {', '.join(known)}."
                )
        if self.key_dim is None:
            if self.model_dim % self.heads:
                raise InputError(
                    f"heads is {self.heads}, which does not divide model_dim {self.model_dim}: "
                    "change one of them or give key_dim."
                )
            object.__setattr__(self, "key_dim", self.model_dim // self.heads)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.key_dim)

    def _require_positive_integers(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type in (int, int | None) and value is not None:
                require_whole_number(field.name, value)

    @classmethod
    def tiny(cls, vocab_size, **overrides):
        """Returns 4 + 4 layers of width 128, about 2.6 million weights at 10,000 ids."""
        sizes = {
            "encoder_layers": 4,
            "decoder_layers": 4,
            "model_dim": 128,
            "feed_forward_dim": 256,
            "heads": 4,
        }
        return cls(vocab_size, **(sizes | overrides))

    @classmethod
    def base(cls, vocab_size, **overrides):
        """Returns the paper's base model (Table 3, first row), 63 million weights at 37,000 ids."""
        return cls(vocab_size, **overrides)

    @classmethod
    def big(cls, vocab_size, **overrides):
        """Returns the paper's big model (Table 3, last row), 214 million weights at 37,000 ids."""
        sizes = {"model_dim": 1024, "feed_forward_dim": 4096, "heads": 16, "dropout": 0.3}
        return cls(vocab_size, **(sizes | overrides))

    @classmethod
    def parsing(cls, vocab_size, **overrides):
        """Returns the paper's model for parsing: 4 layers, d_model 1024 (section 6.3).

        It names neither d_ff nor h; they are those of the big model.
        """
        return cls.big(vocab_size, **({"encoder_layers": 4, "decoder_layers": 4} | overrides))

    def make_positions(self, **kwargs):
        """Returns the layer that adds positions."""
        if self.positions == "learned":
            return LearnedPositions(self.max_positions, **kwargs)
        return SinusoidalPositions(**kwargs)

    def make_residual(self, **kwargs):
        """Returns the wrapping of one sub-layer."""
        return self.RESIDUALS[self.residual](self.dropout, self.norm_epsilon, **kwargs)

    def make_final_norm(self, **kwargs):
        """Returns what follows the last layer of a stack."""
        return self.RESIDUALS[self.residual].final_norm(epsilon=self.norm_epsilon, **kwargs)

    def make_self_attention(self, *, causal, dtype=None, **kwargs):
        """Returns the self-attention of an encoder layer, or of a decoder layer if causal."""
        if self.window is not None:
            kwargs["window"] = self.window
        full = MultiHeadSelfAttention, MultiHeadSelfAttention
        local = LocalSelfAttention, CausalLocalSelfAttention
        kind = (full if self.window is None else local)[causal]
        return kind(**self._attention_arguments(dtype), **kwargs)

    def make_cross_attention(self, *, dtype=None, **kwargs):
        """Returns the attention of a decoder layer to the encoder's output."""
        return MultiHeadCrossAttention(**self._attention_arguments(dtype), **kwargs)

    def _attention_arguments(self, dtype):
        # A softmax that need not be tempered has one operation less.
        tempered = self.selection != "soft" or self.inverse_temperature != 1.0
        make_selection = self.SELECTIONS[self.selection]
        selection = make_selection(self.inverse_temperature) if tempered else Softmax()
        return {
            "heads": self.heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "attend": self.SCORINGS[self.scoring](selection, self.attention_dropout, dtype=dtype),
            "projections": self.projections,
            "kernel_initializer": self._kernel_initializer(),
            "dtype": dtype,
        }

    def make_self_masks(self):
        """Returns what makes the masks that the layers of `make_self_attention` take."""
        return DenseMasks() if self.window is None else SegmentMasks()

    def make_feed_forward(self, **kwargs):
        """Returns the feed-forward network of a layer."""
        kind = self.FEED_FORWARDS[self.feed_forward]
        return kind(
            self.feed_forward_dim, self.activation_dropout, self._kernel_initializer(), **kwargs
        )

    def _kernel_initializer(self):
        # Described, not made: one object would give every matrix of a shape the same numbers.
        scaled = {"scale": self.init_scale**2, "mode": "fan_avg", "distribution": "uniform"}
        return {"class_name": "VarianceScaling", "config": scaled}
