"""Row sums and biases in both forms, against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.ops.dense import weighted_row_sums
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


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_bias_is_added_to_each_row(rows):
    x, bias, upstream = rng.normal(size=(rows, 5)), rng.normal(size=5), rng.normal(size=(rows, 5))
    y, *gradients = values_and_gradients(ops.add_bias, upstream, x, bias)
    reference.assert_close(y, x + bias)
    expected = reference.gradients(lambda x, bias: np.sum((x + bias) * upstream), x, bias)
    for found, wanted in zip(gradients, expected, strict=True):
        reference.assert_close(found, wanted)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_weighted_row_sums(rows):
    x, weights, upstream = (
        rng.normal(size=(rows, 5)),
        rng.normal(size=5),
        rng.normal(size=(rows, 1)),
    )
    y, *gradients = values_and_gradients(weighted_row_sums, upstream, x, weights)
    reference.assert_close(y, (x @ weights)[:, np.newaxis])
    expected = reference.gradients(
        lambda x, weights: np.sum((x @ weights)[:, np.newaxis] * upstream), x, weights
    )
    for found, wanted in zip(gradients, expected, strict=True):
        reference.assert_close(found, wanted)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_the_gradient_of_row_sums_is_the_same_for_all_rows(rows):
    x, upstream = rng.normal(size=(rows, 5)), rng.normal(size=5)
    y, gradient = values_and_gradients(ops.sum_rows, upstream, x)
    reference.assert_close(y, x.sum(0))
    reference.assert_close(gradient, np.tile(upstream, [rows, 1]))


@pytest.mark.parametrize("rows", [0, 1, 1000])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("bfloat16", 2**-8)])
def test_rows_are_summed_in_float32_and_rounded_once(rows, dtype, error):
    x = tf.cast(np.random.default_rng(1).uniform(1, 2, size=(rows, 3)), dtype)
    expected = tf.cast(x, tf.float64).numpy().sum(axis=0)
    found = ops.sum_rows(x)
    assert found.dtype == dtype
    np.testing.assert_allclose(tf.cast(found, tf.float64), expected, rtol=error)
