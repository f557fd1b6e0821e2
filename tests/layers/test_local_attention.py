"""Local self-attention is full self-attention with the mask of its window."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.layers.attention import MultiHeadSelfAttention, Sequences, View
from t2t_keras.layers.variants import local_attention
from t2t_keras.layers.variants.local_attention import LocalSelfAttention
from tests.reference import window_mask

rng = np.random.default_rng(0)
either_direction = pytest.mark.parametrize("causal", [False, True])


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks as short as a window allows, so that short sequences have several."""
    monkeypatch.setattr(local_attention, "_MIN_BLOCK", 1)


def attend_with_mask(layer, x, mask):
    """Returns output and weights of full self-attention with the weights of `layer` and a mask."""
    full = MultiHeadSelfAttention(
        layer.num_heads, layer.key_dim, layer.value_dim, attention=type(layer.attention)()
    )
    for each in (layer, full):
        if not each.built:
            each.build(x.shape)
            each.built = True
    full.set_weights(layer.get_weights())
    query, key_value = full.project(x)
    context, weights = full.attention(query, *key_value, mask)
    return full.output_projection(full.merge_heads(context)), weights


@either_direction
@pytest.mark.parametrize("window", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("length", [1, 5, 13])
def test_a_window_is_a_mask(causal, window, length):
    x = rng.normal(size=(2, length, 8)).astype("float32")
    layer = LocalSelfAttention(2, 4, 3, window=window, causal=causal)
    mask = window_mask(causal, window, np.ones((1, length), int))
    assert mask.sum(-1).max() == min(window, length)
    expected, expected_weights = attend_with_mask(layer, x, mask)
    found, weights = layer(x, return_attention_weights=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    full_weights = layer.full_weights(weights, length)
    np.testing.assert_allclose(full_weights, expected_weights, atol=1e-5)
    np.testing.assert_array_equal(layer(x), found)


@either_direction
@pytest.mark.parametrize(("window", "device"), [(2, "gpu"), (5, "cpu")])
def test_windows_stay_within_segments_and_off_padding(causal, window, device):
    segments = np.array([[1] * 4 + [2] + [3] * 6, [1] * 3 + [0] * 8, [1] * 2 + [2] * 7 + [0] * 2])
    x = rng.normal(size=(3, 11, 8)).astype("float32")
    layer = LocalSelfAttention(2, 4, window=window, causal=causal)
    expected, _ = attend_with_mask(layer, x, window_mask(causal, window, segments))
    with ops.made_for(device):
        found = layer(x, Sequences(segments=segments))  # int64, as NumPy's integers are
    real = segments > 0
    np.testing.assert_allclose(found[real], expected[real], atol=1e-5)
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("window", [1, 3, 20])
def test_steps_equal_the_call_and_keep_no_more_than_the_window(window):
    x = rng.normal(size=(2, 8, 8)).astype("float32")
    layer = LocalSelfAttention(2, 4, window=window, causal=True)
    expected = layer(x)
    cache, steps = layer.initial_cache(2), []
    for i in range(8):
        y, cache = layer.step(x[:, i : i + 1], cache, View(positions=tf.constant(i)))
        steps.append(y)
        assert cache.key.shape == cache.value.shape == (2, 2, min(i + 1, window - 1), 4)
    np.testing.assert_allclose(tf.concat(steps, axis=1), expected, atol=1e-5)


@either_direction
def test_long_sequences_fit(causal, monkeypatch):
    """Full attention of 100,000 positions would be 40 GB of scores."""
    monkeypatch.undo()
    layer = LocalSelfAttention(1, 2, window=8, causal=causal)
    x, mask = tf.random.normal([1, 100_000, 4]), tf.ones([1, 100_000], tf.bool)
    layer.build(x.shape)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, Sequences(mask=mask)) ** 2)
        return tape.gradient(loss, layer.trainable_weights)

    assert all(np.all(np.isfinite(gradient)) for gradient in train())
