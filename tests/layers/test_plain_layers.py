"""Feed-forward network, dropouts, positions and embedding against the paper's formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.layers.variants.additive_attention import AdditiveAttention
from t2t_keras.layers.variants.feed_forward import ConvolutionFeedForward
from t2t_keras.layers.variants.positions import FairseqSinusoidalPositions, LearnedPositions
from tests import reference

rng = np.random.default_rng(0)


def test_feed_forward_is_equation_2():
    x = rng.normal(size=(2, 3, 4))
    layer = FeedForward(7, dtype="float64")
    layer.build(x.shape)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    expected = reference.feed_forward(x, *(w.numpy() for w in layer.weights))
    np.testing.assert_allclose(layer(x), expected, atol=1e-9)


def test_convolutions_are_over_the_length_whatever_keras_json_says():
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        assert ConvolutionFeedForward(7)(tf.ones([2, 3, 5])).shape == (2, 3, 5)
    finally:
        keras.config.set_image_data_format(before)


def test_feed_forward_is_two_convolutions_with_kernel_size_1():
    x = rng.normal(size=(2, 3, 4))
    dense, convolution = FeedForward(7, dtype="float64"), ConvolutionFeedForward(7, dtype="float64")
    expected = dense(x)
    convolution.build(x.shape)
    shapes = [weight.shape for weight in convolution.weights]
    assert shapes == [(1, 4, 7), (7,), (1, 7, 4), (4,)]
    weights = zip(dense.get_weights(), shapes, strict=True)
    convolution.set_weights([weight.reshape(shape) for weight, shape in weights])
    np.testing.assert_allclose(convolution(x), expected, atol=1e-12)
    assert convolution(x[:0]).shape == (0, 3, 4)
    unknown = tf.function(convolution).get_concrete_function(
        tf.TensorSpec([None, None, 4], tf.float64)
    )
    assert unknown(tf.zeros([0, 3, 4], tf.float64)).shape == (0, 3, 4)


@pytest.mark.parametrize("kind", [FeedForward, ConvolutionFeedForward])
def test_activation_dropout_falls_between_the_two_products(kind):
    x = rng.normal(size=(20, 9, 5))
    layer = kind(5, dropout=0.25, dtype="float64")
    layer.build(x.shape)
    outer = np.eye(5).reshape(layer.get_weights()[2].shape)  # with it the inner layer is the output
    layer.set_weights([*layer.get_weights()[:2], outer, np.zeros(5)])
    whole, dropped = layer(x).numpy(), layer(x, training=True).numpy()
    assert_dropped(dropped, whole, 0.25)


@pytest.mark.parametrize("kind", [ScaledDotProductAttention, AdditiveAttention])
def test_attention_dropout_falls_on_the_weights(kind):
    query, key = rng.normal(size=(2, 3, 4, 9, 5))
    values = np.broadcast_to(np.eye(9), [3, 4, 9, 9])  # with them the context is the weights
    layer = kind(dropout=0.25, dtype="float64")
    layer.build(query.shape)
    context, weights = layer(query, key, values)
    np.testing.assert_allclose(context, weights, atol=1e-6)
    dropped, same_weights = layer(query, key, values, training=True)
    np.testing.assert_array_equal(same_weights, weights)
    assert_dropped(dropped.numpy(), weights.numpy(), 0.25)


def assert_dropped(dropped, whole, rate):
    """Asserts that a fraction of the elements is 0 and the others are scaled."""
    real = whole != 0
    fraction = np.mean(dropped[real] == 0)
    assert fraction == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / real.sum()))
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], whole[kept] / (1 - rate), rtol=1e-5)


@pytest.mark.parametrize("model_dim", [6, 7, 512])
def test_sinusoidal_positions_are_section_3_5(model_dim):
    exact = reference.positions(600, model_dim)
    layer = SinusoidalPositions()
    np.testing.assert_allclose(layer(tf.zeros([1, 600, model_dim]))[0], exact, atol=5e-4)
    packed = layer(tf.zeros([1, 5, model_dim]), tf.constant([[0, 1, 2, 0, 1]]))[0]
    np.testing.assert_allclose(packed, exact[[0, 1, 2, 0, 1]], atol=1e-6)
    half = SinusoidalPositions(dtype="mixed_bfloat16")(tf.zeros([1, 600, model_dim], tf.bfloat16))
    np.testing.assert_allclose(tf.cast(half[0], tf.float32), exact, atol=2**-8)  # beyond 256, too


def test_fairseq_positions_are_its_formula():
    rates = 10_000.0 ** (-np.arange(8) / 7)
    angles = np.outer(np.arange(2, 42), rates)  # from 2
    found = FairseqSinusoidalPositions()(tf.zeros([1, 40, 16]))[0]
    np.testing.assert_allclose(found[:, ::2], np.sin(angles), atol=1e-4)
    np.testing.assert_allclose(found[:, 1::2], np.cos(angles), atol=1e-4)
    for model_dim in (2, 9):
        with pytest.raises(InputError, match=f"model_dim is {model_dim}: fairseq's sinusoids need"):
            FairseqSinusoidalPositions()(tf.zeros([1, 4, model_dim]))


def test_learned_positions_add_their_rows_and_longer_sequences_are_refused():
    layer = LearnedPositions(5)
    result = layer(tf.zeros([2, 3, 4]))
    np.testing.assert_array_equal(result, np.stack([layer.table.numpy()[:3]] * 2))
    for compiled in (False, True):
        graph = tf.function(layer, jit_compile=compiled, autograph=False)
        with pytest.raises(InputError, match="rows of 6 positions, longer than the learned pos"):
            graph(tf.zeros([1, 6, 4]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the learned positions"):
        layer(tf.zeros([1, 2, 4]), tf.constant([[0, 5]]))
    # XLA drops assertions, and sees the length of a row where it compiles for one.
    unknown = tf.function(layer, [tf.TensorSpec([1, None, 4])], jit_compile=True)
    np.testing.assert_array_equal(unknown(tf.zeros([1, 3, 4])), result[:1])
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(tf.zeros([1, 6, 4]))


@pytest.mark.parametrize(
    "layer", [SinusoidalPositions(), LearnedPositions(5), FairseqSinusoidalPositions()]
)
def test_positions_count_what_is_not_masked(layer):
    x = tf.zeros([2, 4, 6])
    found = layer(x, mask=np.array([[False, True, False, True], [True, True, False, False]]))
    expected = layer(x)[0]
    np.testing.assert_array_equal(found[0, 1::2], expected[:2])
    np.testing.assert_array_equal(found[1, :2], expected[:2])


def test_embedding_scales_by_root_model_dim_and_shares_its_matrix_with_the_output_projection():
    layer = SharedEmbedding(11, 16)
    embedded = layer(tf.constant([[4, 9]]))
    matrix = layer.matrix.numpy()
    np.testing.assert_allclose(embedded[0], matrix[[4, 9]] * 4.0, rtol=1e-5)
    hidden = rng.normal(size=(2, 3, 16)).astype("float32")
    np.testing.assert_allclose(layer.logits(hidden), hidden @ matrix.T, atol=1e-5)
    assert len(layer.weights) == 1


@pytest.mark.parametrize("positions", [None, [[0, 1, 1]] * 1000])
def test_a_positions_gradient_is_added_up_in_float32(positions):
    layer = LearnedPositions(4, dtype="mixed_bfloat16")
    x, mask = tf.zeros([1000, 3, 8], tf.bfloat16), tf.ones([1000, 3], tf.bool)
    layer.build(x.shape)
    given = {} if positions is None else {"positions": tf.constant(positions)}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(x, mask=mask, **given), tf.float32))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    counts = [1000, 1000, 1000, 0] if positions is None else [1000, 2000, 0, 0]
    np.testing.assert_array_equal(gradient, np.outer(counts, np.ones(8)))


def test_a_frequent_words_gradient_is_added_up_in_float32():
    """In bfloat16 a sum of ones ends at 256."""
    layer = SharedEmbedding(3, 16, dtype="mixed_bfloat16")
    layer.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(tf.ones([2, 500], tf.int32)), tf.float32))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.matrix.value))
    np.testing.assert_array_equal(gradient, np.outer([0, 1, 0], np.full(16, 1000 * 4.0)))
