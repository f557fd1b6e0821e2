"""Loss and metrics against one-hot formulas in float64 NumPy (section 5.4)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.metrics import Perplexity, TokenAccuracy

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(3, 4, 7)) * 3
LABELS = np.array([[1, 2, 0, 0], [6, 5, 4, 3], [0, 0, 0, 0]])
WEIGHTS = np.array([[1, 2, 0, 0], [0.5, 1, 1, 0], [0, 0, 0, 0]])


def one_hot_loss(logits, labels, weights, smoothing):
    """Returns the weighted mean loss and its gradient, from the targets written out."""
    targets = (1 - smoothing) * np.eye(7)[labels] + smoothing / 7
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    losses = -(targets * np.log(softmax)).sum(-1)
    share = weights / weights.sum()
    return (losses * share).sum(), (softmax - targets) * share[..., np.newaxis]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss_and_gradient_are_those_of_one_hot_targets(smoothing, dtype):
    logits = tf.cast(LOGITS, dtype)
    loss_function = tf.function(LabelSmoothedCrossEntropy(smoothing), jit_compile=smoothing == 0.5)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = loss_function(LABELS, logits, WEIGHTS)
    gradient = tape.gradient(loss, logits)
    exact = np.asarray(tf.cast(logits, tf.float64))
    expected_loss, expected_gradient = one_hot_loss(exact, LABELS, WEIGHTS, smoothing)
    assert loss.dtype == tf.float32 and gradient.dtype == logits.dtype
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
    tolerance = {"float32": 1e-7, "bfloat16": 1e-3}[dtype]
    np.testing.assert_allclose(tf.cast(gradient, tf.float64), expected_gradient, atol=tolerance)


def test_without_weights_labels_that_are_not_0_count_once():
    loss = LabelSmoothedCrossEntropy(0.1)(LABELS, LOGITS)
    assert float(loss) == pytest.approx(one_hot_loss(LOGITS, LABELS, LABELS > 0, 0.1)[0])


def test_padding_alone_gives_0_and_far_logits_stay_finite():
    loss = LabelSmoothedCrossEntropy(0.1)
    assert float(loss(LABELS[2:], LOGITS[2:])) == 0
    assert float(loss(np.array([[1]]), np.array([[[1e4, 0.0]]]))) == pytest.approx(9500)


def test_metrics_are_means_over_the_tokens_of_all_batches():
    accuracy, perplexity = TokenAccuracy(), Perplexity()
    for rows in (slice(0, 1), slice(1, 3)):
        for metric in (accuracy, perplexity):
            metric.update_state(LABELS[rows], LOGITS[rows])
    real = LABELS > 0
    assert float(accuracy.result()) == pytest.approx((LOGITS.argmax(-1) == LABELS)[real].mean())
    expected = np.exp(one_hot_loss(LOGITS, LABELS, real, 0.0)[0])
    assert float(perplexity.result()) == pytest.approx(expected, rel=1e-5)
    counts = perplexity.tokens, perplexity.counted, perplexity.positions
    assert [float(count.value) for count in counts] == [6, 6, 12]
    perplexity.update_state(LABELS, LOGITS, 2 * WEIGHTS)
    assert [float(count.value) for count in counts] == [6 + 2 * WEIGHTS.sum(), 11, 24]
    expected = np.exp(one_hot_loss(LOGITS, LABELS, WEIGHTS, 0.0)[0])
    assert float(Perplexity()(LABELS, LOGITS, WEIGHTS)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("thing", [LabelSmoothedCrossEntropy(0.2), TokenAccuracy(), Perplexity()])
def test_configs_come_back(thing):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(thing))
    assert type(again) is type(thing)
    assert again.get_config() == thing.get_config()


THINGS = [LabelSmoothedCrossEntropy(0.1), TokenAccuracy(), Perplexity()]


@pytest.mark.parametrize("smoothing", [1.0, -0.1, None])
def test_a_smoothing_out_of_its_range_is_named(smoothing):
    message = f"smoothing is {smoothing}: give a rate of at least 0 and less than 1"
    with pytest.raises(InputError, match=message):
        LabelSmoothedCrossEntropy(smoothing)


@pytest.mark.parametrize(("arguments", "message"), [
    *(((LABELS, LOGITS, np.ones(shape)), "for each token, .* or one for each sentence")
      for shape in ((3, 3), (3, 4, 7), (4,))),
    ((LABELS.astype("float32"), LOGITS), "labels are float32: give the ids"),
    ((None, LOGITS), "labels are missing"),
])  # fmt: skip
@pytest.mark.parametrize("thing", THINGS)
def test_labels_and_weights_that_are_none_are_named(thing, arguments, message):
    with pytest.raises(InputError, match=message):
        thing(*arguments)


def in_graph(thing, labels, logits, weights=None):
    """Returns the result of a graph that knows no sizes."""
    arrays = [labels, logits] + ([] if weights is None else [weights])
    arrays = [a.astype("float32" if a.dtype.kind == "f" else "int32") for a in arrays]
    specs = [tf.TensorSpec([None] * a.ndim, a.dtype) for a in arrays]
    if isinstance(thing, keras.metrics.Metric):
        thing.reset_state()
        tf.function(lambda *a: thing.update_state(*a), specs)(*arrays)  # noqa: PLW0108
        return thing.result()
    return tf.function(lambda *a: thing(*a), specs)(*arrays)  # noqa: PLW0108


def eagerly(thing, *arrays):
    if isinstance(thing, keras.metrics.Metric):
        thing.reset_state()
    return thing(*arrays)


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("run", [eagerly, in_graph])
def test_one_weight_for_each_sentence_is_that_of_its_tokens(thing, run):
    weights = np.array([2.0, 0.5, 3.0])
    expected = float(run(thing, LABELS, LOGITS, weights[:, None] * (LABELS > 0)))
    for given in (weights, weights[:, None]):
        assert float(run(thing, LABELS, LOGITS, given)) == pytest.approx(expected)


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("run", [eagerly, in_graph])
def test_columns_of_labels_and_weights_are_what_they_hold(thing, run):
    """As Keras squeezes [..., 1]."""
    column = LABELS, LOGITS, WEIGHTS[..., None]
    assert float(run(thing, *column)) == pytest.approx(float(run(thing, LABELS, LOGITS, WEIGHTS)))
    classes, logits, weights = LABELS[1:2].T, LOGITS[1], WEIGHTS[1:2].T  # of rows
    right = float(run(thing, classes[:, 0], logits, weights[:, 0]))
    for given in ((classes, logits, weights), (classes[:, 0], logits, weights)):
        assert float(run(thing, *given)) == pytest.approx(right)
    assert float(run(thing, classes, logits, weights[:, 0])) == pytest.approx(right)


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize(
    "labels", [LABELS[:, :1], LABELS[:1], LABELS[0], LABELS[:, :3], LABELS[..., None]]
)
def test_labels_of_another_shape_than_the_predictions_are_refused(thing, labels):
    with pytest.raises(InputError, match=r"labels have shape .*, but the predictions are of \(3, "):
        thing(labels, LOGITS)
    with pytest.raises((InputError, tf.errors.InvalidArgumentError)):
        in_graph(thing, labels, LOGITS)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
def test_labels_may_be_of_any_integer_type(dtype):
    for thing in (LabelSmoothedCrossEntropy(0.1), TokenAccuracy()):
        found = float(thing(LABELS.astype(dtype), LOGITS))
        assert found == float(type(thing)()(LABELS.astype("int32"), LOGITS))


@pytest.mark.parametrize("weights", [None, [1.0, 1.0, 1.0]])
def test_of_labels_that_are_classes_0_is_one(weights):
    logits = np.array([[3.0, 0.0], [1.0, 2.0], [0.5, 0.0]])
    found = LabelSmoothedCrossEntropy(0.0)(np.array([0, 1, 0]), logits, sample_weight=weights)
    chosen = np.array([3.0, 2.0, 0.5]) - np.log(np.exp(logits).sum(-1))
    assert float(found) == pytest.approx(-chosen.mean(), rel=1e-5)
