"""Row sums, biases, SiLU and layer norm in all forms, against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from tests import reference

rng = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("form")


def values_and_gradients(function, upstream, *arrays):
    """Returns function(*arrays) and the gradients of its sum weighted by `upstream`, in float64."""
    tensors = [tf.constant(array, tf.float32) for array in arrays]

    @tf.function
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
        return y, *tape.gradient(y, tensors, output_gradients=tf.constant(upstream, tf.float32))

    return [np.asarray(x, np.float64) for x in run(*tensors)]


FUNCTIONS = [  # function, its definition, shapes of its arguments for some rows and of its value
    (ops.add_bias, lambda x, bias: x + bias, lambda n: [(n, 5), (5,), (n, 5)]),
    (ops.sum_rows, lambda x: x.sum(0), lambda n: [(n, 5), (5,)]),
    (ops.silu, lambda x: x / (1 + np.exp(-x)), lambda n: [(n, 5), (n, 5)]),
    (
        lambda *arguments: ops.layer_norm(*arguments, 1e-3),
        lambda *arguments: reference.layer_norm(*arguments, epsilon=1e-3),
        lambda n: [(n, 3, 5), (5,), (5,), (n, 3, 5)],
    ),
]


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize(("function", "definition", "shapes"), FUNCTIONS)
def test_values_and_gradients_are_those_of_the_definition(function, definition, shapes, rows):
    *arrays, upstream = (rng.normal(size=shape) for shape in shapes(rows))
    y, *gradients = values_and_gradients(function, upstream, *arrays)
    reference.assert_close(y, definition(*arrays))
    expected = reference.gradients(lambda *a: np.sum(definition(*a) * upstream), *arrays)
    for found, wanted in zip(gradients, expected, strict=True):
        reference.assert_close(found, wanted)


@pytest.mark.parametrize("rows", [0, 1, 1000])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("bfloat16", 2**-8)])
def test_rows_are_summed_in_float32_and_rounded_once(rows, dtype, error):
    x = tf.cast(np.random.default_rng(1).uniform(1, 2, size=(rows, 3)), dtype)
    expected = tf.cast(x, tf.float64).numpy().sum(axis=0)
    found = ops.sum_rows(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(tf.cast(found, tf.float64), expected, rtol=error)


def test_a_large_mean_costs_a_layer_norm_no_more_digits_than_float32_has():
    x = np.float32([[1000.0, 1001.0, 1002.0, 1003.0]])
    gamma, beta = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    expected = reference.layer_norm(x.astype("float64"), gamma, beta, epsilon=1e-3)
    np.testing.assert_allclose(ops.layer_norm(x, gamma, beta, 1e-3), expected, atol=1e-3)


def test_a_layer_norm_of_float64_is_computed_in_float64():
    x, gamma, beta = (np.random.default_rng(2).normal(size=shape) for shape in ((3, 8), 8, 8))
    y = ops.layer_norm(*(tf.constant(array) for array in (x, gamma, beta)), 1e-3)
    assert y.dtype == tf.float64
    np.testing.assert_allclose(y, reference.layer_norm(x, gamma, beta, 1e-3), atol=1e-12)
