"""Tables from the names in a `TransformerConfig` to classes.

The paper's own choice is first in each table. A new variant is a class in this folder, with the
same `call` as the class that it replaces, and an entry here. `TransformerConfig` documents the
names.
"""

from t2t_keras.layers.attention import MultiHeadSelfAttention, ScaledDotProductAttention, Softmax
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.positions import (
    LearnedPositions,
    PositionEmbedding,
    SinusoidalPositions,
)
from t2t_keras.layers.residual import PostNorm, PreNorm
from t2t_keras.layers.variants.additive_attention import AdditiveAttention
from t2t_keras.layers.variants.attention import DotProductAttention, HardMax, TemperedSoftmax
from t2t_keras.layers.variants.feed_forward import ConvolutionFeedForward
from t2t_keras.layers.variants.local_attention import LocalSelfAttention
from t2t_keras.layers.variants.positions import RelativePositions, RotaryPositions

ATTENTION_SCORES = {
    "scaled_dot_product": ScaledDotProductAttention,
    "dot_product": DotProductAttention,
    "additive": AdditiveAttention,
}
ATTENTION_WEIGHTS = {"softmax": TemperedSoftmax, "hard": HardMax}
ACTIVATIONS = ("relu", "gelu", "silu")
"""Names of Keras activations of the feed-forward networks."""
FEED_FORWARDS = {"dense": FeedForward, "convolution": ConvolutionFeedForward}
NORMS = {"post": PostNorm, "pre": PreNorm}
POSITION_EMBEDDINGS = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "rotary": RotaryPositions,
    "relative": RelativePositions,
}


def make_attention(config, **kwargs):
    """Returns the attention of one layer, all heads together."""
    if config.attention_weights == "softmax" and config.attention_temperature == 1.0:
        normalize = Softmax()  # one operation less
    else:
        normalize = ATTENTION_WEIGHTS[config.attention_weights](config.attention_temperature)
    kind = ATTENTION_SCORES[config.attention_score]
    return kind(normalize, config.attention_dropout, **kwargs)


def make_self_attention(config, **kwargs):
    """Returns multi-head self-attention over the whole sequence, or over a window of it."""
    kind = POSITION_EMBEDDINGS[config.position_embedding]
    if kind.in_attention:
        kwargs["positions"] = kind.from_transformer(
            config, dtype=kwargs.get("dtype"), name="positions"
        )
    if config.attention_window is None:
        return MultiHeadSelfAttention(**kwargs)
    return LocalSelfAttention(window=config.attention_window, **kwargs)


def make_positions(config, **kwargs):
    """Returns the layer that adds positions to embedded tokens, nothing if attention has them."""
    kind = POSITION_EMBEDDINGS[config.position_embedding]
    return (
        PositionEmbedding(**kwargs)
        if kind.in_attention
        else kind.from_transformer(config, **kwargs)
    )
