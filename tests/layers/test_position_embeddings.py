"""Positions that act in self-attention, against their papers' formulas in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import layers
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import View
from t2t_keras.layers.positions import PositionEmbedding
from tests import reference

HEADS, KEY_DIM, VALUE_DIM, MODEL_DIM, LENGTH = 2, 4, 6, 8, 7
rng = np.random.default_rng(0)


class LinearBiases(PositionEmbedding):
    """ALiBi (Press et al. 2022): subtracts a head's slope times the distance from each score."""

    in_attention = True

    def adjust_scores(self, scores, query, distance):
        slopes = 2.0 ** -np.arange(1, HEADS + 1, dtype="float32")[:, np.newaxis, np.newaxis]
        return scores - slopes * tf.cast(tf.abs(distance), scores.dtype)[..., tf.newaxis, :, :]


def attention_with(positions, kind=layers.MultiHeadSelfAttention, **kwargs):
    layer = kind(HEADS, KEY_DIM, VALUE_DIM, positions=positions, **kwargs)
    layer.build((None, None, MODEL_DIM))
    layer.built = True
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
    return layer


POSITIONS = {
    "rotary": layers.RotaryPositions,
    "relative": lambda: layers.RelativePositions(max_distance=2, value_dim=VALUE_DIM),
    "linear_biases": LinearBiases,
}
every_kind = pytest.mark.parametrize("kind", POSITIONS)


def rotated(x, positions):
    """The formula of the RoFormer, equation 15, by complex numbers."""
    angles = np.outer(positions, 10_000.0 ** (-np.arange(0, KEY_DIM, 2) / KEY_DIM))
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def expected_output(layer, kind, x, positions):
    """Multi-head attention of x [length, model_dim] in loops over heads, queries and keys."""
    weights = {w.path.split("/")[-2] + "/" + w.name: w.numpy() for w in layer.weights}
    widths = np.cumsum([HEADS * KEY_DIM, HEADS * KEY_DIM])
    q, k, v = np.split(x @ weights["qkv_projection/kernel"], widths, axis=-1)
    tables = layer.positions.get_weights()
    heads = []
    for h in range(HEADS):
        query, key = (y[:, h * KEY_DIM : (h + 1) * KEY_DIM] for y in (q, k))
        value = v[:, h * VALUE_DIM : (h + 1) * VALUE_DIM]
        if kind == "rotary":
            query, key = rotated(query, positions), rotated(key, positions)
        context = np.zeros([len(x), VALUE_DIM])
        for i in range(len(x)):
            scores, values = [], []
            for j in range(len(x)):
                distance = positions[j] - positions[i]
                added_key = added_value = bias = 0.0
                if kind == "relative":
                    row = np.clip(distance, -2, 2) + 2
                    added_key, added_value = tables[0][row], tables[1][row]
                if kind == "linear_biases":
                    bias = -abs(distance) * 2.0 ** -(h + 1)
                scores.append(query[i] @ (key[j] + added_key) / KEY_DIM**0.5 + bias)
                values.append(value[j] + added_value)
            if layer.causal:
                scores[i + 1 :] = [-np.inf] * (len(x) - i - 1)
            context[i] = reference.softmax(np.array(scores)) @ np.array(values)
        heads.append(context)
    return np.concatenate(heads, axis=-1) @ weights["output_projection/kernel"]


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_the_papers_formula(kind, causal):
    x = rng.normal(size=(2, LENGTH, MODEL_DIM)).astype("float32")
    layer = attention_with(POSITIONS[kind](), causal=causal)
    for row, found in zip(x, layer(x).numpy(), strict=True):
        expected = expected_output(layer, kind, row, np.arange(LENGTH))
        np.testing.assert_allclose(found, expected, atol=1e-4)


@every_kind
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [3, 20])
def test_local_attention_is_full_attention_within_its_window(kind, causal, window):
    x = rng.normal(size=(2, 40, MODEL_DIM)).astype("float32")
    local = attention_with(
        POSITIONS[kind](), layers.LocalSelfAttention, window=window, causal=causal
    )
    full = attention_with(POSITIONS[kind](), causal=causal)
    full.set_weights(local.get_weights())
    allowed = reference.window_mask(causal, window, np.ones([1, 40]))
    query, key_value = full.project(x)
    distance = layers.positions.distances(tf.range(40), tf.range(40))
    expected, _ = full.attend(query, *key_value, View(tf.constant(allowed), distance=distance))
    reference.assert_close(local(x), expected)


def test_invalid_settings_are_refused():
    with pytest.raises(InputError, match="key_dim is 5, but rotary positions rotate pairs"):
        layers.MultiHeadSelfAttention(2, 5, positions=layers.RotaryPositions())(tf.ones([1, 2, 8]))
    attend = layers.MultiHeadSelfAttention(2, 4, 3, positions=layers.RelativePositions(2))
    with pytest.raises(InputError, match="value_dim 4, but the values of attention 3"):
        attend(tf.ones([1, 2, 8]))


@every_kind
def test_positions_in_attention_are_not_added_to_tokens(kind):
    with pytest.raises(InputError, match=r"act in attention .* as positions="):
        POSITIONS[kind]()(tf.ones([1, 3, 8]))


@pytest.mark.parametrize(
    "positions", [layers.SinusoidalPositions(), layers.LearnedPositions(9), PositionEmbedding(), 3]
)
def test_positions_without_effect_in_attention_are_refused(positions):
    for kind, options in (
        (layers.MultiHeadSelfAttention, {}),
        (layers.LocalSelfAttention, {"window": 3}),
    ):
        with pytest.raises(InputError, match="positions is "):
            kind(2, 4, positions=positions, **options)


@pytest.mark.parametrize(
    "layer",
    [layers.SinusoidalPositions(), layers.LearnedPositions(9), layers.FairseqSinusoidalPositions()],
)
def test_positions_of_another_shape_or_kind_are_refused(layer):
    x = tf.zeros([2, 3, 6])
    for shape in ((2, 1, 4, 6), (2, 3, 4, 6), (6, 6)):
        with pytest.raises(InputError, match=r"give embedded tokens \[batch, length, model_dim\]"):
            layer(tf.zeros(shape))
    for positions in (np.ones([2, 3], bool), np.arange(3.0), np.ones([2, 2], int), [[[1]]]):
        with pytest.raises(InputError, match=r"positions (are|has shape) .*: give "):
            layer(x, positions=positions)
    for mask in (np.ones([2, 2], bool), np.ones([2, 3, 1], bool)):
        with pytest.raises(InputError, match=r"mask has shape .*: give \[batch, length\]"):
            layer(x, mask=mask)
    np.testing.assert_array_equal(layer(x, positions=[0, 1, 2]), layer(x))
