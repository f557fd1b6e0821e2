import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.likeliest import likeliest
from t2t_keras.layers.largest import block_size


@pytest.mark.parametrize("vocab", [9, 331, 2048, 10_000])  # the last two are cut into blocks
@pytest.mark.parametrize("spread", [0.01, 3.0, 1000.0])
def test_the_best_tokens_and_the_normalizer_are_those_of_a_sort(vocab, spread):
    logits = np.random.default_rng(vocab).normal(0, spread, (7, vocab)).astype("float32")
    values, tokens, normalizer = likeliest(tf.constant(logits), 8)
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :8]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, axis=1))
    exact = np.logaddexp.reduce(logits.astype("float64"), axis=1, keepdims=True)
    np.testing.assert_allclose(normalizer, exact, rtol=1e-6)


def test_equal_logits_stand_in_the_order_of_ids():
    logits = np.random.default_rng(0).integers(0, 4, (50, 1_000)).astype("float32")
    logits[0], logits[1, :990] = 0.0, -np.inf
    assert block_size(1_000, 6)
    _, tokens, _ = likeliest(tf.constant(logits), 6)
    np.testing.assert_array_equal(tokens, np.argsort(-logits, axis=1, kind="stable")[:, :6])


def test_where_nothing_is_allowed_there_is_no_nan():
    for vocab in (5, 2048):
        values, _, normalizer = likeliest(tf.fill([1, vocab], -np.inf), 2)
        assert np.all(np.isneginf(values)) and np.all(np.isneginf(normalizer))
