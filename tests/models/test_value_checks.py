"""Ids, labels and lengths out of range are refused by one sentence, before a weight is changed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t

CONFIG = t2t.TransformerConfig(
    40, 1, 1, 16, 24, num_heads=2, position_embedding="learned", max_positions=4
)
IDS = "but the vocabulary has 40 ids, 0 to 39: encode with the tokenizer of the model"
TUNED = "to ignore a label (-100 elsewhere), give it the id 0 and the sample weight 0"
CASES = {  # {name: (value, sentence)}
    "source_ids": (99, f"source_ids hold 99, {IDS}, or raise vocab_size."),
    "target_ids": (-7, f"target_ids hold -7, {IDS}, or raise vocab_size."),
    "labels": (-100, f"labels hold -100, {IDS}; {TUNED}."),
}
LONG = (
    "source_ids are rows of 5 positions, longer than the learned positions, 4: cut them, raise "
    "max_positions, or use sinusoidal positions."
)


def batch(length=3, **values):
    """Returns inputs and labels, with a value in the array of one name."""
    arrays = {
        name: np.full((2, length), 5, "int32") for name in ("source_ids", "target_ids", "labels")
    }
    for name, value in values.items():
        arrays[name][1, -1] = value
    labels = arrays.pop("labels")
    return arrays, labels


def compiled(**options):
    model = t2t.Transformer(CONFIG)
    model.compile("sgd", t2t.LabelSmoothedCrossEntropy(), **options)
    return model


MODES = {"plain": {}, "eager": {"run_eagerly": True}, "xla": {"jit_compile": True}}


@pytest.mark.parametrize("mode", ["plain", "eager", pytest.param("xla", marks=pytest.mark.slow)])
def test_a_step_refuses_values_out_of_range_by_the_same_sentence(mode):
    model = compiled(**MODES[mode])
    before = [weight.numpy() for weight in model.weights]
    cases = [(batch(**{name: value}), text) for name, (value, text) in CASES.items()]
    cases.append((batch(length=5), LONG))
    for (inputs, labels), sentence in cases:
        with pytest.raises(t2t.InputError) as error:
            model.fit(inputs, labels, batch_size=2, verbose=0)
        assert str(error.value) == sentence
    for old, weight in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, weight)


def test_evaluation_prediction_and_calls_refuse_the_same():
    model = compiled()
    _, sentence = CASES["labels"]
    with pytest.raises(t2t.InputError) as error:
        model.evaluate(*batch(labels=-100), verbose=0)
    assert str(error.value) == sentence
    _, sentence = CASES["source_ids"]
    inputs, _ = batch(source_ids=99)
    for run in (lambda: model.predict(inputs, verbose=0), lambda: model(inputs)):
        with pytest.raises(t2t.InputError) as error:
            run()
        assert sentence in str(error.value)  # Keras says beside it which call it was
    with pytest.raises(t2t.InputError, match="labels hold 9, but the vocabulary has 4 ids"):
        t2t.LabelSmoothedCrossEntropy()(np.array([[9]]), np.zeros([1, 1, 4]))
    with pytest.raises(t2t.InputError, match="ids hold 40, but the vocabulary has 40 ids"):
        model.embedding(np.array([[40]]))


def test_a_classifier_refuses_labels_that_are_no_classes():
    model = t2t.TransformerClassifier(CONFIG, classes=3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=True)
    inputs, _ = batch()
    with pytest.raises(t2t.InputError) as error:
        model.fit(inputs["source_ids"], np.array([0, 3]), verbose=0)
    assert str(error.value) == (
        f"labels hold 3, but the model has 3 classes, 0 to 2: raise classes; {TUNED}."
    )


def test_ragged_rows_and_weights_by_name_are_refused():
    ragged, (inputs, labels) = tf.ragged.constant([[5, 6], [5, 6, 1]], dtype=tf.int32), batch()
    message = r"are a RaggedTensor of shape \((2|None), None\): give \w+.to_tensor\(\)"
    cases = [
        (lambda model: model(inputs | {"target_ids": ragged}), message),
        (lambda model: model.fit(inputs, ragged, verbose=0), message),
        (lambda model: model.predict(inputs | {"source_ids": ragged}, verbose=0), message),
        (lambda model: model.loss(ragged, np.zeros([2, 3, 40])), message),
        (
            lambda model: model.fit(inputs, labels, sample_weight={"a": labels}, verbose=0),
            "sample_weight is a dict, but labels are one tensor",
        ),
        (lambda model: model.compile(jit_compile="true"), "jit_compile is 'true': give True"),
    ]
    for run, sentence in cases:
        with pytest.raises(t2t.InputError, match=sentence):
            run(compiled(run_eagerly=True))


def test_a_strategy_of_parameter_servers_is_refused(monkeypatch):
    strategy = object.__new__(tf.distribute.ParameterServerStrategy)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    with pytest.raises(t2t.InputError, match="The strategy is ParameterServerStrategy"):
        t2t.Transformer(CONFIG)


@pytest.mark.parametrize("value", [1, np.True_])
def test_what_equals_true_compiles(value):
    assert compiled(jit_compile=value).get_compile_config()["jit_compile"] is True


@pytest.mark.slow
def test_a_loss_that_ignores_a_label_of_its_own_is_left_alone():
    model = t2t.Transformer(CONFIG)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
    model.compile("sgd", loss)
    history = model.fit(*batch(labels=-100), verbose=0).history
    assert np.isfinite(history["loss"][0])
