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
    """The variables of the formulas of Table 1."""

    n: int  # length of the sequence
    d: int  # width of a position
    k: int = 3  # kernel size of convolutions
    r: int = 32  # window of restricted self-attention, at most n


class LayerType(NamedTuple):
    """One row of Table 1: the paper's formulas without O( ), and functions of `Sizes`."""

    name: str
    complexity: str
    sequential: str
    path: str
    flops: Callable  # the exact FLOPs of all products of the layer
    make: Callable  # a new Keras layer from [batch, n, d] to [batch, n, d]


def evaluate(formula, sizes):
    """Returns the value of a formula of the table."""
    for old, new in (("·", "*"), ("²", "**2"), ("log_k(n)", "log(n, k)")):
        formula = formula.replace(old, new)
    return eval(formula, {"log": math.log}, sizes._asdict())


class _Bare:
    """Self-attention without its projections: queries, keys and values are the input."""

    def build(self, input_shape):
        self.qkv_projection = lambda x: [x, x, x]
        self.output_projection = lambda x: x


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
        *(f"Recurrent ({layer.__name__})", "n·d²", "n", "n"),
        flops=lambda s: 4 * gates * s.n * s.d**2,  # input and state, for each gate
        make=lambda s: layer(s.d, return_sequences=True),
    )


def _convolution(name, layer, complexity):
    return LayerType(
        *(name, complexity, "1", "log_k(n)"),
        flops=lambda s: 2 * evaluate(complexity, s),
        make=lambda s: layer(s.d, s.k, padding="same", use_bias=False),
    )


TABLE_1 = (
    LayerType("Self-attention", "n²·d", "1", "1",
              lambda s: 4 * s.n**2 * s.d, lambda s: _SelfAttention(1, s.d)),
    _recurrent(keras.layers.SimpleRNN, 1),
    _recurrent(keras.layers.GRU, 3),
    _recurrent(keras.layers.LSTM, 4),
    _convolution("Convolutional", keras.layers.Conv1D, "k·n·d²"),
    _convolution("Separable convolutional", keras.layers.SeparableConv1D, "k·n·d + n·d²"),
    LayerType("Self-attention (restricted)", "r·n·d", "1", "n/r",
              _restricted_flops, lambda s: _RestrictedSelfAttention(1, s.d, window=s.r)),
    LayerType("Self-attention with projections", "n²·d + n·d²", "1", "1",
              lambda s: 4 * s.n**2 * s.d + 8 * s.n * s.d**2,
              lambda s: MultiHeadSelfAttention(1, s.d)),
)  # fmt: skip
"""The paper's rows, with three kinds of recurrence, the separable convolution of its text, and
self-attention with the model's projections."""
