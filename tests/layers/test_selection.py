import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.attention import DotProductAttention, ScaledDotProductAttention
from t2t_keras.layers.selection import ArgMax, Softmax, TemperedSoftmax
from tests import reference

rng = np.random.default_rng(0)


def test_unscaled_attention_is_equation_1_without_the_scale():
    query, key, value = (rng.normal(size=(2, 3, 5, 8)) for _ in range(3))
    result = DotProductAttention(dtype="float64")(query, key, value)
    expected = reference.attention(query * np.sqrt(8), key, value)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_beta_sharpens_until_soft_is_hard():
    scores = rng.normal(size=(2, 3, 5)).astype("float32")
    np.testing.assert_array_equal(TemperedSoftmax(1.0)(scores), Softmax()(scores))
    np.testing.assert_allclose(TemperedSoftmax(1e-6)(scores), np.full((2, 3, 5), 0.2), atol=1e-5)
    hard = ArgMax(1.0)(scores)
    np.testing.assert_array_equal(hard, np.eye(5)[scores.argmax(-1)])
    distances = [np.abs(TemperedSoftmax(beta)(scores) - hard).max() for beta in (1, 10, 100, 1e4)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-6


@pytest.mark.parametrize("selection", [Softmax(), TemperedSoftmax(0.01), ArgMax(1e-9)])
def test_a_mask_holds_for_every_temperature(selection):
    mask = np.array([True, False, True, False])
    weights = selection(tf.constant([1.0, 9.0, 2.0, 3.0]), mask).numpy()
    assert np.all(weights[~mask] == 0)
    assert np.sum(weights) == pytest.approx(1)


def test_hard_attention_takes_the_value_of_the_best_key():
    query, key, value = (rng.normal(size=(2, 5, 8)).astype("float32") for _ in range(3))
    result = ScaledDotProductAttention(ArgMax(1.0))(query, key, value)
    best = np.argmax(query @ key.transpose(0, 2, 1), axis=-1)
    np.testing.assert_array_equal(result, np.take_along_axis(value, best[..., None], axis=1))


def test_hard_attention_is_trained_as_if_it_were_soft():
    scores, upstream = tf.constant(rng.normal(size=(3, 5))), tf.constant(rng.normal(size=(3, 5)))
    gradients = []
    for selection in (ArgMax(2.0), TemperedSoftmax(2.0)):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            weights = selection(scores)
        gradients.append(tape.gradient(weights, scores, upstream))
    assert np.any(gradients[0] != 0)
    np.testing.assert_allclose(*gradients, atol=1e-12)


def test_selections_come_back_from_their_config():
    for selection in (Softmax(), TemperedSoftmax(3.0), ArgMax(0.5)):
        layer = ScaledDotProductAttention(selection)
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
        assert type(again.selection) is type(selection)
        assert again.selection.get_config() == selection.get_config()


def test_a_temperature_without_inverse_is_refused():
    with pytest.raises(InputError, match="inverse_temperature is 0"):
        ArgMax(0)
