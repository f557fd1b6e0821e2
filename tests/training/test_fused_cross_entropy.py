"""The fused softmax product and loss against one-hot formulas in float64 NumPy, and in `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import LabelSmoothedCrossEntropy, Perplexity, TokenAccuracy, Transformer
from t2t_keras.layers.logit_factors import LogitFactors, factors_of, remember_factors
from t2t_keras.models.config import TransformerConfig
from t2t_keras.training import fused_cross_entropy as module
from t2t_keras.training.cross_entropy import likeliest_class
from t2t_keras.training.fused_cross_entropy import fused_cross_entropy

VOCAB, WIDTH, ROWS = 13, 5, 7
rng = np.random.default_rng(0)
HIDDEN = rng.normal(size=(ROWS, WIDTH)) * 3
MATRIX = rng.normal(size=(VOCAB, WIDTH))
LABELS = rng.integers(0, VOCAB, ROWS)
WEIGHTS = np.array([1, 0, 0.5, 2, 1, 0, 1])


def written_out(hidden, matrix, smoothing):
    """Returns the loss, its gradients by hidden and matrix, and each row's -log p(label)."""
    logits = hidden @ matrix.T
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    targets = (1 - smoothing) * np.eye(VOCAB)[LABELS] + smoothing / VOCAB
    by_logits = (softmax - targets) * WEIGHTS[:, np.newaxis]
    loss = -(targets * np.log(softmax)).sum(-1) @ WEIGHTS
    entropies = -np.log(softmax[np.arange(ROWS), LABELS])
    return loss, by_logits @ matrix, by_logits.T @ hidden, entropies


def fused(hidden, matrix, smoothing, rows_at_a_time, seek_best=True):
    """Returns three times the loss, its gradients, and the `SoftmaxTerms`."""
    with tf.GradientTape() as tape:
        tape.watch([hidden, matrix])
        factors = LogitFactors(hidden, matrix, seek_best)
        loss = 3 * fused_cross_entropy(
            LABELS, factors, tf.constant(WEIGHTS, tf.float32), smoothing, rows_at_a_time * VOCAB
        )
    return loss, *tape.gradient(loss, [hidden, matrix]), factors.terms


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows_at_a_time", [0, 1, 3, 7, 1000])
@pytest.mark.parametrize("seek_best", [False, True])
def test_loss_gradients_and_terms_are_those_of_one_hot_targets(
    smoothing, rows_at_a_time, seek_best
):
    hidden, matrix = tf.constant(HIDDEN, tf.float32), tf.constant(MATRIX, tf.float32)
    call = tf.function(fused)
    loss, by_hidden, by_matrix, terms = call(hidden, matrix, smoothing, rows_at_a_time, seek_best)
    expected = written_out(HIDDEN, MATRIX, smoothing)
    assert float(loss) == pytest.approx(3 * expected[0], rel=1e-6)
    np.testing.assert_allclose(by_hidden, 3 * expected[1], atol=2e-5)
    np.testing.assert_allclose(by_matrix, 3 * expected[2], atol=2e-5)
    np.testing.assert_allclose(terms.cross_entropy, expected[3], atol=2e-5)
    if seek_best:
        np.testing.assert_array_equal(terms.best, (HIDDEN @ MATRIX.T).argmax(-1))
    else:
        assert terms.best is None


