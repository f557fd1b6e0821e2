"""The largest elements of rows: fast forms against plain forms and NumPy."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.ops.top_k import argmax, block_size, top_k, top_k_log_softmax

FORMS = pytest.mark.parametrize("form", [contextlib.nullcontext, ops.plain], ids=["fast", "plain"])


@FORMS
@pytest.mark.parametrize("width", [1, 7, 331, 10_000])
def test_argmax_is_that_of_numpy(form, width):
    values = np.random.default_rng(0).normal(size=(50, width)).astype("float32")
    ties = np.round(values)  # several elements are the largest
    with form():
        np.testing.assert_array_equal(argmax(values), values.argmax(axis=1))
        np.testing.assert_array_equal(argmax(ties), ties.argmax(axis=1))


@FORMS
def test_no_row_and_minus_infinity(form):
    with form():
        assert argmax(tf.zeros([0, 10_000])).shape == [0]
        np.testing.assert_array_equal(argmax(tf.fill([2, 10_000], -np.inf)), [0, 0])
        for vocab in (5, 2048):
            values, _, normalizer = top_k_log_softmax(tf.fill([1, vocab], -np.inf), 2)
            assert np.all(np.isneginf(values)) and np.all(np.isneginf(normalizer))


@FORMS
@pytest.mark.parametrize("vocab", [9, 331, 2048, 10_000])  # the last two are cut into blocks
@pytest.mark.parametrize("spread", [0.01, 3.0, 1000.0])
def test_the_best_ids_and_the_normalizer_are_those_of_a_sort(form, vocab, spread):
    logits = np.random.default_rng(vocab).normal(0, spread, (7, vocab)).astype("float32")
    with form():
        values, ids, normalizer = top_k_log_softmax(tf.constant(logits), 8)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :8]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, axis=1))
    exact = np.logaddexp.reduce(logits.astype("float64"), axis=1, keepdims=True)
    np.testing.assert_allclose(normalizer, exact, rtol=1e-5)


@FORMS
def test_equal_elements_keep_the_order_of_their_indices(form):
    values = np.random.default_rng(0).integers(0, 4, (50, 1_000)).astype("float32")
    values[0], values[1, :990], values[2] = 0.0, -np.inf, 0.0
    values[2, [5, 700, 701]] = 1.0, 3.0, 1.0  # the block of the largest is not the first
    assert block_size(1_000, 6)
    with form():
        _, indices = top_k(tf.constant(values), 6)
    np.testing.assert_array_equal(indices, np.argsort(-values, axis=1, kind="stable")[:, :6])


@FORMS
def test_a_width_known_at_run_time_gives_the_same(form):
    @tf.function(input_signature=[tf.TensorSpec([None, None])], autograph=False)
    def best(values):
        return top_k(values, 6)

    for width in (6, 128, 4 * 6 * 128, 4 * 6 * 128 + 1, 10_240):  # two of them in blocks
        values = np.random.default_rng(width).integers(0, 40, (5, width)).astype("float32")
        with form():
            _, indices = best.get_concrete_function()(tf.constant(values))
        np.testing.assert_array_equal(indices, np.argsort(-values, axis=1, kind="stable")[:, :6])


@FORMS
def test_a_number_known_at_run_time_gives_the_same(form):
    values = np.random.default_rng(0).integers(0, 40, (5, 4_096)).astype("float32")
    with form():
        best = tf.function(lambda k: top_k(tf.constant(values), k)[1]).get_concrete_function(
            tf.TensorSpec([], tf.int32)
        )
    for k in (1, 10, 16, 4_096):  # the last one not in blocks
        indices = best(tf.constant(k))
        np.testing.assert_array_equal(indices, np.argsort(-values, axis=1, kind="stable")[:, :k])
