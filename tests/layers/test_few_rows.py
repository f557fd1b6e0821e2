"""Matrices in blocks of columns, beside NumPy's products."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import few_rows
from t2t_keras.layers.beam_rows import BeamRows
from t2t_keras.layers.few_rows import ColumnBlocks, LaidOut
from t2t_keras.layers.linear import Linear


def _random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.parametrize("columns", [64, 192, 1, 100])
@pytest.mark.parametrize("rows", [1, 5])
def test_the_product_is_numpys(rows, columns):
    x, matrix = _random(rows, 7), _random(7, columns)
    turned = keras.Variable(matrix.T)
    for blocks in (
        ColumnBlocks(keras.Variable(matrix), "float32"),
        ColumnBlocks(turned, "float32", turned=True),
    ):
        y = blocks.multiply(tf.constant(x))
        assert y.shape == (rows, columns)
        np.testing.assert_allclose(y, x @ matrix, rtol=1e-4, atol=1e-5)
        same = blocks.multiply(tf.constant(x), BeamRows(1, rows))
        np.testing.assert_array_equal(same, y)


def test_rows_not_known_before_the_call():
    matrix = _random(7, 130)
    variable = keras.Variable(matrix)

    @tf.function(input_signature=[tf.TensorSpec([None, 7])])
    def product(x):
        return ColumnBlocks(variable, "float32").multiply(x)

    assert product.get_concrete_function().output_shapes.as_list()[1] == 130
    for rows in (1, 4):
        x = _random(rows, 7)
        np.testing.assert_allclose(product(x), x @ matrix, rtol=1e-4, atol=1e-5)


def test_a_layer_multiplies_with_the_copy_inside_the_scope_and_there_alone():
    layer, other = Linear(130, activation="relu"), Linear(130)
    layer.build((None, 7))
    other.build((None, 7))
    x, kernel = _random(4, 7), _random(7, 130)
    layer.kernel.assign(kernel)
    layer.bias.assign(_random(130))
    laid_out = LaidOut([layer.kernel], "float32")
    for matrix in (layer.kernel, other.kernel):
        matrix.assign(tf.zeros_like(matrix))
    expected = np.maximum(x @ kernel + _random(130), 0)
    with laid_out.instead(4):
        np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(other(x), np.zeros([4, 130]))
    np.testing.assert_array_equal(layer(x), np.maximum(np.tile(_random(130), [4, 1]), 0))


def test_an_error_inside_ends_the_scope():
    laid_out = LaidOut([], "float32")
    with pytest.raises(ZeroDivisionError), laid_out.instead(4):
        assert few_rows._layout.get()
        _ = 1 / 0
    assert few_rows._layout.get() is None
