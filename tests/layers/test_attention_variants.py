"""Unscaled scores, temperature and hard attention, against their definitions."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import layers
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import ScaledDotProductAttention, Softmax
from t2t_keras.layers.variants.attention import DotProductAttention, HardMax, TemperedSoftmax
from tests import reference

rng = np.random.default_rng(0)


def test_weights_are_the_softmax_of_scores_over_the_temperature():
    scores = rng.normal(size=(2, 3, 5))
    for temperature in (0.25, 1.0, 7.0):
        found = TemperedSoftmax(temperature)(tf.constant(scores, tf.float32))
        np.testing.assert_allclose(found, reference.softmax(scores / temperature), rtol=1e-5)
    hard = HardMax(1.0)(scores)
    np.testing.assert_array_equal(hard, np.eye(5)[scores.argmax(-1)])
    np.testing.assert_allclose(TemperedSoftmax(1e-4)(scores), hard, atol=1e-6)
    ties = HardMax(1.0)(tf.constant([[1.0, 3.0, 3.0], [-1.0, -1.0, -2.0]]))  # the first counts
    assert ties.numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    query, key, value = (rng.normal(size=(2, 3, 5, 8)) for _ in range(3))
    found, _ = DotProductAttention(dtype="float64")(query, key, value)  # without the scale
    expected = reference.attention(query * np.sqrt(8), key, value)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "normalize",
    [
        *(Softmax(), TemperedSoftmax(100.0), TemperedSoftmax(1e-9), TemperedSoftmax(1e-15)),
        *(TemperedSoftmax(1e12), HardMax(1e9), HardMax(1e-12)),
    ],
)
def test_masked_keys_have_weight_0_at_every_temperature(normalize):
    mask = np.array([True, False, True, False])
    weights = normalize(tf.constant([1.0, 9.0, 2.0, 3.0]), mask).numpy()
    assert np.all(weights[~mask] == 0)
    assert np.sum(weights) == pytest.approx(1)


@pytest.mark.parametrize("kind", [TemperedSoftmax, HardMax])
@pytest.mark.parametrize("temperature", [1e-30, 1e-38, 5e-324])
def test_scores_that_a_low_temperature_would_make_infinite(kind, temperature):
    scores = np.array([[3e5, 2e5, -4e5, 2e5], [-7.0, 3.0, 5.0, 4.0]], "float32")  # 3e5 / T: inf
    mask = np.array([[False, True, True, False], [True, True, False, True]])
    np.testing.assert_array_equal(kind(temperature)(tf.constant(scores)), np.eye(4)[[0, 2]])
    with tf.GradientTape() as tape:
        given = tf.constant(scores)
        tape.watch(given)
        weights = kind(temperature)(given, mask)
    np.testing.assert_array_equal(weights, np.eye(4)[[1, 3]])
    assert np.all(np.isfinite(tape.gradient(weights, given)))


def test_the_gradient_of_hard_weights_is_that_of_soft_ones():
    scores, upstream = tf.constant(rng.normal(size=(3, 5))), tf.constant(rng.normal(size=(3, 5)))
    gradients = []
    for normalize in (HardMax(0.5), TemperedSoftmax(0.5)):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            weights = normalize(scores)
        gradients.append(tape.gradient(weights, scores, upstream))
    assert np.any(gradients[0] != 0)
    np.testing.assert_allclose(*gradients, atol=1e-12)


@pytest.mark.parametrize("kind", [TemperedSoftmax, HardMax])
@pytest.mark.parametrize("temperature", [0, -1.0])
def test_a_temperature_not_above_0_is_refused(kind, temperature):
    with pytest.raises(InputError, match=f"temperature is {temperature}"):
        kind(temperature)


@pytest.mark.parametrize(
    "layer",
    [
        layers.MultiHeadSelfAttention(2, 4),
        layers.MultiHeadSelfAttention(2, 4, attention=layers.AdditiveAttention()),
        layers.MultiHeadSelfAttention(
            2, 4, attention=ScaledDotProductAttention(HardMax(1.0)), causal=True
        ),
        layers.MultiHeadSelfAttention(2, 4, positions=layers.RelativePositions(3)),
        layers.LocalSelfAttention(2, 4, window=2),
        layers.LocalSelfAttention(2, 4, window=2, causal=True),
    ],
    ids=lambda layer: layer.name,
)
def test_a_sequence_of_length_0_stays_one(layer):
    in_graph = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 8])])
    for call in (layer, in_graph):
        assert call(tf.zeros([1, 0, 8])).shape == (1, 0, 8)
    assert in_graph(tf.ones([1, 3, 8])).shape == (1, 3, 8)
