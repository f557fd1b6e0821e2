"""Every public layer as Keras tests its own, and in functional models: shapes, masks, saving."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.testing import test_case

from t2t_keras import layers, models
from t2t_keras.errors import InputError

X = (2, 7, 8)
ONE = {"input_shape": X, "run_training_check": False}
TRAINED = ONE | {"run_training_check": True}
TWO = {"input_shape": {"x_shape": X, "memory_shape": (2, 5, 8)}, "run_training_check": False}
AROUND = {"input_shape": {"x_shape": X, "y_shape": X}, "run_training_check": False}
THREE = {
    "input_shape": {"query_shape": (2, 4, 6), "key_shape": (2, 5, 6), "value_shape": (2, 5, 3)},
    "run_training_check": False,
}
HEADS = {"num_heads": 2, "key_dim": 3}
CONFIG = models.TransformerConfig(11, 1, 1, 8, 12, num_heads=2, norm="pre")
CASES = {
    "AdditiveAttention": (
        {},
        THREE | {"input_shape": {f"{x}_shape": (2, 3, 5, 4) for x in ("query", "key", "value")}},
    ),
    "AttentionPooling": ({}, ONE),
    "ConvolutionFeedForward": ({"feed_forward_dim": 5, "dropout": 0.1}, TRAINED),
    "Decoder": ({"config": CONFIG}, TWO),
    "DecoderLayer": ({"config": CONFIG}, TWO),
    "DotProductAttention": ({"dropout": 0.1}, THREE),
    "Dropout": ({"rate": 0.1}, ONE),
    "Encoder": ({"config": CONFIG}, TRAINED),
    "EncoderLayer": ({"config": CONFIG}, ONE),
    "FairseqSinusoidalPositions": ({}, ONE),
    "FeedForward": ({"feed_forward_dim": 5, "dropout": 0.1}, ONE),
    "FirstPooling": ({}, ONE),
    "LayerNorm": ({"epsilon": 0.1}, ONE),
    "LearnedPositions": ({"max_positions": 9}, ONE),
    "Linear": ({"units": 5, "activation": "relu"}, ONE),
    "LocalSelfAttention": (HEADS | {"window": 3, "causal": True}, TRAINED),
    "MaxPooling": ({}, ONE),
    "MeanPooling": ({}, ONE),
    "MultiHeadCrossAttention": (HEADS | {"value_dim": 5, "fused": False}, TWO),
    "MultiHeadSelfAttention": (HEADS | {"value_dim": 5, "causal": True}, ONE),
    "PostNorm": ({"dropout": 0.2}, AROUND),
    "PreNorm": ({"dropout": 0.2}, AROUND),
    "ScaledDotProductAttention": ({"dropout": 0.1}, THREE),
    "SharedEmbedding": (
        {"vocab_size": 9, "model_dim": 8},
        {"input_shape": (2, 7), "input_dtype": "int32", "run_training_check": False},
    ),
    "SinusoidalPositions": ({}, ONE),
}


@keras.saving.register_keras_serializable("tests")
class LinearBiases(layers.positions.PositionEmbedding):
    """Positions of a user's own."""

    in_attention = True


OTHER_SETTINGS = [
    ("MultiHeadSelfAttention", {"attention": layers.AdditiveAttention(layers.HardMax(2.0))}),
    ("MultiHeadSelfAttention", {"key_dim": 4, "positions": layers.RotaryPositions()}),
    ("MultiHeadSelfAttention", {"positions": layers.RelativePositions(2, value_dim=5)}),
    ("MultiHeadSelfAttention", {"positions": LinearBiases()}),
    ("LocalSelfAttention", {"fused": False, "causal": False}),
    ("ScaledDotProductAttention", {"normalize": layers.TemperedSoftmax(3.0)}),
    ("PreNorm", {"epsilon": 1e-5}),
    ("Encoder", {"causal": True}),
    ("EncoderLayer", {"causal": True}),
]


def make(name, **settings):
    kind = getattr(layers, name, None) or getattr(models, name)
    return kind(**(CASES[name][0] | settings))


def test_every_public_layer_is_tested():
    public = [getattr(module, name) for module in (layers, models) for name in module.__all__]
    kinds = {kind.__name__ for kind in public if isinstance(kind, type)}
    parts_of_attention = {"HardMax", "RelativePositions", "RotaryPositions", "Softmax"}
    others = {"Sequences", "TemperedSoftmax", "TransformerConfig"}
    whole_models = {"Ensemble", "Transformer", "TransformerClassifier", "TransformerLM"}
    assert kinds - parts_of_attention - others - whole_models == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_layer_passes_keras_own_test(name):
    kind = getattr(layers, name, None) or getattr(models, name)
    settings, inputs = CASES[name]
    test_case.TestCase().run_layer_test(kind, settings, supports_masking=True, **inputs)


