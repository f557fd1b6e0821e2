"""Linear, LayerNorm and Dropout beside the Keras layers of those names."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import layers
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
@pytest.mark.parametrize(("kind", "of_keras", "options"), [
    *((Linear, keras.layers.Dense, {"units": 4} | o) for o in ({}, {"activation": "relu"})),
    (Linear, keras.layers.Dense, {"units": 4, "use_bias": False}),
    (LayerNorm, keras.layers.LayerNormalization, {"epsilon": 1e-3}),
])  # fmt: skip
def test_a_layer_is_that_of_keras(kind, of_keras, options, shape):
    rng, results = np.random.default_rng(0), []
    x = tf.constant(rng.normal(3, 2, size=shape), tf.float32)
    upstream = tf.constant(rng.normal(size=(*shape[:-1], options.get("units", 5))), tf.float32)
    weights = None
    for made in (kind(**options), of_keras(**options)):
        made.build(shape)
        weights = weights or [rng.normal(size=w.shape) for w in made.weights]
        made.set_weights(weights)
        results.append(values_and_gradients(made, x, upstream))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.max(theirs, initial=1))


def test_under_mixed_precision_a_layer_norm_rounds_its_output_alone():
    layer, rng = LayerNorm(epsilon=1e-3, dtype="mixed_bfloat16"), np.random.default_rng(2)
    layer.build([None, 8])
    layer.set_weights(rng.normal(size=(2, 8)))
    x = tf.cast(rng.normal(size=(4, 8)), tf.bfloat16)
    y = layer(x)
    assert y.dtype == tf.bfloat16
    exact = reference.layer_norm(tf.cast(x, tf.float64).numpy(), *layer.get_weights(), epsilon=1e-3)
    np.testing.assert_array_equal(y, tf.cast(exact.astype("float32"), tf.bfloat16))


def test_dropout_draws_another_mask_at_each_call_of_training_and_the_same_ones_from_a_seed():
    x = tf.ones([50, 50])
    first, again = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    masks = [np.asarray(layer(x, training=True)) > 0 for layer in (first, first, again, again)]
    np.testing.assert_array_equal(masks[0], masks[2])
    np.testing.assert_array_equal(masks[1], masks[3])
    assert 0.4 < (masks[0] == masks[1]).mean() < 0.6
    assert first(x, training=False) is x and first(x) is x
    assert Dropout(0.0)(x, training=True) is x
    names = [
        [variable.path.split("/")[1:] for variable in layer.variables]
        for layer in (first, keras.layers.Dropout(0.5, seed=1))
    ]
    assert names[0] == names[1]  # its state is saved as Keras does
    with pytest.raises(InputError, match=r"^noise_shape is \(1, 5\).* use keras.layers.Dropout"):
        Dropout(0.5, noise_shape=(1, 5))


@pytest.mark.parametrize("value", [0, -2, 1.5, True, "8"])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("value_dim", lambda n: layers.MultiHeadSelfAttention(4, 4, value_dim=n)),
        ("value_dim", lambda n: layers.MultiHeadCrossAttention(4, 4, value_dim=n)),
        ("key_dim", lambda n: layers.MultiHeadSelfAttention(4, n)),
        ("num_heads", lambda n: layers.MultiHeadCrossAttention(n, 4)),
        ("window", lambda n: layers.LocalSelfAttention(2, 4, window=n)),
        ("max_positions", layers.LearnedPositions),
        ("max_distance", layers.RelativePositions),
        ("value_dim", lambda n: layers.RelativePositions(4, n)),
        ("vocab_size", lambda n: layers.SharedEmbedding(n, 8)),
        ("model_dim", lambda n: layers.SharedEmbedding(10, n)),
        ("feed_forward_dim", layers.FeedForward),
        ("feed_forward_dim", layers.ConvolutionFeedForward),
    ],
)
def test_a_size_that_is_no_size_is_refused_by_its_name(name, make, value):
    with pytest.raises(InputError, match=f"{name} is {value!r}: give a whole number"):
        make(value)
    made, same = make(np.int64(4)), make(4)
    assert json.dumps(made.get_config()) == json.dumps(same.get_config() | {"name": made.name})


@pytest.mark.parametrize("value", [-0.1, float("nan"), "0.1", None])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("rate", Dropout),
        ("rate", lambda n: layers.FeedForward(8, n)),
        ("rate", lambda n: layers.ScaledDotProductAttention(dropout=n)),
        ("epsilon", layers.LayerNorm),
        ("epsilon", lambda n: layers.PreNorm(epsilon=n)),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_its_name(name, make, value):
    with pytest.raises(InputError, match=f"{name} is {value!r}: give a "):
        make(value)
