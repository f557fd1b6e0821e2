"""Linear layers and their gradients, against float64 and beside Keras's Dense."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.linear import Linear
from t2t_keras.layers.product_sums import column_sums


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (0, 5)])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_values_and_gradients_are_those_of_dense(shape, activation):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=shape), tf.float32)
    upstream = tf.constant(rng.normal(size=(*shape[:-1], 4)), tf.float32)
    weights = [rng.normal(size=(5, 4)), rng.normal(size=4)]
    results = []
    for kind in (Linear, keras.layers.Dense):
        layer = kind(4, activation=activation)
        layer.build(shape)
        layer.set_weights(weights)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        gradients = tape.gradient(y, [x, *layer.trainable_variables], output_gradients=upstream)
        results.append([y, *gradients])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 1000])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("bfloat16", 2**-8)])
def test_columns_are_summed_in_float32_whatever_their_type(rows, dtype, error):
    x = tf.cast(np.random.default_rng(1).uniform(1, 2, size=(rows, 3)), dtype)
    expected = tf.cast(x, tf.float64).numpy().sum(axis=0)
    np.testing.assert_allclose(tf.cast(column_sums(x), tf.float64), expected, rtol=error)
