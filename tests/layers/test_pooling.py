"""Poolings of a sequence against NumPy, one row after the other."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.pooling import POOLINGS
from tests import reference

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 4)).astype("float32")
REAL = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)


def made(name, **kwargs):
    layer = POOLINGS[name](**kwargs)
    layer.build((None, None, 4))
    return layer


def by_hand(name, layer, rows):
    """The pooling of one sequence without padding, in NumPy."""
    if name == "attention":
        return reference.softmax(rows @ layer.score.kernel.numpy()[:, 0]) @ rows
    return {"mean": rows.mean(0), "max": rows.max(0), "first": rows[0]}[name]


@pytest.mark.parametrize("name", POOLINGS)
def test_padding_has_no_weight(name):
    layer = made(name)
    pooled = layer(X, mask=tf.constant(REAL))
    for row in range(2):
        np.testing.assert_allclose(pooled[row], by_hand(name, layer, X[row][REAL[row]]), rtol=1e-5)
    np.testing.assert_array_equal(pooled[2], np.zeros(4))


@pytest.mark.parametrize("name", POOLINGS)
def test_rows_and_masks_of_other_shapes_are_refused(name):
    for shape in ([3, 1], [1, 5], [5], [3, 5, 1]):
        with pytest.raises(InputError, match=r"mask has shape .*: give \[batch, length\]"):
            made(name)(X, mask=np.ones(shape, bool))
    for x in (X[0], X[np.newaxis]):
        with pytest.raises(InputError, match=r"x has shape .*: give .* \[batch, length"):
            made(name)(x)


@pytest.mark.parametrize("name", POOLINGS)
def test_in_half_precision_sums_are_in_float32(name):
    layer = made(name, dtype="mixed_bfloat16")
    long = np.full((1, 3000, 4), 1.0 + 2**-7, "float32")
    pooled = layer(long, mask=tf.ones([1, 3000], tf.bool))
    assert pooled.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(pooled, tf.float32), long[:, 0])
