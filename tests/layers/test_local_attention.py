import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers import local_attention
from t2t_keras.layers.additive_attention import AdditiveAttention
from t2t_keras.layers.beam_rows import BeamRows
from t2t_keras.layers.local_attention import CausalLocalSelfAttention, LocalSelfAttention
from t2t_keras.layers.masks import SegmentMasks, causal_mask, padding_mask
from t2t_keras.layers.multi_head import MultiHeadSelfAttention

rng = np.random.default_rng(0)
KINDS = [LocalSelfAttention, CausalLocalSelfAttention]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks as short as a window allows, so that short sequences have several."""
    monkeypatch.setattr(local_attention, "_SHORTEST_BLOCK", 1)


def window_mask(kind, window, segments):
    """Who may attend to whom, one position after the other: bool [batch, query, key]."""
    segments = np.asarray(segments)
    mask = np.zeros((*segments.shape, segments.shape[1]), bool)
    for row, query in np.argwhere(segments):
        own = np.flatnonzero(segments[row] == segments[row, query])
        if kind is CausalLocalSelfAttention:
            neighbourhood = own[(own <= query) & (own > query - window)]
        else:
            begin = np.clip(query - window // 2, own[0], max(own[0], own[-1] + 1 - window))
            neighbourhood = own[(own >= begin) & (own < begin + window)]
        mask[row, query, neighbourhood] = True
    return mask


def full_twin(layer, model_dim=8):
    twin = MultiHeadSelfAttention(layer.heads, layer.key_dim, layer.value_dim)
    layer.build((None, None, model_dim))
    twin.build((None, None, model_dim))
    twin.set_weights(layer.get_weights())
    return twin


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("length", [1, 2, 5, 12, 13])
def test_a_window_is_a_mask(kind, window, length):
    x = rng.normal(size=(2, length, 8)).astype("float32")
    layer = kind(2, 4, 3, window=window)
    full = full_twin(layer)
    mask = window_mask(kind, window, np.ones((1, length), int))[:, np.newaxis]
    assert mask.sum(-1).max() == min(window, length)
    np.testing.assert_allclose(layer(x), full(x, attention_mask=mask), atol=1e-5)
    np.testing.assert_allclose(layer.weigh(x), full.weigh(x, mask), atol=1e-5)


@pytest.mark.parametrize("window", [2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_windows_stay_within_segments_and_off_padding(kind, window):
    segments = np.array([[1] * 4 + [2] + [3] * 6, [1] * 3 + [0] * 8, [1] * 2 + [2] * 7 + [0] * 2])
    x = rng.normal(size=(3, 11, 8)).astype("float32")
    layer = kind(2, 4, window=window)
    mask = window_mask(kind, window, segments)[:, np.newaxis]
    expected = full_twin(layer)(x, attention_mask=mask)
    masks = SegmentMasks.causal if "Causal" in kind.__name__ else SegmentMasks.whole
    result = layer(x, attention_mask=masks(None, tf.constant(segments)))
    real = segments > 0
    np.testing.assert_allclose(result[real], expected[real], atol=1e-5)
    assert np.all(np.isfinite(result))


@pytest.mark.parametrize("window", [9, 50])
def test_a_window_as_long_as_the_sequence_is_full_attention(window):
    ids = np.array([[5, 6, 7, 8, 9, 4, 3, 1, 1], [5, 6, 1, 0, 0, 0, 0, 0, 0], [0] * 9])
    x = rng.normal(size=(3, 9, 8)).astype("float32")
    layer = LocalSelfAttention(2, 4, window=window)
    full = full_twin(layer)
    np.testing.assert_allclose(layer(x), full(x), atol=1e-5)
    mask = padding_mask(ids)
    expected = full(x, attention_mask=mask)
    np.testing.assert_allclose(layer(x, attention_mask=mask), expected, atol=1e-5)
    np.testing.assert_allclose(layer.weigh(x, mask)[:2], full.weigh(x, mask)[:2], atol=1e-5)
    causal = CausalLocalSelfAttention(2, 4, window=window)
    full = full_twin(causal)
    np.testing.assert_allclose(causal(x), full(x, attention_mask=causal_mask(9)), atol=1e-5)


def test_padding_changes_nothing():
    x = rng.normal(size=(1, 9, 8)).astype("float32")
    layer = LocalSelfAttention(2, 4, window=5)
    mask = padding_mask(np.array([[3] * 6 + [0] * 3]))
    padded = layer(x, attention_mask=mask)[:, :6]
    np.testing.assert_allclose(padded, layer(x[:, :6]), atol=1e-5)


@pytest.mark.parametrize("window", [1, 3, 20])
def test_steps_equal_the_whole_and_keep_no_more_than_the_window(window):
    x = rng.normal(size=(2, 8, 8)).astype("float32")
    layer = CausalLocalSelfAttention(2, 4, window=window)
    whole = layer(x)
    cache, steps = layer.initial_cache(2), []
    for i in range(8):
        y, cache = layer.step(x[:, i], cache, BeamRows(2, 1))
        steps.append(y)
        assert cache.key.shape == cache.value.shape == (2, 2, min(i + 1, window - 1), 4)
    np.testing.assert_allclose(tf.stack(steps, axis=1), whole, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_may_be_additive(kind):
    x = rng.normal(size=(1, 9, 8)).astype("float32")
    layer = kind(2, 4, window=3, attend=AdditiveAttention())
    mask = window_mask(kind, 3, np.ones((1, 9), int))[:, np.newaxis]
    full = MultiHeadSelfAttention(2, 4, attend=AdditiveAttention())
    full.build(x.shape)
    layer.build(x.shape)
    full.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x), full(x, attention_mask=mask), atol=1e-5)


def test_mistakes_are_refused():
    with pytest.raises(InputError, match="window is 0"):
        LocalSelfAttention(2, 4, window=0)
    with pytest.raises(InputError, match=r"\(1, 1, 3, 3\): give restricted attention"):
        LocalSelfAttention(2, 4, window=2)(tf.zeros([1, 3, 8]), attention_mask=causal_mask(3))


@pytest.mark.parametrize("kind", KINDS)
def test_long_sequences_fit(kind, monkeypatch):
    """Full attention of 100,000 positions would be 40 GB of scores."""
    monkeypatch.undo()
    layer = kind(1, 2, window=8)
    x, mask = tf.random.normal([1, 100_000, 4]), tf.ones([1, 1, 1, 100_000], tf.bool)
    layer.build(x.shape)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, attention_mask=mask) ** 2)
        return tape.gradient(loss, layer.trainable_weights)

    assert all(np.all(np.isfinite(gradient)) for gradient in train())
