"""Dropout by its statistics, in all forms: they draw other random numbers."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops


def kept_elements(shape, rate, seed=1):
    """Returns ops.dropout of ones, float32 of `shape`."""
    return np.asarray(ops.dropout(tf.ones(shape), rate, tf.constant([seed, 0])))


@pytest.mark.parametrize(("rate", "shape"), [(0.1, (100, 400)), (1 / 3, (101, 7, 57))])
def test_a_fraction_is_dropped_and_the_rest_scaled(form, rate, shape):
    kept = kept_elements(shape, rate)
    exact_rate = round(rate * 2**16) / 2**16 if form in ("fast", "xla") else rate
    np.testing.assert_allclose(np.unique(kept), [0.0, 1 / (1 - exact_rate)], rtol=1e-5)
    error = abs((kept == 0).mean() - rate)
    assert error < 4 * np.sqrt(rate * (1 - rate) / kept.size)


def test_xla_draws_what_the_fast_form_draws():
    @tf.function(input_signature=[tf.TensorSpec([None, None])], jit_compile=True)
    def drop(x):
        with ops.made_for("xla"):
            return ops.dropout(x, 0.3, tf.constant([1, 0]))

    for shape in ((101, 57), (1, 1)):
        np.testing.assert_allclose(drop(tf.ones(shape)), kept_elements(shape, 0.3), rtol=1e-6)


@pytest.mark.usefixtures("form")
def test_a_mask_is_decided_by_the_seed():
    masks = [kept_elements([50, 50], 0.5, seed) > 0 for seed in (1, 1, 2)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert 0.4 < (masks[0] == masks[2]).mean() < 0.6


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_elements_are_dropped_independently(distance):
    """In two forms four elements share one random integer of 32 bits, a byte each."""
    kept = kept_elements([100_000], 0.5) > 0
    for begin in range(4):
        first, second = kept[begin:-distance:4], kept[begin + distance :: 4]
        assert abs((first == second).mean() - 0.5) < 4 * 0.5 / np.sqrt(first.size)


@pytest.mark.parametrize("rate", [0.001, 0.33, 255 / 256])
def test_the_mean_rate_of_many_calls_of_the_fast_form_is_exact(rate):
    """The rate of one call is a multiple of 1/256: one of the two around the wanted one."""
    size, calls = 4096, 600
    ones = tf.ones([size])
    drop = tf.function(lambda seed: ops.dropout(ones, rate, tf.stack([seed, 7])))
    dropped = np.array([(np.asarray(drop(tf.constant(i))) == 0).mean() for i in range(calls)])
    below = np.floor(256 * rate) / 256
    spread = np.sqrt(rate * (1 - rate) / size + (rate - below) * (below + 1 / 256 - rate))
    assert abs(dropped.mean() - rate) < 4 * spread / np.sqrt(calls)
    assert dropped.std() == pytest.approx(spread, rel=0.2, abs=1e-5)


def test_the_rate_of_the_fast_form_is_at_most_255_of_256():
    kept = kept_elements([100_000], 0.9999)
    assert set(np.unique(kept).tolist()) == {0.0, 256.0}
    assert (kept > 0).mean() == pytest.approx(1 / 256, rel=0.2)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_gradient_has_the_mask_and_the_scale_of_the_values(dtype):
    x = tf.ones([30, 20], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.dropout(x, 0.3, tf.constant([2, 0]))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(tf.cast(tape.gradient(y, x), "float32"), tf.cast(y, "float32"))


@pytest.mark.usefixtures("form")
def test_rate_0_changes_nothing_and_rate_1_gives_zeros():
    x = tf.random.normal([4, 5])
    assert ops.dropout(x, 0.0, tf.constant([1, 0])) is x
    np.testing.assert_array_equal(ops.dropout(x, 1.0, tf.constant([1, 0])), np.zeros([4, 5]))


@pytest.mark.usefixtures("form")
def test_shapes_unknown_before_the_call():
    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def drop(x):
        return ops.dropout(x, 0.5, tf.constant([1, 0]))

    for shape in ((3, 5), (1, 1), (0, 4)):
        assert drop(tf.ones(shape)).shape == shape
