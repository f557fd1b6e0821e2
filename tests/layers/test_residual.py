"""The sum and the norm around a sub-layer, by the formula in float64."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.residual import PostNormResidual
from tests import reference


@pytest.mark.parametrize("training", [False, True])
def test_under_mixed_precision_the_sum_is_not_rounded(training):
    """In bfloat16 256 + 1 is 256, and the norm of such a row would be 0."""
    x = np.full([3, 8], 256.0)
    y = np.arange(8) % 2 * np.ones([3, 1])
    layer = PostNormResidual(dropout=0.0, dtype="mixed_bfloat16")
    layer.build((None, 8))
    found = layer(
        tf.cast(x, tf.bfloat16), sublayer=lambda _: tf.cast(y, tf.bfloat16), training=training
    )
    assert found.dtype == tf.bfloat16
    expected = reference.layer_norm(x + y, np.ones(8), np.zeros(8), epsilon=1e-6)
    np.testing.assert_allclose(tf.cast(found, tf.float64), expected, rtol=2**-8)


def test_what_is_dropped_has_no_gradient_and_the_rest_grows():
    x = tf.cast(np.random.default_rng(0).normal(size=(40, 8)), tf.bfloat16)
    layer = PostNormResidual(dropout=0.5, dtype="mixed_bfloat16")
    layer.build((None, 8))
    y = tf.ones([40, 8], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(y)
        found = layer(x, sublayer=lambda _: y, training=True)
        half = found[:, :4]
    by_y = tf.cast(tape.gradient(half, y), tf.float64).numpy()
    dropped = by_y == 0
    assert 0.35 < dropped.mean() < 0.65
    sums = np.where(dropped, 0, 2) + tf.cast(x, tf.float64).numpy()
    expected = reference.layer_norm(sums, np.ones(8), np.zeros(8), epsilon=1e-6)
    np.testing.assert_allclose(tf.cast(found, tf.float64), expected, atol=2**-7)
