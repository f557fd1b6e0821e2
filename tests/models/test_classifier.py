"""The classifier against NumPy, and what a user of Keras does with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras
from t2t_keras.errors import InputError
from t2t_keras.layers.pooling import POOLINGS
from t2t_keras.models.classifier import TransformerClassifier, WordDropout
from t2t_keras.models.config import TransformerConfig
from t2t_keras.training.checkpoints import model_variables
from tests import reference
from tests.models import numpy_model
from tests.models.numpy_model import randomized

SMALL = {"num_encoder_layers": 2, "model_dim": 16, "feed_forward_dim": 24, "num_heads": 2}
IDS = np.array([[5, 6, 7, 1, 0, 0], [5, 6, 7, 8, 9, 1], [0, 0, 9, 8, 6, 1]])
LABELS = np.array([0, 2, 1])
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def small(classes=3, dtype=None, head=None, **config):
    return TransformerClassifier(
        TransformerConfig(40, **(SMALL | config)), classes, dtype=dtype, **(head or {})
    )


def numpy_classifier(model, ids):
    """The whole model with mean pooling, in float64."""
    encoded, _ = numpy_model.encode(model, ids)
    pooled = np.stack([x[row != 0].mean(0) for x, row in zip(encoded, ids, strict=True)])
    return pooled @ model.head.kernel.numpy() + model.head.bias.numpy()


@pytest.mark.parametrize("scale_embedding", [True, False])
def test_the_whole_model_in_numpy(scale_embedding):
    model = randomized(small(scale_embedding=scale_embedding))
    np.testing.assert_allclose(model(IDS), numpy_classifier(model, IDS), atol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("window", [None, 3])
def test_padding_changes_nothing_and_alone_gives_the_bias(pooling, window):
    model = randomized(small(attention_window=window, head={"pooling": pooling}))
    expected = model(IDS[1:2])
    for padding in ([0, 30], [2, 0]):
        padded = np.pad(IDS[1:2], [[0, 0], padding])
        np.testing.assert_allclose(model(padded), expected, rtol=1e-4, atol=1e-5)
    bias = model(np.zeros([1, 4], int))[0]
    np.testing.assert_allclose(bias, model.head.bias, rtol=1e-5, atol=1e-6)


def test_a_compiled_model_comes_back_from_a_file(tmp_path):
    head = {"pooling": "attention", "head_dropout": 0.2, "word_dropout": 0.3}
    model = randomized(small(attention_window=4, head=head))
    model.compile(keras.optimizers.Adam(0.01), LOSS, metrics=["accuracy"], run_eagerly=True)
    model.fit(IDS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again({"source_ids": tf.constant(IDS)}), model(IDS))
    with pytest.raises(InputError, match=r"inputs are \['ids'\]: give ids \[batch, length\], or"):
        model({"ids": tf.constant(IDS)})
    assert again.get_config() == model.get_config()
    assert int(again.optimizer.iterations) == 1
    results = [m.evaluate(IDS, LABELS, verbose=0, return_dict=True) for m in (model, again)]
    assert results[0] == pytest.approx(results[1])
    names = model_variables(model)
    assert {"model/embedding/matrix", "model/head/bias"} <= set(names)
    assert any(name.startswith("random/word_dropout") for name in names)


WORDS = tf.ones([100, 200], tf.int32) * 7


def test_word_dropout_makes_a_fraction_of_the_ids_padding_in_training():
    layer = WordDropout(0.3)
    first, second = layer(WORDS, training=True), layer(WORDS, training=True)
    assert first.dtype == tf.int32
    assert set(np.unique(first)) == {0, 7}
    assert np.mean(first == 0) == pytest.approx(0.3, abs=0.02)
    assert np.any(first != second)
    np.testing.assert_array_equal(layer(WORDS), WORDS)
    np.testing.assert_array_equal(WordDropout(0.0)(WORDS, training=True), WORDS)
    assert not WordDropout(0.0).variables


def test_word_dropout_trains_as_if_some_ids_were_padding_and_head_dropout_acts_in_training():
    model = randomized(small(dropout=0.0, head={"head_dropout": 0.0, "word_dropout": 0.5}))
    state = model.word_dropout.seed_generator.state
    before = state.numpy()
    dropped = model.word_dropout(tf.constant(IDS), training=True)
    assert np.any(dropped != IDS)
    state.assign(before)
    np.testing.assert_array_equal(model(IDS, training=True), model(dropped))
    model = small(dropout=0.0, head={"head_dropout": 0.5})
    assert np.any(model(IDS, training=True) != model(IDS))
    model = small(dropout=0.0, head={"head_dropout": 0.0})
    np.testing.assert_array_equal(model(IDS, training=True), model(IDS))


def test_label_smoothed_cross_entropy_trains_a_classifier():
    model = small()
    model.compile("adam", t2t_keras.LabelSmoothedCrossEntropy(0.1))
    loss = model.evaluate(IDS, LABELS, sample_weight=np.ones(3), verbose=0)
    smooth = 0.9 * np.eye(3)[LABELS] + 0.1 / 3
    expected = -np.mean(np.sum(smooth * np.log(reference.softmax(model(IDS).numpy())), axis=1))
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"classes": 1}, "classes is 1"),
    ({"classes": 2.0}, "classes is 2.0"),
    ({"head": {"pooling": "last"}}, "pooling is 'last': give one of mean, max, first"),
    ({"head": {"head_dropout": 1.0}}, "head_dropout is 1.0"),
    ({"head": {"word_dropout": -0.1}}, "word_dropout is -0.1"),
])  # fmt: skip
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(InputError, match=message):
        small(**arguments)
