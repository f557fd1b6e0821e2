"""The training step: equal to Keras's own, fused where it may be, with every option of Keras."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.training.metrics import TokenMean
from tests.models.batches import CONFIG, VOCAB, batch, dataset

Loss = t2t.LabelSmoothedCrossEntropy


def compiled(kind=t2t.Transformer, optimizer=None, loss=None, dtype=None, **options):
    """Returns a compiled model; options may hold functions that make the metrics."""
    keras.utils.set_random_seed(3)
    for name in {"metrics", "weighted_metrics"} & set(options):
        options[name] = options[name]() if callable(options[name]) else options[name]
    model = kind(CONFIG, dtype=dtype)
    model.compile(optimizer or keras.optimizers.SGD(0.5), loss or Loss(0.1), **options)
    return model


def weights_of(model):
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


# The fused step is the plain step -----------------------------------------------------------------


class PlainRoute(t2t.Transformer):
    """A model whose loss gets logits, because it defines `call`."""

    def call(self, inputs, training=None):
        return super().call(inputs, training=training)


def first_step(kind=t2t.Transformer, dtype="float32", micro_batches=1, penalty=0.0, **options):
    """Returns the gradient of a training step as one vector, and what the step reports."""
    model = compiled(
        kind,
        keras.optimizers.SGD(1.0),
        dtype=dtype,
        metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        **options,
    )
    for variable in model.trainable_variables if penalty else ():
        variable.regularizer = keras.regularizers.L2(penalty)
    model.micro_batches = micro_batches
    assert model.fuses_loss == (kind is t2t.Transformer)
    before = weights_of(model)
    logs = model.train_on_batch(*batch(), return_dict=True)
    return before - weights_of(model), logs


@functools.cache
def plain_step(dtype="float32", penalty=0.0):
    """The definition: Keras's way and plain forms, operation by operation."""
    with ops.plain():
        return first_step(PlainRoute, dtype, penalty=penalty, run_eagerly=True)


