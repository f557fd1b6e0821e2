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

SMALL = {"num_encoder_layers": 2, "model_dim": 16, "feed_forward_dim": 24, "num_heads": 2}
IDS = np.array([[5, 6, 7, 1, 0, 0], [5, 6, 7, 8, 9, 1], [0, 0, 9, 8, 6, 1]])
LABELS = np.array([0, 2, 1])
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def small(classes=3, dtype=None, head=None, **config):
    return TransformerClassifier(
        TransformerConfig(40, **(SMALL | config)), classes, dtype=dtype, **(head or {})
    )


def randomized(model):
    """Adds noise to all weights: mistakes with biases of 0 and gains of 1 would not show."""
    rng = np.random.default_rng(1)
    model.set_weights([w + rng.normal(0, 0.1, w.shape) for w in model.get_weights()])
    return model


def numpy_classifier(model, ids):
    """The whole model with mean pooling, in float64, one sequence after the other."""
    c = model.config

    def norm(residual, x):
        return reference.layer_norm(x, *(w.numpy() for w in residual.norm.weights), c.norm_epsilon)

    logits = []
    for row in ids:
        real = row != 0
        counted = np.maximum(np.cumsum(real) - 1, 0)  # positions, without padding
        matrix = model.embedding.matrix.numpy().astype("float64")
        x = matrix[row] * (np.sqrt(c.model_dim) if c.scale_embedding else 1.0)
        x += reference.positions(len(row), c.model_dim)[counted]
        for layer in model.encoder.layers:
            [qkv] = layer.attention.qkv_projection.get_weights()
            kernels = np.split(qkv.astype("float64"), 3, axis=1)
            heads = [np.split(kernel, c.num_heads, axis=1) for kernel in kernels]
            output = layer.attention.output_projection.kernel.numpy()
            attended = reference.multi_head(x, x, *heads, output, mask=real[np.newaxis])
            x = norm(layer.attention_residual, x + attended)
            inner = reference.feed_forward(x, *(w.numpy() for w in layer.feed_forward.weights))
            x = norm(layer.feed_forward_residual, x + inner)
        logits.append(x[real].mean(0) @ model.head.kernel.numpy() + model.head.bias.numpy())
    return np.array(logits)


@pytest.mark.parametrize("scale_embedding", [True, False])
def test_the_whole_model_in_numpy(scale_embedding):
    model = randomized(small(scale_embedding=scale_embedding))
    np.testing.assert_allclose(model(IDS), numpy_classifier(model, IDS), atol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("window", [None, 3])
def test_padding_behind_a_sequence_changes_nothing(pooling, window):
    model = randomized(small(attention_window=window, head={"pooling": pooling}))
    padded = np.pad(IDS[1:2], [[0, 0], [0, 30]])
    np.testing.assert_allclose(model(padded), model(IDS[1:2]), atol=1e-5)


def test_a_window_as_long_as_the_sequence_is_full_attention():
    ids = np.random.default_rng(0).integers(4, 40, [2, 70])
    ids[0, 50:] = 0
    full = randomized(small())
    wide, narrow = small(attention_window=70), small(attention_window=9)
    for model in (wide, narrow):
        model.set_weights(full.get_weights())
    np.testing.assert_allclose(wide(ids), full(ids), atol=1e-5)
    assert np.abs(narrow(ids) - full(ids)).max() > 1e-3


@pytest.mark.parametrize("window", [None, 5])
def test_a_row_of_padding_only_gives_the_bias(window):
    model = randomized(small(attention_window=window))
    np.testing.assert_allclose(model(np.zeros([1, 4], int))[0], model.head.bias, atol=1e-6)


def test_ids_may_come_in_a_dict():
    model = randomized(small())
    np.testing.assert_array_equal(model({"source_ids": tf.constant(IDS)}), model(IDS))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_keras_saving_round_trip(pooling, tmp_path):
    head = {"pooling": pooling, "head_dropout": 0.2, "word_dropout": 0.3}
    model = randomized(small(attention_window=4, head=head))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(IDS), model(IDS))
    assert again.get_config() == model.get_config()


def test_weights_exist_from_the_start_and_have_names():
    model = small(head={"word_dropout": 0.1})
    assert model.count_params() == sum(np.prod(w.shape) for w in model.weights) > 0
    names = model_variables(model)
    assert {"model/embedding/matrix", "model/head/bias"} <= set(names)
    assert any(name.startswith("random/word_dropout") for name in names)


