"""Layer norm and its gradients, against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from tests import reference


@pytest.mark.parametrize("shape", [(2, 3, 8), (5, 16), (0, 3, 8)])
def test_values_and_gradients_are_those_of_the_formula(shape):
    rng = np.random.default_rng(1)
    x, upstream = rng.normal(3, 2, size=(2, *shape))
    gamma, beta = rng.normal(size=(2, shape[-1]))
    arrays = [x, gamma, beta]

    @tf.function
    def norm(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = ops.layer_norm(*tensors, 1e-3)
        return y, *tape.gradient(y, tensors, output_gradients=tf.constant(upstream, tf.float32))

    y, *gradients = norm(*(tf.constant(array, tf.float32) for array in arrays))
    reference.assert_close(y, reference.layer_norm(*arrays, epsilon=1e-3))
    expected = reference.gradients(
        lambda *arrays: np.sum(reference.layer_norm(*arrays, epsilon=1e-3) * upstream), *arrays
    )
    for found, wanted in zip(gradients, expected, strict=True):
        reference.assert_close(found, wanted)


def test_a_large_mean_costs_no_more_digits_than_float32_has():
    x = np.float32([[1000.0, 1001.0, 1002.0, 1003.0]])
    gamma, beta = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    expected = reference.layer_norm(x.astype("float64"), gamma, beta, epsilon=1e-3)
    np.testing.assert_allclose(ops.layer_norm(x, gamma, beta, 1e-3), expected, atol=1e-3)


def test_float64_is_computed_in_float64():
    x, gamma, beta = (np.random.default_rng(2).normal(size=shape) for shape in ((3, 8), 8, 8))
    y = ops.layer_norm(*(tf.constant(array) for array in (x, gamma, beta)), 1e-3)
    assert y.dtype == tf.float64
    np.testing.assert_allclose(y, reference.layer_norm(x, gamma, beta, 1e-3), atol=1e-12)
