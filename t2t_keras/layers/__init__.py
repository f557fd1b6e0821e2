"""The paper's section 3 as Keras layers, for your own models.

They support `keras.Input`, masking, mixed precision and saving like `keras.layers`.
`SharedEmbedding` masks id 0; attention and poolings leave masked positions out. `t2t_keras.models`
contains `EncoderLayer` and `DecoderLayer`, which consist of these layers.

Example:

>>> from t2t_keras import layers
>>> ids = keras.Input([None], dtype="int32")
>>> x = layers.SinusoidalPositions()(layers.SharedEmbedding(1000, 64)(ids))
>>> residual = layers.PostNorm()
>>> x = residual(x, layers.MultiHeadSelfAttention(num_heads=4, key_dim=16)(residual(x)))
>>> keras.Model(ids, layers.MeanPooling()(x)).output_shape
(None, 64)
"""

from t2t_keras.layers.attention import (
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    ScaledDotProductAttention,
    Sequences,
    Softmax,
    causal_mask,
    padding_mask,
    segment_mask,
)
from t2t_keras.layers.basic import Dropout, LayerNorm, Linear
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.pooling import AttentionPooling, FirstPooling, MaxPooling, MeanPooling
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.layers.residual import PostNorm, PreNorm
from t2t_keras.layers.variants.additive_attention import AdditiveAttention
from t2t_keras.layers.variants.attention import DotProductAttention, HardMax, TemperedSoftmax
from t2t_keras.layers.variants.feed_forward import ConvolutionFeedForward
from t2t_keras.layers.variants.local_attention import LocalSelfAttention
from t2t_keras.layers.variants.positions import (
    FairseqSinusoidalPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
)

__all__ = [name for name, value in globals().items() if callable(value)]
