"""Linear, LayerNorm and Dropout beside the Keras layers of those names."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.basic import Dropout, LayerNorm, Linear
from tests import reference


def values_and_gradients(layer, x, upstream):
    """Returns what a layer gives, and its gradients by its input and weights."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    variables = [x, *layer.trainable_variables]
    return [y, *tape.gradient(y, variables, output_gradients=upstream)]


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (0, 5)])
@pytest.mark.parametrize("options", [{}, {"activation": "relu"}, {"use_bias": False}])
def test_linear_is_dense(shape, options):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=shape), tf.float32)
    upstream = tf.constant(rng.normal(size=(*shape[:-1], 4)), tf.float32)
    weights = [rng.normal(size=(5, 4)), rng.normal(size=4)]
    results = []
    for kind in (Linear, keras.layers.Dense):
        layer = kind(4, **options)
        layer.build(shape)
        layer.set_weights(weights[: len(layer.weights)])
        results.append(values_and_gradients(layer, x, upstream))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def layer_norms(width, dtype="float32"):
    """Returns our layer and Keras's, with the same weights."""
    kinds = (LayerNorm, keras.layers.LayerNormalization)
    layers = [kind(epsilon=1e-3, dtype=dtype) for kind in kinds]
    weights = np.random.default_rng(0).normal(size=(2, width))
    for layer in layers:
        layer.build([None, width])
        layer.set_weights(weights)
    return layers


@pytest.mark.parametrize("shape", [(2, 3, 8), (5, 16), (0, 3, 8)])
def test_layer_norm_is_that_of_keras(shape):
    rng = np.random.default_rng(1)
    x, upstream = (tf.constant(rng.normal(3, 2, size=shape), tf.float32) for _ in range(2))
    results = [values_and_gradients(layer, x, upstream) for layer in layer_norms(shape[-1])]
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_under_mixed_precision_a_layer_norm_rounds_its_output_alone():
    layer, _ = layer_norms(8, "mixed_bfloat16")
    x = tf.cast(np.random.default_rng(2).normal(size=(4, 8)), tf.bfloat16)
    y = layer(x)
    assert y.dtype == tf.bfloat16
    gamma, beta = layer.get_weights()
    exact = reference.layer_norm(tf.cast(x, tf.float64).numpy(), gamma, beta, epsilon=1e-3)
    np.testing.assert_array_equal(y, tf.cast(exact.astype("float32"), tf.bfloat16))


def test_dropout_draws_another_mask_at_each_call_and_the_same_ones_from_a_seed():
    x = tf.ones([50, 50])
    first, again = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    masks = [np.asarray(layer(x, training=True)) > 0 for layer in (first, first, again, again)]
    np.testing.assert_array_equal(masks[0], masks[2])
    np.testing.assert_array_equal(masks[1], masks[3])
    assert 0.4 < (masks[0] == masks[1]).mean() < 0.6


def test_dropout_acts_in_training_only_and_not_at_rate_0():
    x = tf.random.normal([4, 5])
    assert Dropout(0.5)(x, training=False) is x
    assert Dropout(0.5)(x) is x
    assert Dropout(0.0)(x, training=True) is x


def test_dropout_saves_its_state_as_keras_does():
    ours, theirs = Dropout(0.5, seed=1), keras.layers.Dropout(0.5, seed=1)
    assert [v.path.split("/")[1:] for v in ours.variables] == [
        v.path.split("/")[1:] for v in theirs.variables
    ]


def test_a_noise_shape_is_refused():
    with pytest.raises(InputError, match=r"^noise_shape is \(1, 5\).* use keras.layers.Dropout"):
        Dropout(0.5, noise_shape=(1, 5))


@pytest.mark.parametrize("layer", [Linear(4, "relu"), LayerNorm(0.5), Dropout(0.25, seed=3)])
def test_layers_come_back_from_their_config(layer):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
