"""Tables from the names in a `TransformerConfig` to classes.

The paper's own choice is first in each table. A new variant is a class in this folder, with the
same `call` as the class that it replaces, and an entry here. `in_ctranslate2 = True` in the class
itself says that `serving.ctranslate2` exports it. `TransformerConfig` documents the names,
`models.parts` makes the layers.
"""

from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.layers.residual import PostNorm, PreNorm
from t2t_keras.layers.variants.additive_attention import AdditiveAttention
from t2t_keras.layers.variants.attention import DotProductAttention, HardMax, TemperedSoftmax
from t2t_keras.layers.variants.feed_forward import ConvolutionFeedForward
from t2t_keras.layers.variants.positions import (
    FairseqSinusoidalPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
)

ATTENTION_SCORES = {
    "scaled_dot_product": ScaledDotProductAttention,
    "dot_product": DotProductAttention,
    "additive": AdditiveAttention,
}
ATTENTION_WEIGHTS = {"softmax": TemperedSoftmax, "hard": HardMax}
FEED_FORWARDS = {"dense": FeedForward, "convolution": ConvolutionFeedForward}
NORMS = {"post": PostNorm, "pre": PreNorm}
POSITION_EMBEDDINGS = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "rotary": RotaryPositions,
    "relative": RelativePositions,
    "fairseq_sinusoidal": FairseqSinusoidalPositions,
}
