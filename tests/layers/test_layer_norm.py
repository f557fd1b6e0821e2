"""Layer norm and its gradient, against float64 and against Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.layer_norm import LayerNorm
from tests import reference


def layers(width, dtype="float32"):
    rng = np.random.default_rng(0)
    made = [
        kind(epsilon=1e-3, dtype=dtype) for kind in (LayerNorm, keras.layers.LayerNormalization)
    ]
    weights = rng.normal(size=(2, width))
    for layer in made:
        layer.build([None, width])
        layer.set_weights(weights)
    return made


@pytest.mark.parametrize("shape", [(2, 3, 8), (5, 16), (2, 1, 3, 4), (0, 3, 8)])
def test_values_and_gradients_are_those_of_the_formula(shape):
    rng = np.random.default_rng(1)
    x, upstream = (tf.constant(rng.normal(3, 2, size=shape), tf.float32) for _ in range(2))
    results = []
    for layer in layers(shape[-1]):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        gradients = tape.gradient(y, [x, *layer.trainable_variables], output_gradients=upstream)
        results.append([y, *gradients])
    gamma, beta = layers(shape[-1])[0].get_weights()
    expected = reference.layer_norm(x.numpy().astype("float64"), gamma, beta, epsilon=1e-3)
    np.testing.assert_allclose(results[0][0], expected, atol=1e-5)
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_a_large_mean_costs_no_more_digits_than_float32_has():
    x = np.float32([[1000.0, 1001.0, 1002.0, 1003.0]])
    layer, _ = layers(4)
    gamma, beta = layer.get_weights()
    expected = reference.layer_norm(x.astype("float64"), gamma, beta, epsilon=1e-3)
    np.testing.assert_allclose(layer(x), expected, atol=1e-3)


def test_under_mixed_precision_only_input_and_output_are_rounded():
    layer, _ = layers(8, "mixed_bfloat16")
    x = tf.cast(np.random.default_rng(2).normal(size=(4, 8)), tf.bfloat16)
    y = layer(x)
    assert y.dtype == tf.bfloat16
    gamma, beta = layer.get_weights()
    exact = reference.layer_norm(tf.cast(x, tf.float64).numpy(), gamma, beta, epsilon=1e-3)
    np.testing.assert_array_equal(y, tf.cast(exact.astype("float32"), tf.bfloat16))


@pytest.mark.parametrize("option", [{"axis": 1}, {"center": False}, {"scale": False}])
def test_what_only_keras_can_do_is_refused(option):
    [name] = option
    with pytest.raises(InputError, match=rf"^{name} is .* take keras.layers.LayerNormalization"):
        LayerNorm(**option)


def test_it_comes_back_from_its_config():
    layer = LayerNorm.from_config(LayerNorm(epsilon=0.5).get_config())
    assert layer.epsilon == 0.5
