"""The rows of Table 1: the cost of a layer that maps n positions of width d to n of width d.

The table's self-attention is softmax(X Xᵀ / √d) X, without W^Q, W^K, W^V and W^O. The attention
layers here are therefore those of `t2t_keras.layers` without projections; a further row has them.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras

from t2t_keras.layers.attention import MultiHeadSelfAttention
from t2t_keras.layers.variants.local_attention import NEIGHBORS, Blocks, LocalSelfAttention


class Sizes(NamedTuple):
    """The variables of the formulas of Table 1.

    Attributes:
        n: length of the sequence.
        d: width of a position.
        k: kernel size of convolutions.
        r: window of restricted self-attention.
    """

    n: int
    d: int
    k: int = 3
    r: int = 32


class LayerType(NamedTuple):
    """One row of Table 1.

    Attributes:
        name: str.
        complexity, sequential, path: str, the paper's formulas without O( ).
        operations: function of `Sizes`, the value of `complexity`.
        steps: function of `Sizes`, the value of `sequential`.
        distance: function of `Sizes`, the value of `path`.
        flops: function of `Sizes`, the exact FLOPs of all products of the layer.
        make: function of `Sizes`, a new Keras layer from [batch, n, d] to [batch, n, d].
    """

    name: str
    complexity: str
    sequential: str
    path: str
    operations: Callable
    steps: Callable
    distance: Callable
    flops: Callable
    make: Callable


class _Bare:
    """Self-attention without its projections: queries, keys and values are the input."""

    def build(self, input_shape):
        self.qkv_projection = self._input
        self.output_projection = lambda x: x

    @staticmethod
    def _input(x):
        return [x, x, x]


class _SelfAttention(_Bare, MultiHeadSelfAttention):
    pass


class _RestrictedSelfAttention(_Bare, LocalSelfAttention):
    pass


def _restricted_flops(sizes):
    blocks = Blocks.of(sizes.n, sizes.r)
    keys = len(NEIGHBORS[False]) * int(blocks.size)
    return 4 * int(blocks.count) * int(blocks.size) * keys * sizes.d


def _recurrent(layer, gates):
    return LayerType(
        f"Recurrent ({layer.__name__})",
        "n·d²",
        "n",
        "n",
        operations=lambda s: s.n * s.d**2,
        steps=lambda s: s.n,
        distance=lambda s: s.n,
        flops=lambda s: 4 * gates * s.n * s.d**2,  # input and state, for each gate
        make=lambda s: layer(s.d, return_sequences=True),
    )


def _convolution(name, layer, complexity, operations, flops):
    return LayerType(
        name,
        complexity,
        "1",
        "log_k(n)",
        operations=operations,
        steps=lambda s: 1,
        distance=lambda s: math.log(s.n, s.k),
        flops=flops,
        make=lambda s: layer(s.d, s.k, padding="same", use_bias=False),
    )


SELF_ATTENTION = LayerType(
    "Self-attention",
    "n²·d",
    "1",
    "1",
    operations=lambda s: s.n**2 * s.d,
    steps=lambda s: 1,
    distance=lambda s: 1,
    flops=lambda s: 4 * s.n**2 * s.d,
    make=lambda s: _SelfAttention(1, s.d),
)

SIMPLE_RECURRENT = _recurrent(keras.layers.SimpleRNN, 1)

CONVOLUTION = _convolution(
    "Convolutional",
    keras.layers.Conv1D,
    "k·n·d²",
    operations=lambda s: s.k * s.n * s.d**2,
    flops=lambda s: 2 * s.k * s.n * s.d**2,
)

TABLE_1 = (
    SELF_ATTENTION,
    SIMPLE_RECURRENT,
    _recurrent(keras.layers.GRU, 3),
    _recurrent(keras.layers.LSTM, 4),
    CONVOLUTION,
    _convolution(
        "Separable convolutional",
        keras.layers.SeparableConv1D,
        "k·n·d + n·d²",
        operations=lambda s: s.k * s.n * s.d + s.n * s.d**2,
        flops=lambda s: 2 * (s.k * s.n * s.d + s.n * s.d**2),
    ),
    LayerType(
        "Self-attention (restricted)",
        "r·n·d",
        "1",
        "n/r",
        operations=lambda s: min(s.r, s.n) * s.n * s.d,
        steps=lambda s: 1,
        distance=lambda s: max(1, s.n / s.r),
        flops=_restricted_flops,
        make=lambda s: _RestrictedSelfAttention(1, s.d, window=s.r),
    ),
    LayerType(
        "Self-attention with projections",
        "n²·d + n·d²",
        "1",
        "1",
        operations=lambda s: s.n**2 * s.d + s.n * s.d**2,
        steps=lambda s: 1,
        distance=lambda s: 1,
        flops=lambda s: 4 * s.n**2 * s.d + 8 * s.n * s.d**2,
        make=lambda s: MultiHeadSelfAttention(1, s.d),
    ),
)
"""The paper's rows, with three kinds of recurrence, the separable convolution of its text, and
self-attention with the model's projections."""
