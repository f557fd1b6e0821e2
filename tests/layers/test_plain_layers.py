"""Feed-forward network, positions, embedding and residual against the paper's formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.additive_attention import AdditiveAttention
from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.feed_forward import ConvolutionFeedForward, FeedForward
from t2t_keras.layers.local_attention import CausalLocalSelfAttention, LocalSelfAttention
from t2t_keras.layers.multi_head import MultiHeadCrossAttention, MultiHeadSelfAttention
from t2t_keras.layers.positions import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.residual import PostNormResidual, PreNormResidual
from t2t_keras.layers.selection import ArgMax
from tests import reference

rng = np.random.default_rng(0)


def test_feed_forward_is_equation_2():
    x = rng.normal(size=(2, 3, 4))
    layer = FeedForward(7, dtype="float64")
    layer.build(x.shape)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    expected = reference.feed_forward(x, *(w.numpy() for w in layer.weights))
    np.testing.assert_allclose(layer(x), expected, atol=1e-9)


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
    outer = np.eye(5).reshape(layer.get_weights()[2].shape)  # with it the inner layer is seen
    layer.set_weights([*layer.get_weights()[:2], outer, np.zeros(5)])
    whole, dropped = layer(x).numpy(), layer(x, training=True).numpy()
    assert_some_are_0_and_the_rest_grows(dropped, whole, 0.25)


@pytest.mark.parametrize("kind", [ScaledDotProductAttention, AdditiveAttention])
def test_attention_dropout_falls_on_the_weights(kind):
    query, key = rng.normal(size=(2, 3, 4, 9, 5))
    values = np.broadcast_to(np.eye(9), [3, 4, 9, 9])  # with them the context is the weights
    layer = kind(dropout=0.25, dtype="float64")
    layer.build(query.shape)
    weights = layer.weigh(query, key).numpy()
    np.testing.assert_allclose(layer(query, key, values), weights, atol=1e-6)
    dropped = layer(query, key, values, training=True).numpy()
    assert_some_are_0_and_the_rest_grows(dropped, weights, 0.25)


def assert_some_are_0_and_the_rest_grows(dropped, whole, rate):
    real = whole != 0
    share = np.mean(dropped[real] == 0)
    assert share == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / real.sum()))
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], whole[kept] / (1 - rate), rtol=1e-5)


def test_sinusoidal_positions_known_row():
    row = SinusoidalPositions().encode(tf.constant([3]), 6)[0]
    np.testing.assert_allclose(
        row, [0.14112, -0.98999, 0.13879, 0.99032, 0.00646, 0.99997], atol=1e-5
    )


@pytest.mark.parametrize("model_dim", [6, 7, 512])
def test_sinusoidal_positions_are_section_3_5(model_dim):
    x = tf.zeros([1, 40, model_dim])
    np.testing.assert_allclose(
        SinusoidalPositions()(x)[0], reference.positions(40, model_dim), atol=1e-5
    )


def test_sinusoidal_positions_tell_far_positions_apart_in_bfloat16():
    layer = SinusoidalPositions(dtype="mixed_bfloat16")
    table = layer(tf.zeros([1, 600, 64], tf.bfloat16))[0]
    exact = reference.positions(600, 64)
    np.testing.assert_allclose(tf.cast(table, tf.float32), exact, atol=0.005)


def test_positions_of_packed_rows_restart():
    x = tf.zeros([1, 5, 4])
    packed = SinusoidalPositions()(x, tf.constant([[0, 1, 2, 0, 1]]))[0]
    np.testing.assert_array_equal(packed[3:], packed[:2])


def test_learned_positions_add_their_rows_and_refuse_more():
    layer = LearnedPositions(5)
    result = layer(tf.zeros([2, 3, 4]))
    np.testing.assert_array_equal(result, np.stack([layer.table.numpy()[:3]] * 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the learned positions"):
        layer(tf.zeros([1, 6, 4]))


def test_embedding_scales_by_root_model_dim_and_shares_its_matrix_with_the_softmax():
    layer = SharedEmbedding(11, 16)
    embedded = layer(tf.constant([[4, 9]]))
    matrix = layer.matrix.numpy()
    np.testing.assert_allclose(embedded[0], matrix[[4, 9]] * 4.0, rtol=1e-6)
    hidden = rng.normal(size=(2, 3, 16)).astype("float32")
    np.testing.assert_allclose(layer.logits(hidden), hidden @ matrix.T, atol=1e-5)
    assert len(layer.weights) == 1


def test_post_norm_is_section_3_1():
    x = rng.normal(size=(2, 3, 8))
    layer = PostNormResidual(dropout=0.3, dtype="float64")
    layer.build(x.shape)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    expected = reference.layer_norm(x + 2 * x, *layer.get_weights())
    np.testing.assert_allclose(layer(x, sublayer=lambda y: 2 * y), expected, atol=1e-6)


def test_pre_norm_norms_inside():
    x = rng.normal(size=(2, 3, 8))
    layer = PreNormResidual(dropout=0.3, dtype="float64")
    layer.build(x.shape)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    expected = x + 2 * reference.layer_norm(x, *layer.get_weights())
    np.testing.assert_allclose(layer(x, sublayer=lambda y: 2 * y), expected, atol=1e-6)


@pytest.mark.parametrize("residual", [PostNormResidual, PreNormResidual])
def test_dropout_falls_on_the_sublayer_output_only(residual):
    """Where dropout removes all, what is left is the residual path."""
    x = tf.random.normal([2, 3, 8])
    layer = residual(dropout=1.0 - 1e-7)
    result = layer(x, sublayer=lambda y: y * 1e3, training=True)
    expected = layer.norm(x) if residual is PostNormResidual else x
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (ScaledDotProductAttention(), 3),
        (MultiHeadSelfAttention(2, 3, 5), 1),
        (MultiHeadCrossAttention(2, 3, 5), 2),
        (MultiHeadSelfAttention(2, 3, attend=AdditiveAttention(ArgMax(2.0))), 1),
        (MultiHeadCrossAttention(2, 3, projections="separate"), 2),
        (LocalSelfAttention(2, 3, window=3, kernel_initializer="he_normal"), 1),
        (CausalLocalSelfAttention(2, 3, window=3, projections="separate"), 1),
        (FeedForward(7), 1),
        (ScaledDotProductAttention(dropout=0.3), 3),
        (FeedForward(7, dropout=0.3), 1),
        (ConvolutionFeedForward(7), 1),
        (SinusoidalPositions(), 1),
        (LearnedPositions(9), 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_layers_survive_keras_saving(layer, inputs, tmp_path):
    symbols = [keras.Input((6, 8)) for _ in range(inputs)]
    model = keras.Model(symbols, layer(*symbols))
    values = [rng.normal(size=(2, 6, 8)).astype("float32") for _ in symbols]
    model.save(tmp_path / "layer.keras")
    again = keras.saving.load_model(tmp_path / "layer.keras")
    np.testing.assert_array_equal(
        model.predict(values, verbose=0), again.predict(values, verbose=0)
    )


def test_embedding_and_residuals_come_back_from_their_config():
    for layer in (SharedEmbedding(9, 4), PostNormResidual(0.2, 1e-5), PreNormResidual(0.2, 1e-5)):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
        assert again.get_config() == layer.get_config()