def test_mixed_precision_computes_in_bfloat16_and_returns_float32():
    model = randomized(small(dtype="mixed_bfloat16"))
    twin = small()
    twin.set_weights(model.get_weights())
    assert model(IDS).dtype == tf.float32
    assert {w.dtype for w in model.trainable_weights} == {"float32"}
    np.testing.assert_allclose(model(IDS), twin(IDS), atol=0.1)
    assert np.any(model(IDS) != twin(IDS))


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


def test_word_dropout_trains_as_if_some_ids_were_padding():
    model = randomized(small(dropout=0.0, head={"head_dropout": 0.0, "word_dropout": 0.5}))
    state = model.word_dropout.seed_generator.state
    before = state.numpy()
    dropped = model.word_dropout(tf.constant(IDS), training=True)
    assert np.any(dropped != IDS)
    state.assign(before)
    np.testing.assert_array_equal(model(IDS, training=True), model(dropped))


def test_word_dropout_survives_keras_saving(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, WordDropout(0.3)(ids))
    model.save(tmp_path / "words.keras")
    assert keras.saving.load_model(tmp_path / "words.keras").layers[1].rate == 0.3


@pytest.mark.parametrize(
    "rates",
    [(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5)],
    ids=["none", "sub-layers", "head", "words"],
)
def test_fit_drops_out_and_evaluate_does_not(rates):
    dropout, head_dropout, word_dropout = rates
    head = {"head_dropout": head_dropout, "word_dropout": word_dropout}
    model = small(dropout=dropout, head=head)
    model.compile(keras.optimizers.SGD(0.0), LOSS)
    evaluated = model.evaluate(IDS, LABELS, verbose=0)
    assert model.evaluate(IDS, LABELS, verbose=0) == evaluated
    fitted = model.fit(IDS, LABELS, epochs=2, verbose=0).history["loss"]
    same = [loss == pytest.approx(evaluated, rel=1e-5) for loss in fitted]
    assert same == [not any(rates)] * 2


@pytest.mark.slow  # that of test_transformer.py takes the same way
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_user_script_of_plain_keras(policy, tmp_path):
    keras.utils.set_random_seed(0)
    ids = np.random.default_rng(0).integers(4, 40, [200, 12])
    labels = np.where((ids == 10).any(axis=1), 1, 0)  # whether a row has a 10
    model = small(classes=2, dtype=policy, dropout=0.0, head={"pooling": "max"})
    model.compile(keras.optimizers.Adam(0.005), LOSS, metrics=["accuracy"])
    assert not model.jit_compile
    history = model.fit(
        ids,
        labels,
        batch_size=20,
        epochs=12,
        validation_split=0.1,
        callbacks=[keras.callbacks.ModelCheckpoint(tmp_path / "last.keras")],
        verbose=0,
    ).history
    assert history["accuracy"][-1] > 0.9
    assert model.evaluate(ids, labels, verbose=0, return_dict=True)["accuracy"] > 0.9
    assert model.predict(ids, verbose=0).shape == (200, 2)
    again = keras.saving.load_model(tmp_path / "last.keras")
    assert again.optimizer.iterations == 12 * 9
    np.testing.assert_array_equal(again(ids[:5]), model(ids[:5]))
    again.fit(ids, labels, verbose=0)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.sparse_categorical_crossentropy,
        keras.losses.SparseCategoricalCrossentropy(),
        keras.losses.SparseCategoricalCrossentropy(name="loss"),
    ],
)
def test_a_loss_of_probabilities_is_refused(loss):
    with pytest.raises(InputError, match=r"which takes probabilities.*from_logits=True"):
        small().compile("adam", loss)


def test_label_smoothed_cross_entropy_trains_a_classifier():
    model = small()
    model.compile("adam", t2t_keras.LabelSmoothedCrossEntropy(0.1))
    loss = model.evaluate(IDS, LABELS, sample_weight=np.ones(3), verbose=0)
    smooth = 0.9 * np.eye(3)[LABELS] + 0.1 / 3
    expected = -np.mean(np.sum(smooth * np.log(reference.softmax(model(IDS).numpy())), axis=1))
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "classes is 1"),
        ({"classes": 2.0}, "classes is 2.0"),
        ({"head": {"pooling": "last"}}, "pooling is 'last': give one of mean, max, first"),
        ({"head": {"head_dropout": 1.0}}, "head_dropout is 1.0"),
        ({"head": {"word_dropout": -0.1}}, "word_dropout is -0.1"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(InputError, match=message):
        small(**arguments)


def test_sequences_of_length_0_are_refused():
    with pytest.raises(InputError, match=r"\(2, 0\): give \[batch, length\]"):
        small()(tf.zeros([2, 0], tf.int32))
