"""Dropout by its statistics, and beside that of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 1 / 3])
@pytest.mark.parametrize("shape", [(100, 400), (101, 7, 57)])
def test_the_right_share_is_kept_and_scaled(rate, shape):
    kept = np.asarray(Dropout(rate, seed=1)(tf.ones(shape), training=True))
    exact_rate = round(rate * 2**16) / 2**16
    values = set(np.unique(kept).tolist())
    assert values == {0.0, np.float32(1 / (1 - exact_rate))}
    share = (kept == 0).mean()
    assert abs(share - rate) < 4 * np.sqrt(rate * (1 - rate) / kept.size)


def test_masks_differ_between_calls_and_repeat_with_the_seed():
    x = tf.ones([50, 50])
    first, again = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    masks = [np.asarray(layer(x, training=True)) > 0 for layer in (first, first, again, again)]
    np.testing.assert_array_equal(masks[0], masks[2])
    np.testing.assert_array_equal(masks[1], masks[3])
    assert 0.4 < (masks[0] == masks[1]).mean() < 0.6


@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_neighbours_are_independent(distance):
    """Four elements share one random number of 32 bits; no byte of it tells of another."""
    kept = np.asarray(Dropout(0.5, seed=5)(tf.ones([100_000]), training=True)) > 0
    for begin in range(4):
        first, second = kept[begin:-distance:4], kept[begin + distance :: 4]
        assert abs((first == second).mean() - 0.5) < 4 * 0.5 / np.sqrt(first.size)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.33, 255 / 256])
def test_over_many_calls_the_rate_is_exact(rate):
    """A call's own is a multiple of 1/256: the wanted one is the mean of the two around it."""
    layer, ones, calls = Dropout(rate, seed=7), tf.ones([4096]), 600
    drop = tf.function(lambda: layer(ones, training=True))
    dropped = np.array([(np.asarray(drop()) == 0).mean() for _ in range(calls)])
    whole = np.floor(256 * rate) / 256
    spread = np.sqrt(rate * (1 - rate) / ones.shape[0] + (rate - whole) * (whole + 1 / 256 - rate))
    assert abs(dropped.mean() - rate) < 4 * spread / np.sqrt(calls)
    assert dropped.std() == pytest.approx(spread, rel=0.2, abs=1e-5)


def test_the_rate_is_at_most_255_of_256():
    kept = np.asarray(Dropout(0.9999, seed=1)(tf.ones([100_000]), training=True))
    assert set(np.unique(kept).tolist()) == {0.0, 256.0}
    assert (kept > 0).mean() == pytest.approx(1 / 256, rel=0.2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_takes_the_same_mask(dtype):
    x = tf.ones([30, 20], dtype)
    layer = Dropout(0.3, seed=2, dtype=dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(tf.cast(tape.gradient(y, x), "float32"), tf.cast(y, "float32"))


def test_in_inference_and_at_rate_0_nothing_is_dropped():
    x = tf.random.normal([4, 5])
    assert Dropout(0.5)(x, training=False) is x
    assert Dropout(0.0)(x, training=True) is x


def test_a_rate_of_1_leaves_nothing():
    np.testing.assert_array_equal(Dropout(1.0)(tf.ones([3, 4]), training=True), np.zeros([3, 4]))


def test_shapes_not_known_before_the_call():
    layer = Dropout(0.5, seed=1)
    drop = tf.function(
        lambda x: layer(x, training=True), input_signature=[tf.TensorSpec([None, None])]
    )
    assert drop(tf.ones([3, 5])).shape == (3, 5)
    assert drop(tf.ones([1, 1])).shape == (1, 1)
    assert drop(tf.ones([0, 4])).shape == (0, 4)


def test_saves_its_state_as_keras_does():
    ours, theirs = Dropout(0.5, seed=1), keras.layers.Dropout(0.5, seed=1)
    assert [v.path.split("/")[1:] for v in ours.variables] == [
        v.path.split("/")[1:] for v in theirs.variables
    ]
    assert Dropout.from_config(ours.get_config()).rate == 0.5
