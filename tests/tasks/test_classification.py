import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.tasks.classification import Classification, Classifier
from tests.reference import softmax
from tests.tasks import tiny
from tests.tasks.tiny import LABELS, classifier


@pytest.fixture(scope="module")
def made():
    return classifier()


def test_probabilities_are_the_softmax_of_the_models_logits_and_order_the_classes(made):
    ids = made.encode(tf.constant(tiny.LINES))
    expected = softmax(made.model(ids).numpy())
    np.testing.assert_allclose(made.probabilities(tiny.LINES), expected, rtol=1e-5)
    assert made(tiny.LINES) == [LABELS[place] for place in expected.argmax(axis=1)]
    for row, found in zip(expected, made.n_best(tiny.LINES), strict=True):
        order = np.argsort(-row)
        assert [c.label for c in found] == [LABELS[place] for place in order]
        np.testing.assert_allclose([c.probability for c in found], row[order], rtol=1e-5)
    best = made.n_best(tiny.LINES, 1)
    assert [[c.label for c in row] for row in best] == [[label] for label in made(tiny.LINES)]
    assert isinstance(best[0][0], Classification)


def test_odd_texts_are_classified_alone_as_among_others(made):
    together = made.probabilities([*tiny.ODD, "\ud800", b"\xff"])
    alone = [made.probabilities([text])[0] for text in [*tiny.ODD, "\ud800", b"\xff"]]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert made([]) == [] and made.probabilities([]).shape == (0, 3)


def test_texts_are_cut_at_the_limit_and_where_positions_end_and_counted(caplog):
    long = "The old man sees a small dog. " * 30
    cut = classifier(max_source_length=9)
    assert cut.encode(tf.constant([long])).shape == (1, 9)
    np.testing.assert_array_equal(cut.probabilities([long]), cut.probabilities([long + "Why?"]))
    learned = tiny.classifier_model(position_embedding="learned", max_positions=12)
    learned = Classifier(learned, tiny.tokenizer(), LABELS, 500)
    assert learned.encode(tf.constant([long])).shape == (1, 12)
    for ask in (cut, cut.n_best, cut.probabilities):
        caplog.clear()
        ask(["The dog.", long])
        assert "1 of 2 texts were longer than the model's limit" in caplog.text
    caplog.clear()
    cut(["The dog."])
    assert not caplog.text


@pytest.mark.parametrize(("call", "message"), [
    (lambda c: c("A train."), "texts is the string 'A train.': give a list"),
    (
        lambda c: c.n_best(["a"], 4),
        "n is 4: give a whole number from 1 to the number of classes, which is 3",
    ),
    (lambda c: Classifier(c.model, c.tokenizer, ["a", "b"]), "labels are .*: give 3 different"),
    (lambda c: Classifier(c.model, c.tokenizer, ["a", "b", "a"]), "give 3 different ones"),
    (lambda c: classifier(max_source_length=0), "max_source_length is 0"),
    (lambda c: Classifier(c.model, c.tokenizer, [0, 1, 2]), r"labels\[0\] is 0, of type int"),
    (lambda c: Classifier(c.model, c.tokenizer, {"a", "b", "c"}), "labels is a set: give a list"),
    (lambda c: c.encode("A train."), "texts is the string 'A train.': give a list"),
])  # fmt: skip
def test_mistakes_are_named(made, call, message):
    with pytest.raises(InputError, match=message):
        call(made)
