"""Table 1's formulas, against the paper's values and the graphs of the layers."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_types import TABLE_1, Sizes, evaluate
from measurement import fitted_exponent, peak_memory, trace_layer

from t2t_keras.analysis.counts import count_graph_flops
from t2t_keras.errors import InputError

SIZES = Sizes(n=40, d=6, k=3, r=5)
BY_NAME = {row.name: row for row in TABLE_1}

# Table 1 and section 4, evaluated by hand at n = 40, d = 6, k = 3, r = 5.
PAPER = {
    "Self-attention": (1600 * 6, 1, 1),
    "Recurrent (SimpleRNN)": (40 * 36, 40, 40),
    "Recurrent (GRU)": (40 * 36, 40, 40),
    "Recurrent (LSTM)": (40 * 36, 40, 40),
    "Convolutional": (3 * 40 * 36, 1, math.log(40) / math.log(3)),
    "Separable convolutional": (3 * 40 * 6 + 40 * 36, 1, math.log(40) / math.log(3)),
    "Self-attention (restricted)": (5 * 40 * 6, 1, 40 / 5),
    "Self-attention with projections": (1600 * 6 + 40 * 36, 1, 1),
}


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: row.name)
def test_the_formulas_are_the_papers(row):
    values = [evaluate(formula, SIZES) for formula in (row.complexity, row.sequential, row.path)]
    assert values == pytest.approx(PAPER[row.name])


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: row.name)
def test_the_flops_are_those_of_the_graph(row):
    layer = row.make(SIZES)
    if "Recurrent" in row.name:  # unrolled: no loop
        layer = type(layer).from_config(layer.get_config() | {"unroll": True})
    traced = trace_layer(layer, (1, SIZES.n, SIZES.d))
    assert traced.function.outputs[0].shape == (1, SIZES.n, SIZES.d)
    assert count_graph_flops(traced.function) == row.flops(SIZES)


def test_bare_attention_is_equation_1_with_the_input_for_all_three():
    x = np.random.default_rng(0).normal(size=(1, 40, 6)).astype("float32")
    weights = tf.nn.softmax(x[0] @ x[0].T / 6**0.5)
    traced = trace_layer(BY_NAME["Self-attention"].make(SIZES), x.shape)
    np.testing.assert_allclose(traced.function([], [], x)[0], weights @ x[0], atol=1e-5)
    wide = BY_NAME["Self-attention (restricted)"].make(SIZES._replace(r=40))
    traced = trace_layer(wide, x.shape)
    np.testing.assert_allclose(traced.function([], [], x)[0], weights @ x[0], atol=1e-5)


def test_the_peak_is_the_memory_held_together():
    class Chain(keras.layers.Layer):
        def call(self, x):
            x = tf.matmul(x, x)  # 4 bytes a number; neither a constant nor in place
            x = tf.matmul(x, x)
            return tf.matmul(x, x)

    peak = peak_memory(trace_layer(Chain(), (256, 256)))
    assert 2 * 4 * 256**2 <= peak < 2.2 * 4 * 256**2  # a product's input and its output


def test_scores_take_n_squared_and_states_n():
    attention, recurrent = BY_NAME["Self-attention"], BY_NAME["Recurrent (GRU)"]

    def peaks(row, lengths):
        return [peak_memory(trace_layer(row.make(Sizes(n, 64)), (1, n, 64))) for n in lengths]

    lengths = [512, 1024]
    # Scores, which softmax overwrites, and the output; float32.
    expected = [4 * (n**2 + n * 64) for n in lengths]
    assert peaks(attention, lengths) == pytest.approx(expected, rel=0.05)
    assert fitted_exponent(lengths, peaks(recurrent, lengths)) == pytest.approx(1, abs=0.2)


def test_the_exponent_is_that_of_the_larger_sizes():
    sizes = np.array([10, 100, 1_000, 10_000])
    assert fitted_exponent(sizes, 7 * sizes**1.5) == pytest.approx(1.5)
    constant_hides = 1e6 + sizes**2.0
    assert (
        fitted_exponent(sizes, constant_hides)
        > 1.2
        > np.polyfit(np.log(sizes), np.log(constant_hides), 1)[0]
    )
    with pytest.raises(InputError, match="give at least 2"):
        fitted_exponent([1], [1])