def test_bfloat16_rounds_the_difference_from_the_label_and_not_the_probability():
    """0.999 in bfloat16 is 1, and its difference from 1 would be lost."""
    matrix = np.eye(4) * 8
    hidden = tf.constant(np.eye(4) * np.log(3 * 0.999 / 0.001) / 8, tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        factors = LogitFactors(hidden, tf.constant(matrix, tf.float32))
        loss = fused_cross_entropy(np.arange(4), factors, tf.ones(4), 0.0)
    logits = np.asarray(tf.cast(hidden, tf.float64)) @ matrix
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    gradient = tf.cast(tape.gradient(loss, hidden), tf.float64)
    np.testing.assert_allclose(gradient, (softmax - np.eye(4)) @ matrix, rtol=0.02)


@pytest.mark.parametrize(("cached", "parts"), [(VOCAB * WIDTH, 2), (VOCAB * WIDTH - 1, 1)])
def test_parts_are_small_where_they_have_as_many_rows_as_the_matrix_is_wide(
    cached, parts, monkeypatch
):
    taken = []
    part_of = module._Parts._part
    monkeypatch.setattr(module, "_CACHED_PART", cached)
    monkeypatch.setattr(
        module._Parts, "_part", lambda self, part: taken.append(part) or part_of(self, part)
    )
    factors = LogitFactors(tf.constant(HIDDEN, tf.float32), tf.constant(MATRIX, tf.float32))
    loss = fused_cross_entropy(LABELS, factors, tf.constant(WEIGHTS, tf.float32), 0.1)
    assert len(taken) == parts
    assert float(loss) == pytest.approx(written_out(HIDDEN, MATRIX, 0.1)[0], rel=1e-6)


@pytest.mark.parametrize("seek_best", [False, True])
@pytest.mark.parametrize("apart", [1e3, 80.0])  # the label's probability is 0, or 2e-35
def test_logits_far_apart_stay_finite(apart, seek_best):
    factors = LogitFactors(tf.constant([[apart, 0.0]]), tf.eye(2), seek_best)
    loss = fused_cross_entropy(tf.constant([1]), factors, tf.ones([1]), 0.0)
    assert float(loss) == pytest.approx(apart)
    if seek_best:
        assert int(factors.terms.best[0]) == 0


@pytest.mark.parametrize("metrics", [None, [TokenAccuracy()]])
def test_the_likeliest_classes_are_sought_where_a_metric_may_ask(metrics):
    model = make_model()
    model.compile(keras.optimizers.SGD(0.0), LabelSmoothedCrossEntropy(0.1), metrics=metrics)
    sought = []
    loss = tf.function(lambda inputs: sought.append(factors_of(model(inputs, training=True))))
    loss(batch()[0])
    assert sought[0].seek_best == bool(metrics)


def test_a_metric_that_nobody_announced_is_right_all_the_same():
    """As in a training step of one's own, of a model that was compiled without metrics."""
    hidden, matrix = tf.constant(HIDDEN, tf.float32), tf.constant(MATRIX, tf.float32)

    @tf.function
    def likeliest():
        factors = LogitFactors(hidden, matrix, seek_best=False)
        logits = factors.multiply()
        remember_factors(logits, factors)
        fused_cross_entropy(LABELS, factors, tf.ones([ROWS]), 0.1)
        return likeliest_class(logits)

    np.testing.assert_array_equal(likeliest(), (HIDDEN @ MATRIX.T).argmax(-1))


def make_model(policy="float32", vocab_size=VOCAB, **kwargs):
    keras.utils.set_random_seed(3)
    config = TransformerConfig.tiny(
        vocab_size, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    return Transformer(config, dtype=policy, **kwargs)


def batch():
    ids = np.random.default_rng(1).integers(1, VOCAB, (3, 4, 6)).astype("int32")
    ids[:, 1, 4:] = 0
    inputs = {"source_ids": ids[0], "target_ids": ids[1]}
    return inputs, ids[2], (ids[2] > 0).astype("float32")


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_training_step_reports_what_evaluation_does(policy):
    """Evaluation goes the plain way. Without dropout and learning rate nothing else differs."""
    model = make_model(policy)
    model.compile(
        keras.optimizers.SGD(0.0),
        LabelSmoothedCrossEntropy(0.1),
        metrics=[TokenAccuracy(), Perplexity()],
    )
    trained = model.train_on_batch(*batch(), return_dict=True)
    evaluated = model.test_on_batch(*batch(), return_dict=True)
    assert set(trained) == {"loss", "accuracy", "perplexity"}
    for name, value in evaluated.items():
        assert trained[name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_keras_policies_of_one_type_train_too(dtype):
    model = make_model(dtype)
    model.compile(keras.optimizers.SGD(0.1), LabelSmoothedCrossEntropy(0.1))
    losses = [model.train_on_batch(*batch()) for _ in range(4)]
    assert losses[-1] < losses[0]


def gradients(policy, run_eagerly):
    """Returns the gradient of a training step, as one vector."""
    model = make_model(policy)
    before = np.concatenate([w.ravel() for w in model.get_weights()])
    optimizer, loss = keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy(0.1)
    model.compile(optimizer, loss, run_eagerly=run_eagerly)
    model.train_on_batch(*batch())
    return before - np.concatenate([w.ravel() for w in model.get_weights()])


def test_a_training_step_has_the_gradient_of_the_plain_one():
    """A loss that runs eagerly goes the plain way; bfloat16 is no less exact on the other."""
    exact = gradients("float32", run_eagerly=True)
    np.testing.assert_allclose(gradients("float32", run_eagerly=False), exact, atol=1e-6)
    errors = {
        eager: np.linalg.norm(gradients("mixed_bfloat16", run_eagerly=eager) - exact)
        for eager in (True, False)
    }
    assert errors[False] < 1.1 * errors[True]


def test_training_goes_the_fused_way_and_leaves_the_whole_logits_out():
    model = make_model()
    loss = LabelSmoothedCrossEntropy(0.1)
    model.compile(keras.optimizers.SGD(1.0), loss, metrics=[Perplexity()])
    step = tf.function(model.train_step).get_concrete_function(batch())
    assert len([op for op in step.graph.get_operations() if "While" in op.type]) == 1
    products = [op for op in step.graph.get_operations() if op.type == "MatMul"]
    logits = [op.outputs[0] for op in products if op.outputs[0].shape[-1] == VOCAB]
    used = {id(x.op) for op in _needed(step) for x in op.inputs}
    assert len(logits) == 1 and not any(id(x.op) in used for x in logits)


def _needed(function):
    """Returns the operations on which a function's outputs or effects depend."""
    waiting = [x.op for x in function.outputs] + list(function.graph.control_outputs)
    found = {}
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found[op.name] = op
            waiting += [x.op for x in op.inputs] + list(op.control_inputs)
    return found.values()


def test_losses_and_metrics_that_know_only_tensors_get_one():
    model = make_model()
    model.compile(
        keras.optimizers.SGD(0.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(), Perplexity()],
    )
    trained = model.train_on_batch(*batch(), return_dict=True)
    evaluated = model.test_on_batch(*batch(), return_dict=True)
    for name, value in evaluated.items():
        assert trained[name] == pytest.approx(value, rel=1e-5), name


def test_logits_that_were_changed_are_taken_as_they_are():
    class Doubled(Transformer):
        def call(self, inputs, training=None):
            return 2 * super().call(inputs, training)

    model = Doubled(make_model().config)
    model.compile(keras.optimizers.SGD(0.0), LabelSmoothedCrossEntropy(0.1))
    trained = model.train_on_batch(*batch())
    assert trained == pytest.approx(model.test_on_batch(*batch()), rel=1e-5)