@pytest.mark.parametrize(("name", "settings"), [*((n, {}) for n in CASES), *OTHER_SETTINGS])
def test_the_layer_has_known_shapes_and_comes_back_in_a_saved_model(name, settings, tmp_path):
    shapes = CASES[name][1]["input_shape"]
    shapes = [shapes] if isinstance(shapes, tuple) else list(shapes.values())
    unknown = [(None, *shape[1:]) for shape in shapes]
    dtype = CASES[name][1].get("input_dtype", "float32")
    layer, again = make(name, **settings), make(name, **settings)
    inputs = [keras.Input(shape[1:], dtype=dtype) for shape in shapes]
    model = keras.Model(inputs, layer(*inputs))
    specs = [tf.TensorSpec(shape, dtype) for shape in unknown]
    graph = tf.function(layer, autograph=False).get_concrete_function(*specs)
    expected = layer.compute_output_shape(*unknown)
    for found in (model.output, graph.structured_outputs):
        assert keras.tree.map_structure(lambda x: tuple(x.shape), found) == expected
    again.build(*unknown)
    assert [w.shape for w in again.weights] == [w.shape for w in layer.weights]
    model.save(tmp_path / "layer.keras")
    loaded = keras.saving.load_model(tmp_path / "layer.keras")
    rng = np.random.default_rng(0)
    values = [rng.integers(1, 9, s) if dtype == "int32" else rng.normal(size=s) for s in shapes]
    outputs = (keras.tree.flatten(m(values)) for m in (model, loaded))
    for before, after in zip(*outputs, strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    "name",
    ["MultiHeadSelfAttention", "LocalSelfAttention", "Encoder",
     "MeanPooling", "FirstPooling", "MaxPooling", "AttentionPooling"],
)  # fmt: skip
@pytest.mark.parametrize("before", [0, 2])
def test_masked_padding_changes_nothing(name, before):
    ids = tf.constant([[3, 4, 5, 6, 7]])
    padded = tf.pad(ids, [[0, 0], [before, 3]])
    embedding, layer = keras.layers.Embedding(9, 8, mask_zero=True), make(name)
    found = layer(embedding(padded))
    if len(found.shape) == 3:
        found = found[:, before : before + 5]
    np.testing.assert_allclose(found, layer(embedding(ids)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["MultiHeadCrossAttention", "DecoderLayer", "Decoder"])
def test_masked_padding_of_either_side_changes_nothing(name):
    embedding, layer = layers.SharedEmbedding(9, 8), make(name)
    x, memory = tf.constant([[3, 4, 5]]), tf.constant([[5, 6, 7, 8]])
    expected = layer(embedding(x), embedding(memory))
    padded = (tf.pad(ids, [[0, 0], [2, 1]]) for ids in (x, memory))
    found = layer(*(embedding(ids) for ids in padded))
    np.testing.assert_allclose(found[:, 2:5], expected, atol=1e-5)


def test_attention_weights_come_where_they_are_asked_for():
    layer, x = make("MultiHeadSelfAttention"), tf.ones([1, 3, 8])
    assert list(inspect.signature(layer.call).parameters)[-1] == "return_attention_weights"
    y, weights = layer(x, return_attention_weights=True)
    assert weights.shape == [1, 2, 3, 3]
    np.testing.assert_allclose(layer.call(x, return_attention_weights=True)[1], weights)
    np.testing.assert_allclose(layer(x, return_attention_weights=False), y)


def test_masks_come_explicitly_or_with_the_input_and_leave_with_the_output():
    ids = tf.constant([[3, 4, 0]])
    x = layers.SharedEmbedding(9, 8)(ids)
    layer = make("Encoder")
    np.testing.assert_array_equal(layer(x)._keras_mask, ids != 0)
    bare = tf.identity(x)
    assert not hasattr(bare, "_keras_mask")
    for mask in (ids != 0, layers.Sequences(segments=tf.constant([[1, 1, 0]]))):
        np.testing.assert_allclose(layer(bare, mask)[:, :2], layer(x)[:, :2], atol=1e-6)
    np.testing.assert_array_equal(layer(bare, mask=ids != 0)._keras_mask, ids != 0)
    assert np.abs(layer(bare) - layer(x)).max() > 0.01


def translator_of_ones_own():
    """An encoder and a decoder layer, tied logits, packed rows and a mask of one's own."""
    source = keras.Input([None], dtype="int32", name="source")
    target = keras.Input([6], dtype="int32", name="target")
    segments = keras.Input([6], dtype="int32", name="segments")
    embedding, add_positions = layers.SharedEmbedding(11, 8), layers.SinusoidalPositions()
    memory = add_positions(embedding(source))
    residual = layers.PreNorm()
    memory = residual(memory, layers.MultiHeadSelfAttention(2, 4)(residual(memory)))
    x = add_positions(embedding(target))
    residual = layers.PostNorm()
    attention = layers.MultiHeadSelfAttention(2, 4, causal=True)
    y, weights = attention(
        residual(x), layers.Sequences(segments=segments), return_attention_weights=True
    )
    x = residual(x, y)
    residual = layers.PostNorm()
    x = residual(x, layers.MultiHeadCrossAttention(2, 4)(x, memory))
    residual = layers.PostNorm()
    x = residual(x, layers.FeedForward(16)(x))
    allowed = layers.padding_mask(keras.ops.not_equal(target, 0))
    same = layers.segment_mask(segments, segments)
    return keras.Model(
        [source, target, segments],
        [embedding.logits(x), weights, keras.ops.logical_and(allowed, same)],
    )


def test_functional_models_of_the_layers_train_and_come_back(tmp_path):
    model = translator_of_ones_own()
    assert [output.shape for output in model.outputs] == [
        (None, 6, 11),
        (None, 2, 6, 6),
        (None, 1, 6, 6),
    ]
    names = [weight.path for weight in model.weights]
    assert len(names) == len(set(names)) == 1 + 2 * (2 + 2) + (2 + 3) + (2 + 4)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(1, 11, shape) for shape in ([4, 5], [4, 6])]
    inputs.append(np.array([[1, 1, 2, 2, 2, 0]] * 4))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", [loss, None, None], run_eagerly=True)
    before = [np.copy(w) for w in model.get_weights()]
    model.fit(inputs, [inputs[1], None, None], verbose=0)
    changed = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert all(changed)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert len(again.trainable_weights) == len(model.trainable_weights)
    for path in ("clone", "loaded"):
        other = again if path == "loaded" else keras.models.clone_model(model)
        other.set_weights(model.get_weights())
        for a, b in zip(other(inputs), model(inputs), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_model_with_sequences_hands_on_the_same_masks_when_it_comes_back(tmp_path, by_name):
    ids, segments = (keras.Input([5], dtype="int32") for _ in range(2))
    bare = keras.Input([3, 8])
    x, rows = layers.SharedEmbedding(9, 8)(ids), layers.Sequences(segments=segments)
    attend = layers.MultiHeadSelfAttention(2, 4)
    y = attend(x=x, sequences=rows) if by_name else attend(x, rows)
    unmasked = layers.MultiHeadSelfAttention(2, 4)(bare, layers.Sequences(mask=segments[:, :3]))
    outputs = layers.MultiHeadCrossAttention(2, 4)(bare, y), layers.MeanPooling()(unmasked)
    model = keras.Model([ids, segments, bare], [*outputs, y])
    model.save(tmp_path / "model.keras")
    inputs = [
        tf.constant([[3, 4, 5, 0, 0], [3, 4, 5, 6, 0]]),
        tf.constant([[1, 1, 1, 2, 2], [1, 2, 2, 2, 0]]),
        tf.constant(np.random.default_rng(0).normal(size=(2, 3, 8)), tf.float32),
    ]
    for again in (model, keras.saving.load_model(tmp_path / "model.keras")):
        found = again(inputs)
        for a, b in zip(found, model(inputs), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(found[2]._keras_mask, inputs[0] != 0)


def test_ids_may_be_of_any_integer_type_and_mistakes_are_named():
    layer, ids = layers.SharedEmbedding(9, 8), np.array([[3, 8, 0]])
    for dtype in ("uint8", "int16", "int64", "uint32"):
        np.testing.assert_array_equal(layer(ids.astype(dtype)), layer(ids.astype("int32")))
    with pytest.raises(ValueError, match="ids are float32: give integers"):
        layers.SharedEmbedding(9, 8)(keras.Input([5]))
    with pytest.raises(InputError, match="num_heads is 0: give a whole number"):
        layers.MultiHeadSelfAttention(0, 4)
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
        make("MultiHeadSelfAttention")(tf.ones([2, 8]))