@pytest.mark.parametrize(
    ("kind", "micro_batches", "run_eagerly"),
    [(t2t.Transformer, 1, True), (t2t.Transformer, 2, False), (PlainRoute, 2, True)],
)
def test_the_fused_step_has_gradients_and_results_of_the_plain_step(
    kind, micro_batches, run_eagerly
):
    gradient, logs = first_step(
        kind, micro_batches=micro_batches, penalty=0.1, run_eagerly=run_eagerly
    )
    expected, expected_logs = plain_step(penalty=0.1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    assert set(logs) == {"loss", "accuracy", "perplexity"}
    assert logs == pytest.approx(expected_logs, rel=1e-5)


def test_in_half_precision_the_fused_step_is_as_exact_as_the_plain_step():
    dtype = "mixed_bfloat16"
    exact, exact_logs = plain_step()
    fused, logs = first_step(dtype=dtype, run_eagerly=True)
    plain, _ = first_step(PlainRoute, dtype, run_eagerly=True)
    assert np.linalg.norm(fused - exact) < 1.1 * np.linalg.norm(plain - exact)
    assert logs["loss"] == pytest.approx(exact_logs["loss"], rel=0.01)


def test_a_training_step_reports_what_evaluation_does():
    """Evaluation goes Keras's way; without a learning rate nothing else differs."""
    names = {"accuracy", "perplexity"}
    metrics = both_kinds_of_metrics()
    model = compiled(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True, **metrics)
    assert model.fuses_loss
    trained = model.train_on_batch(*batch(), return_dict=True)
    evaluated = model.test_on_batch(*batch(), return_dict=True)
    assert set(trained) == {"loss"} | names | {f"weighted_{name}" for name in names}
    assert trained == pytest.approx(evaluated, rel=1e-4)
    model.train_on_batch(*batch(1))
    assert model.train_on_batch(*batch(), return_dict=True) == pytest.approx(trained, rel=1e-5)


def both_kinds_of_metrics():
    return {
        name: [t2t.TokenAccuracy(), t2t.Perplexity()] for name in ("metrics", "weighted_metrics")
    }


def logits_and_loops(kind):
    """Returns how many tensors [..., vocab] and how many loops the graph of a step has."""
    model = compiled(kind, metrics=[t2t.Perplexity()])
    graph = tf.function(model.train_step).get_concrete_function(batch()).graph
    tensors = [x for op in graph.get_operations() for x in op.outputs if x.shape.rank]
    wide = [x for x in tensors if x.shape[-1] == VOCAB and x.shape.num_elements() != VOCAB]
    return len(wide), len([op for op in graph.get_operations() if "While" in op.type])


@pytest.mark.slow
def test_the_graph_of_the_fused_step_has_no_logits_outside_its_loop_over_chunks():
    assert logits_and_loops(t2t.Transformer) == (0, 1)
    tensors, loops = logits_and_loops(PlainRoute)
    assert tensors > 0 and loops == 0


# What the fused loss cannot stand for goes Keras's way --------------------------------------------


class OnlyValues(TokenMean):
    """A metric that needs logits: it has no `values_from_terms`."""

    def values(self, labels, logits):
        return tf.reduce_max(tf.cast(logits, tf.float32), axis=-1)


def overriding(kind, method):
    """Returns a subclass with a method of its own."""
    return type("Own", (kind,), {method: lambda *_, **__: None})


def test_overridden_methods_and_other_parts_are_not_fused():
    metrics = [overriding(t2t.TokenAccuracy, name)() for name in ("values", "update_state")]
    metrics += [keras.metrics.SparseCategoricalAccuracy(), OnlyValues("largest_logit")]
    for kind in [
        overriding(t2t.Transformer, name) for name in ("call", "compute_loss", "compute_metrics")
    ]:
        assert not compiled(kind).fuses_loss
    for options in (
        {"loss": overriding(Loss, "__call__")(0.1)},
        *({"metrics": [t2t.Perplexity(), metric]} for metric in metrics),
        *({"weighted_metrics": [metric]} for metric in metrics),
        {"loss": [Loss(0.1)]},
        {"loss_weights": 3.0},
    ):
        assert not compiled(**options).fuses_loss


def times(*names, base=Loss):
    """Returns a subclass of a loss that multiplies by 3 in `call`, 5 and 7 in other methods."""

    def sum_and_tokens(self, *args):
        total, tokens = base.sum_and_tokens(self, *args)
        return 5 * total, tf.cast(tokens, tf.int32)

    def from_hidden(self, *args, **kwargs):
        terms = base.from_hidden(self, *args, **kwargs)
        return dataclasses.replace(terms, loss=7 * terms.loss)

    methods = {
        "call": lambda self, *args: 3 * base.call(self, *args),
        "sum_and_tokens": sum_and_tokens,
        "from_hidden": from_hidden,
    }
    return type("Times", (base,), {name: methods[name] for name in names})


class OnTop(times("call")):
    pass


class Mixin:
    def sum_and_tokens(self, *args):
        total, tokens = super().sum_and_tokens(*args)
        return 5 * total, tokens


class Mixed(Mixin, Loss):
    pass


CALL_OVER_HIDDEN = times("call", base=times("from_hidden"))
HIDDEN_OVER_CALL = times("from_hidden", base=times("call"))


@pytest.mark.parametrize(("kind", "fit", "evaluate"), [
    (times("call"), 3, 3),
    (times("sum_and_tokens"), 5, 5),
    (times("from_hidden"), 7, 7),
    (times("call", "sum_and_tokens"), 15, 15),
    (times("call", "from_hidden"), 7, 3),
    (times("sum_and_tokens", "from_hidden"), 7, 5),
    (times("call", "sum_and_tokens", "from_hidden"), 7, 15),
    (OnTop, 3, 3),
    (Mixed, 5, 5),
    (CALL_OVER_HIDDEN, 3, 3),
    (HIDDEN_OVER_CALL, 7, 3),
])  # fmt: skip
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_loss_of_the_users_own_is_used_as_it_is_written(kind, fit, evaluate, micro_batches):
    inputs, labels, weights = batch()
    weights = np.sign(weights)  # a whole number, as `sum_and_tokens` above returns it
    deltas, logs = [], []
    for loss in (Loss(0.1), kind(0.1)):
        model = compiled(optimizer=keras.optimizers.SGD(1e-3), loss=loss, run_eagerly=True)
        model.micro_batches, before = micro_batches, weights_of(model)
        evaluated = model.evaluate(inputs, labels, 5, 0, weights)
        logs.append([model.train_on_batch(inputs, labels, weights), evaluated])
        deltas.append(weights_of(model) - before)
    np.testing.assert_allclose(logs[1], np.multiply(logs[0], [fit, evaluate]), rtol=1e-5)
    np.testing.assert_allclose(deltas[1], fit * deltas[0], atol=1e-6)


def test_a_loss_of_hidden_states_alone_needs_a_step_that_gives_them():
    with pytest.raises(InputError, match=r"Times defines from_hidden, but .* or call as well"):
        compiled(loss=times("from_hidden")(), metrics=[keras.metrics.SparseCategoricalAccuracy()])


class NoTrainingArgument(t2t.Transformer):
    def call(self, inputs):
        return 2 * super().call(inputs)


class OldComputeLoss(t2t.Transformer):
    """The signature of Keras 3.2 and earlier."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return tf.reduce_mean(tf.square(y_pred)) + super().compute_loss(x, y, y_pred, sample_weight)


class OwnComputeMetrics(t2t.Transformer):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        results = super().compute_metrics(x, y, y_pred, sample_weight)
        return results | {"mean_logit": tf.reduce_mean(y_pred)}


class LayerBuiltInCall(t2t.Transformer):
    """Its variables exist only after the first call, as those of most Keras models do."""

    fails = False

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.extra = keras.layers.Dense(VOCAB, kernel_initializer=keras.initializers.Identity())

    def call(self, inputs, training=None):
        if self.fails:
            raise ZeroDivisionError
        return self.extra(super().call(inputs, training=training))


def own_loss(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


# Arguments of `compiled`; metrics as functions that make them, for no two models share one.
PLAIN_CASES = {
    "loss of Keras": {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
    "loss as a function": {"loss": own_loss},
    "loss_weights": {"loss_weights": 3.0},
    "metrics of Keras": {
        "metrics": lambda: [keras.metrics.SparseCategoricalAccuracy(), t2t.Perplexity()],
        "weighted_metrics": lambda: [keras.metrics.SparseCategoricalAccuracy()],
    },
    "metric with values only": {"metrics": lambda: [OnlyValues("largest_logit")]},
    "call without training": {"kind": NoTrainingArgument},
    "compute_loss without training": {"kind": OldComputeLoss},
    "compute_metrics": {"kind": OwnComputeMetrics, "metrics": lambda: [t2t.Perplexity()]},
    "layer built in call": {"kind": LayerBuiltInCall},
}


def with_step_of_keras(kind):
    """Returns a subclass that trains by `keras.Model.train_step`."""
    return type(kind.__name__, (kind,), {"train_step": keras.Model.train_step})


def as_lists(logs):
    return {name: np.asarray(value).tolist() for name, value in logs.items()}


@pytest.mark.parametrize("name", PLAIN_CASES)
def test_with_parts_of_the_users_own_a_step_is_that_of_keras(name):
    case = dict(PLAIN_CASES[name])
    kind = case.pop("kind", t2t.Transformer)
    results = []
    for each in (kind, with_step_of_keras(kind)):
        model = compiled(each, run_eagerly=True, **case)
        assert not model.fuses_loss
        trained = model.train_on_batch(*batch(0), return_dict=True)
        evaluated = model.test_on_batch(*batch(1), return_dict=True)
        results.append((weights_of(model), [as_lists(log) for log in (trained, evaluated)]))
    (found, logs), (expected, expected_logs) = results
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for log, expected_log in zip(logs, expected_logs, strict=True):
        assert log == pytest.approx(expected_log, rel=1e-5)


@pytest.mark.slow
def test_a_layer_that_is_built_in_call_is_trained_and_loaded(tmp_path):
    model = compiled(LayerBuiltInCall, keras.optimizers.Adam(0.01))
    history = model.fit(dataset(), epochs=2, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert np.any(model.extra.kernel != np.eye(VOCAB))
    # Iterations and learning rate, and two moments of each variable.
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_variables)
    model.save(tmp_path / "whole.keras")
    whole = keras.saving.load_model(
        tmp_path / "whole.keras", custom_objects={"LayerBuiltInCall": LayerBuiltInCall}
    )
    inputs, _, _ = batch()
    np.testing.assert_array_equal(whole(inputs), model(inputs))
    for one in (model, whole):
        one.train_on_batch(*batch())
    np.testing.assert_allclose(weights_of(whole), weights_of(model), rtol=1e-5, atol=1e-6)
    LayerBuiltInCall.fails = True
    with pytest.raises(ValueError, match="build them in __init__"):
        keras.saving.load_model(
            tmp_path / "whole.keras", custom_objects={"LayerBuiltInCall": LayerBuiltInCall}
        )
    LayerBuiltInCall.fails = False


def test_weights_of_sentences_after_weights_of_tokens():
    """TensorFlow merges the traces: the function of both has weights of unknown rank."""
    inputs, labels, of_tokens = batch(rows=6)
    of_sentences = np.array([0, 0, 0, 1, 2, 3], np.float32)
    model = compiled(weighted_metrics=[t2t.Perplexity()])
    for weights in (of_tokens, of_sentences):
        found = model.evaluate(inputs, labels, 6, 0, weights, return_dict=True)
    spread = np.broadcast_to(of_sentences[:, None], labels.shape) * (labels != 0)
    log_p = tf.nn.log_softmax(model(inputs)).numpy()
    chosen = np.take_along_axis(log_p, labels[..., None], axis=2)[..., 0]
    smoothed = 0.9 * chosen + 0.1 * log_p.mean(axis=2)
    expected = -np.sum(smoothed * spread) / np.sum(spread)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    perplexity = np.exp(-np.sum(chosen * spread) / np.sum(spread))
    assert found["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    for weights in (of_tokens, of_sentences):
        loss = model.train_on_batch(inputs, labels, weights, return_dict=True)["loss"]
        model.optimizer.learning_rate = 0.0
        model.reset_metrics()
    after = model.evaluate(inputs, labels, 6, 0, of_sentences, return_dict=True)
    assert loss == pytest.approx(after["loss"], rel=1e-5)


def test_a_train_step_of_the_users_own():
    class OwnStep(t2t.Transformer):
        def train_step(self, data):
            inputs, labels, weights = data
            with tf.GradientTape() as tape:
                logits = self(inputs, training=True)
                loss = self.compute_loss(inputs, labels, logits, weights)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"own": loss}

    own, ours = compiled(OwnStep, run_eagerly=True), compiled(run_eagerly=True)
    assert list(own.train_on_batch(*batch(), return_dict=True)) == ["own"]
    ours.train_on_batch(*batch())
    np.testing.assert_allclose(weights_of(own), weights_of(ours), atol=1e-6)


def partial_of(function, **options):
    return functools.partial(getattr(keras.losses, function), **options)


class ByLogits(keras.losses.SparseCategoricalCrossentropy):
    def call(self, y_true, y_pred):
        return super().call(y_true, tf.nn.softmax(y_pred))


def test_losses_and_metrics_of_probabilities_are_refused():
    model, own = t2t.Transformer(CONFIG), keras.losses.SparseCategoricalCrossentropy
    names = ["sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", "KLD", "tversky"]
    focal, partial = keras.losses.CategoricalFocalCrossentropy, partial_of(names[0], axis=-1)
    for loss in (*names, own(), focal(), keras.losses.Dice(), keras.losses.kl_divergence, partial):
        for form in (loss, [loss], {"output": loss}):
            with pytest.raises(InputError, match=r"which takes probabilities.*from_logits=True"):
                model.compile("sgd", form)
    for metric in ("ce", names[0], keras.metrics.SparseCategoricalCrossentropy()):
        with pytest.raises(InputError, match=r"metric is .*, which takes prob.*metrics.Sparse"):
            model.compile("sgd", "mse", weighted_metrics=[metric])
    of_logits = partial_of(names[0], from_logits=True)
    for loss in (own(from_logits=True), [focal(from_logits=True)], of_logits, "mse", ByLogits()):
        model.compile("sgd", loss, metrics=["accuracy"])


# Options of compile, fit and optimizers -----------------------------------------------------------


def adam(**options):
    return lambda: keras.optimizers.Adam(0.01, **options)


# Others are like these.
OPTIONS = {
    "gradient_accumulation_steps": {"optimizer": adam(gradient_accumulation_steps=2)},
    "clipnorm": {"optimizer": adam(clipnorm=0.01)},
    "use_ema": {"optimizer": adam(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)},
    "LossScaleOptimizer": {
        "optimizer": lambda: keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2
        )
    },
    "steps_per_execution": {"steps_per_execution": 3},
    "weighted_metrics": {"weighted_metrics": lambda: [t2t.TokenAccuracy(), t2t.Perplexity()]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_fit_with_an_option_of_keras_is_the_fit_of_keras(name):
    """Keras's own step runs operation by operation, so that options of graphs are seen to act."""
    option = dict(OPTIONS[name])
    optimizer = option.pop("optimizer", adam())
    ours = compiled(optimizer=optimizer(), **option)
    theirs = compiled(
        with_step_of_keras(PlainRoute), optimizer(), **(option | {"run_eagerly": True})
    )
    assert ours.fuses_loss
    histories = [model.fit(dataset(), verbose=0).history for model in (ours, theirs)]
    # Adam divides by the gradient's own size: where that is 0 but for rounding, so do the weights.
    np.testing.assert_allclose(weights_of(ours), weights_of(theirs), atol=2e-4)
    assert np.median(np.abs(weights_of(ours) - weights_of(theirs))) < 1e-6
    assert as_lists(histories[0]).keys() == as_lists(histories[1]).keys()
    for key in set(histories[0]) - {"loss"}:  # of Keras it is the mean of the batches' means
        np.testing.assert_allclose(histories[0][key], histories[1][key], rtol=1e-4)
    for a, b in zip(ours.optimizer.variables, theirs.optimizer.variables, strict=True):
        assert a.shape == b.shape


def test_mixed_float16_trains_with_loss_scaling():
    model = compiled(
        optimizer=keras.optimizers.Adam(0.01), dtype="mixed_float16", metrics=[t2t.Perplexity()]
    )
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    unscaled = compiled(dtype="mixed_float16", auto_scale_loss=False)
    assert not isinstance(unscaled.optimizer, keras.optimizers.LossScaleOptimizer)
    history = model.fit(dataset(), epochs=4, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert history["perplexity"][-1] < history["perplexity"][0]


def test_a_loss_that_overflows_float16_changes_no_weight():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1e38)
    model = compiled(optimizer=optimizer, dtype="mixed_float16")
    before = weights_of(model)
    model.train_on_batch(*batch())
    np.testing.assert_array_equal(weights_of(model), before)
    assert float(optimizer.dynamic_scale) == pytest.approx(5e37)


def test_class_weights_are_those_of_keras_for_a_classifier_and_refused_for_sequences():
    ids, labels = np.arange(4, 16).reshape(4, 3), np.array([0, 1, 2, 0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = []
    for arguments in ({"class_weight": {0: 2.0}}, {"sample_weight": np.array([2.0, 1, 1, 2])}):
        keras.utils.set_random_seed(0)
        model = t2t.TransformerClassifier(CONFIG, 3, head_dropout=0.0)
        model.compile(keras.optimizers.SGD(0.1), loss)
        losses.append(model.fit(ids, labels, verbose=0, shuffle=False, **arguments).history["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    inputs, labels, _ = batch()
    for method in (compiled().fit, compiled().train_on_batch):
        with pytest.raises(InputError, match="class_weight is for one label a row"):
            method(inputs, labels, class_weight={5: 2.0})


# Saving -------------------------------------------------------------------------------------------


def test_a_loaded_model_trains_on_as_the_saved_one_does(tmp_path):
    metrics = both_kinds_of_metrics()
    model = compiled(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True, **metrics)
    model.micro_batches, model.parallel_micro_batches = 2, 2
    model.train_on_batch(*batch(0))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert (again.micro_batches, again.parallel_micro_batches) == (2, 2)
    assert again.compiled and int(again.optimizer.iterations) == 1
    logs = [each.train_on_batch(*batch(1), return_dict=True) for each in (model, again)]
    assert logs[1] == pytest.approx(logs[0], rel=1e-5)
    np.testing.assert_allclose(weights_of(again), weights_of(model), rtol=1e-5, atol=1e-6)
    t2t.Transformer(CONFIG).save(tmp_path / "bare.keras")
    assert not keras.saving.load_model(tmp_path / "bare.keras").compiled


def test_a_training_step_is_traced_once():
    """TensorFlow traces again if the first trace made variables, such as an optimizer's."""
    traces = []

    class Counting(t2t.Transformer):
        def train_step(self, data):
            traces.append(1)  # Python runs while the graph is made only
            return super().train_step(data)

    model = compiled(Counting, keras.optimizers.Adam(0.01), metrics=[t2t.Perplexity()])
    for _ in range(2):
        model.fit(dataset(), verbose=0)
    assert len(traces) == 1 and model.optimizer.iterations == 6
