"""Norm, dropout and residual connection around a sub-layer, against the formulas in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.residual import PostNorm, PreNorm
from tests import reference


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_norm_placement(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 8))
    layer = kind(dropout=0.3, dtype="float64")
    layer.build(x.shape)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    norm = layer.get_weights()
    if kind is PostNorm:  # section 3.1
        expected = reference.layer_norm(x + 2 * x, *norm)
    else:
        expected = x + 2 * reference.layer_norm(x, *norm)
    reference.assert_close(layer.around(x, lambda y: 2 * y), expected)


def in_training(layer):
    """Returns a layer that encloses a sub-layer in `layer`, for Keras to hand it `training`."""

    class Enclosing(keras.layers.Layer):
        def call(self, x, y):
            return layer(x, y)

    return Enclosing(dtype=layer.dtype_policy, autocast=False)


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_dropout_falls_on_the_sublayer_output_only(kind):
    """Where dropout removes all, what is left is the residual path."""
    x = tf.random.normal([2, 3, 8])
    layer = kind(dropout=1.0 - 1e-7)
    layer.build(x.shape)
    result = in_training(layer)(x, layer(x) * 1e3, training=True)
    expected = layer.norm(x) if kind is PostNorm else x
    reference.assert_close(result, expected)


@pytest.mark.parametrize("training", [False, True])
def test_under_mixed_precision_the_sum_is_not_rounded(training):
    """In bfloat16 256 + 1 is 256, and the norm of such a row would be 0."""
    x = np.full([3, 8], 256.0)
    y = np.arange(8) % 2 * np.ones([3, 1])
    layer = PostNorm(dropout=0.0, dtype="mixed_bfloat16")
    layer.build((None, 8))
    found = in_training(layer)(tf.cast(x, tf.bfloat16), tf.cast(y, tf.bfloat16), training=training)
    assert found.dtype == tf.bfloat16
    expected = reference.layer_norm(x + y, np.ones(8), np.zeros(8), epsilon=1e-6)
    np.testing.assert_allclose(tf.cast(found, tf.float64), expected, rtol=2**-8)
