"""The step of several micro-batches is that of the batch, whatever tokens each holds."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.keras_compat import loss_sum
from t2t_keras.training.optimizers import Adam
from tests.models.batches import CONFIG, batch, dataset


def fitted(micro_batches):
    keras.utils.set_random_seed(0)
    model = t2t.Transformer(CONFIG)
    model.micro_batches = micro_batches
    model.embedding.matrix.regularizer = keras.regularizers.L2(0.1)
    metrics = [t2t.TokenAccuracy(), t2t.Perplexity()]
    model.compile(keras.optimizers.SGD(0.5), t2t.LabelSmoothedCrossEntropy(0.1), metrics=metrics)
    history = model.fit(dataset(), steps_per_epoch=3, verbose=0).history
    return model, history


def test_micro_batches_make_the_steps_of_the_batch():
    whole, expected = fitted(1)
    parts, history = fitted(2)
    for a, b in zip(whole.trainable_variables, parts.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert history.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-5)
    assert int(parts.optimizer.iterations) == 3


@pytest.mark.parametrize("optimizer", [
    lambda: keras.optimizers.Adam(0.01, epsilon=0.03),
    lambda: Adam(0.01, epsilon=0.03, loss_scale_factor=128.0),
])  # fmt: skip
def test_a_word_that_a_batch_holds_often_moves_alike_in_micro_batches(optimizer):
    """A lookup's gradient, with a row for each token, is summed before the optimizer squares it."""
    ids, labels = np.array([[5, 5, 5, 5], [5, 5, 6, 6]]), np.array([0, 1])
    found = []
    for micro_batches in (1, 2):
        keras.utils.set_random_seed(0)
        model = t2t.TransformerClassifier(CONFIG, 2, head_dropout=0.0)
        model.micro_batches = micro_batches
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(), loss, run_eagerly=True)
        model.train_on_batch(ids, labels)
        found.append(model.embedding.matrix.numpy())
    np.testing.assert_allclose(*found, atol=1e-6)


def loss_of(**options):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def loss_of_elements(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


@pytest.mark.parametrize("loss", [
    loss_of_elements,  # the mean over them, padding too
    loss_of(ignore_class=0, reduction="mean_with_sample_weight"),
])  # fmt: skip
def test_keras_losses_and_metrics_are_summed_over_micro_batches_too(loss):
    results = []
    for micro_batches in (1, 4):
        keras.utils.set_random_seed(0)
        model = t2t.Transformer(CONFIG)
        model.micro_batches = micro_batches
        model.compile(
            keras.optimizers.SGD(0.01),
            loss,
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
            run_eagerly=True,
        )
        logs = [model.train_on_batch(*batch(seed, 6, 5), return_dict=True) for seed in (0, 1)]
        results.append((model.get_weights(), logs))
    for whole, parts in zip(*(weights for weights, _ in results), strict=True):
        np.testing.assert_allclose(whole, parts, atol=1e-6)
    for whole, parts in zip(*(logs for _, logs in results), strict=True):
        assert parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.slow
def test_a_batch_may_have_fewer_rows_than_micro_batches():
    """Convolutions refuse length 0, and loops over no chunk have no tensor to return."""
    config = dataclasses.replace(CONFIG, feed_forward="convolution")
    found = []
    for micro_batches in (1, 4):
        keras.utils.set_random_seed(0)
        model = t2t.Transformer(config)
        model.micro_batches = micro_batches
        loss = t2t.LabelSmoothedCrossEntropy(0.1)
        model.compile(keras.optimizers.SGD(0.5), loss)
        inputs, labels, weights = batch(0, 3, 4)
        model.fit(inputs, labels, sample_weight=weights, batch_size=3, verbose=0)
        found.append(model.get_weights())
    for whole, parts in zip(*found, strict=True):
        np.testing.assert_allclose(whole, parts, atol=1e-6)


def waiting_inputs(micro_batches, parallel_micro_batches):
    """Returns how many micro-batches wait for the gradients of another one."""
    model = t2t.Transformer(CONFIG)
    model.micro_batches = micro_batches
    model.parallel_micro_batches = parallel_micro_batches
    model.compile(keras.optimizers.SGD(0.5), t2t.LabelSmoothedCrossEntropy())
    model.make_train_function()
    step = tf.function(model.train_step).get_concrete_function(batch(0, 4, 5))
    waiting = [op for op in step.graph.get_operations() if len(op.control_inputs) > 10]
    return len([op for op in waiting if op.type == "Identity"]) // 4  # tensors of one


@pytest.mark.slow
def test_micro_batches_beyond_the_parallel_ones_wait_for_earlier_gradients():
    assert waiting_inputs(2, parallel_micro_batches=1) == 1
    assert waiting_inputs(4, parallel_micro_batches=2) == 2


@pytest.mark.parametrize("name", ["micro_batches", "parallel_micro_batches"])
def test_less_than_one_micro_batch_is_refused(name):
    model = t2t.Transformer(CONFIG)
    setattr(model, name, 0)
    model.compile(keras.optimizers.SGD(0.1), t2t.LabelSmoothedCrossEntropy())
    with pytest.raises(InputError, match=f"{name} is 0"):
        model.fit(*batch(0, 4, 3)[:2], verbose=0)


def masked_mean(labels, logits):
    """The loss of TensorFlow's tutorial."""
    losses = loss_of(reduction=None)(labels, logits)
    mask = tf.cast(labels != 0, losses.dtype)
    return tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)


class MaskedMean(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return masked_mean(y_true, y_pred)


class OwnCall(t2t.LabelSmoothedCrossEntropy):
    def __call__(self, labels, logits, sample_weight=None):
        return masked_mean(labels, logits)


class OwnComputeLoss(t2t.Transformer):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return masked_mean(y, y_pred)


@pytest.mark.parametrize(("loss", "kind"), [
    (loss_of(reduction="none"), t2t.Transformer),
    (masked_mean, t2t.Transformer),
    (MaskedMean(), t2t.Transformer),
    (OwnCall(), t2t.Transformer),
    (t2t.LabelSmoothedCrossEntropy(), OwnComputeLoss),
])  # fmt: skip
def test_a_loss_whose_parts_do_not_add_up_is_refused(loss, kind):
    model = kind(CONFIG)
    model.micro_batches = 2
    model.compile(keras.optimizers.SGD(0.1), loss)
    with pytest.raises(InputError, match=r"one number for a batch, .* micro_batches above 1"):
        model.fit(*batch(0, 4, 3)[:2], verbose=0)
    model.micro_batches = 1
    model.compile(keras.optimizers.SGD(0.1), loss)
    assert np.all(np.isfinite(model.train_on_batch(*batch(0, 4, 3)[:2])))


class Elements(keras.losses.Loss):
    """A loss that gives its elements in a form of its own."""

    def __init__(self, form, **kwargs):
        super().__init__(**kwargs)
        self.form = form

    def call(self, y_true, y_pred):
        return self.form(loss_of_elements(y_true, y_pred))


OF_ROWS = np.array([1, 0, 3], np.float32)
OF_TOKENS = np.array([[1, 0], [0, 3], [0, 0]])


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
@pytest.mark.parametrize("weights", [None, OF_TOKENS, OF_TOKENS > 0, OF_ROWS[:, None], OF_ROWS])
@pytest.mark.parametrize("form", [tf.identity, lambda x: x[..., None]], ids=["tokens", "column"])
def test_a_keras_loss_is_put_together_of_its_parts(form, weights, reduction):
    labels = tf.constant([[1, 2], [0, 1], [2, 2]])
    logits = tf.random.stateless_normal([3, 2, 3], [0, 0])
    loss, as_keras_has_it = Elements(form, reduction=reduction), weights
    if weights is OF_ROWS:  # to Keras, those of the last axis
        as_keras_has_it = weights[:, None]
    if weights is not None and form is not tf.identity:
        as_keras_has_it = np.broadcast_to(as_keras_has_it, [3, 2])[..., None]
        if np.size(weights) == 3 and reduction == "mean_with_sample_weight":
            as_keras_has_it = OF_ROWS[:, None, None]
    right = float(loss(labels, logits, as_keras_has_it))
    for cuts in ([0, 3], [0, 1, 3]):
        parts = [slice(*pair) for pair in itertools.pairwise(cuts)]
        of = [weights if weights is None else weights[part] for part in parts]
        sums = [
            loss_sum(loss, labels[part], logits[part], its, len(parts))
            for part, its in zip(parts, of, strict=True)
        ]
        total, divisor = (float(tf.add_n(x)) for x in zip(*sums, strict=True))
        assert total / divisor == pytest.approx(right, rel=1e-5)


def test_a_loss_of_as_many_elements_for_any_rows_has_no_parts():
    labels, logits = tf.constant([[1, 2], [0, 1]]), tf.random.stateless_normal([2, 2, 3], [0, 0])
    loss = Elements(lambda x: tf.reduce_mean(x, keepdims=True))
    weights = np.array([[1, 0], [0, 3]], np.float32)
    total, divisor = loss_sum(loss, labels, logits, weights, parts=1)
    assert float(total / divisor) == pytest.approx(float(loss(labels, logits, weights)))
    assert loss_sum(loss, labels, logits, weights, parts=2)[1] is None


@pytest.mark.parametrize("loss", [t2t.LabelSmoothedCrossEntropy(0.1), loss_of(ignore_class=0)])
def test_the_reported_loss_is_the_mean_over_all_tokens(loss):
    model = t2t.Transformer(CONFIG)
    model.compile(keras.optimizers.SGD(0.0), loss, run_eagerly=True)
    batches = [batch(0, 6, 5), batch(1, 5, 7), batch(2, 2, 3)]
    counts = [np.sum(labels != 0) for _, labels, _ in batches]
    means = [float(loss(labels, model(inputs))) for inputs, labels, _ in batches]
    expected = pytest.approx(np.average(means, weights=counts), rel=1e-5)
    unweighted = dataset().map(lambda inputs, labels, _: (inputs, labels))
    assert model.fit(unweighted, verbose=0).history["loss"][0] == expected
    assert model.evaluate(unweighted, verbose=0) == expected
