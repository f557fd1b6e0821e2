"""The training step: equal to Keras's own, fused where it may be, with every option of Keras."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.training.metrics import TokenMean

VOCAB = 41
CONFIG = t2t.TransformerConfig(VOCAB, 1, 1, 16, 24, num_heads=2, dropout=0.0)
Loss = t2t.LabelSmoothedCrossEntropy
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def batch(seed=0, rows=5, length=6):
    """Returns inputs, labels and weights, with padding and weights other than 1."""
    rng = np.random.default_rng(seed)
    source, labels = rng.integers(4, VOCAB, (2, rows, length)).astype(np.int32)
    labels[: rows // 2, 2:] = 0
    target = np.pad(labels, [[0, 0], [1, 0]], constant_values=3)[:, :-1]
    weights = np.sign(labels) * rng.integers(1, 3, labels.shape)
    return {"source_ids": source, "target_ids": target}, labels, weights.astype(np.float32)


def dataset(batches=4):
    parts = [tf.data.Dataset.from_tensors(batch(seed)) for seed in range(batches)]
    return functools.reduce(tf.data.Dataset.concatenate, parts)


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
    ("micro_batches", "run_eagerly", "penalty"),
    [slow(1, False, 0.0), (1, True, 0.1), (3, False, 0.1), slow(3, True, 0.0)],
)
@pytest.mark.parametrize("form", ["fast", slow("plain")])
def test_the_fused_step_has_gradients_and_results_of_the_plain_step(
    form, micro_batches, run_eagerly, penalty
):
    arguments = {"micro_batches": micro_batches, "penalty": penalty, "run_eagerly": run_eagerly}
    if form == "plain":
        with ops.plain():
            gradient, logs = first_step(**arguments)
    else:
        gradient, logs = first_step(**arguments)
    expected, expected_logs = plain_step(penalty=penalty)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert set(logs) == {"loss", "accuracy", "perplexity"}
    assert logs == pytest.approx(expected_logs, rel=1e-5)


def test_the_plain_route_in_a_graph_and_in_micro_batches_is_the_plain_step():
    expected, expected_logs = plain_step()
    for micro_batches in (1, 3):
        gradient, logs = first_step(PlainRoute, micro_batches=micro_batches)
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
        assert logs == pytest.approx(expected_logs, rel=1e-5)


@pytest.mark.parametrize("dtype", [slow("mixed_bfloat16"), "mixed_float16"])
def test_in_half_precision_the_fused_step_is_as_exact_as_the_plain_step(dtype):
    exact, exact_logs = plain_step()
    fused, logs = first_step(dtype=dtype)
    plain, _ = first_step(PlainRoute, dtype)
    assert np.linalg.norm(fused - exact) < 1.1 * np.linalg.norm(plain - exact)
    assert logs["loss"] == pytest.approx(exact_logs["loss"], rel=0.01)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_policies_of_one_type_train_with_penalties(dtype):
    model = compiled(dtype=dtype)
    for variable in model.trainable_variables:
        variable.regularizer = keras.regularizers.L2(1e-3)
    losses = [model.train_on_batch(*batch()) for _ in range(4)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("dtype", ["float32", slow("mixed_bfloat16")])
def test_a_training_step_reports_what_evaluation_does(dtype):
    """Evaluation goes Keras's way; without a learning rate nothing else differs."""
    model = compiled(
        optimizer=keras.optimizers.SGD(0.0),
        dtype=dtype,
        metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        weighted_metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
    )
    assert model.fuses_loss
    trained = model.train_on_batch(*batch(), return_dict=True)
    evaluated = model.test_on_batch(*batch(), return_dict=True)
    names = {"accuracy", "perplexity", "weighted_accuracy", "weighted_perplexity"}
    assert set(trained) == {"loss"} | names
    assert trained == pytest.approx(evaluated, rel=1e-4)


def logits_and_loops(kind):
    """Returns how many tensors [..., vocab] and how many loops the graph of a step has."""
    model = compiled(kind, metrics=[t2t.Perplexity()])
    graph = tf.function(model.train_step).get_concrete_function(batch()).graph
    tensors = [x for op in graph.get_operations() for x in op.outputs if x.shape.rank]
    wide = [x for x in tensors if x.shape[-1] == VOCAB and x.shape.num_elements() != VOCAB]
    return len(wide), len([op for op in graph.get_operations() if "While" in op.type])


def test_the_graph_of_the_fused_step_has_no_logits_outside_its_loop_over_chunks():
    assert logits_and_loops(t2t.Transformer) == (0, 1)
    tensors, loops = logits_and_loops(PlainRoute)
    assert tensors > 0 and loops == 0


class RecordingLoss(Loss):
    """A user's loss that offers both forms."""

    def __init__(self):
        super().__init__(0.1)
        self.asked = []

    def call(self, labels, logits):
        return super().call(labels, logits)

    def from_hidden(self, labels, hidden, matrix, sample_weight=None, compute_argmax=True, **kw):
        self.asked.append(compute_argmax)
        return super().from_hidden(labels, hidden, matrix, sample_weight, compute_argmax, **kw)


@pytest.mark.parametrize(
    ("metrics", "weighted_metrics", "computes_argmax"),
    [
        ([], [], False),
        ([t2t.Perplexity], [], False),
        ([t2t.Perplexity, t2t.TokenAccuracy], [], True),
        ([], [t2t.TokenAccuracy], True),
    ],
)
def test_the_most_probable_classes_are_computed_where_a_metric_reads_them(
    metrics, weighted_metrics, computes_argmax
):
    model = compiled(
        loss=RecordingLoss(),
        metrics=[kind() for kind in metrics],
        weighted_metrics=[kind() for kind in weighted_metrics],
        run_eagerly=True,
    )
    model.train_on_batch(*batch())
    assert model.loss.asked == [computes_argmax]


# What the fused loss cannot stand for goes Keras's way --------------------------------------------


class OwnLossCall(Loss):
    def call(self, labels, logits):
        return 2 * super().call(labels, logits)


class OwnLossOuterCall(Loss):
    def __call__(self, labels, logits, sample_weight=None):
        return 2 * super().__call__(labels, logits, sample_weight)


class OnlyValues(TokenMean):
    """A metric that needs logits: it has no `values_from_terms`."""

    def values(self, labels, logits):
        return tf.reduce_max(tf.cast(logits, tf.float32), axis=-1)


class OwnValues(t2t.TokenAccuracy):
    def values(self, labels, logits):
        return 1 - super().values(labels, logits)


class OwnUpdate(t2t.TokenAccuracy):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true, -y_pred, sample_weight)


class DoubledLogits(t2t.Transformer):
    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training=training)


class NoTrainingArgument(t2t.Transformer):
    def call(self, inputs):
        return super().call(inputs)


class CallOfMixin:
    def call(self, inputs, training=None):
        return 3 * super().call(inputs, training=training)


class MixedIn(CallOfMixin, t2t.Transformer):
    pass


class OwnComputeLoss(t2t.Transformer):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 3 * super().compute_loss(x, y, y_pred, sample_weight, training)


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

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.extra = keras.layers.Dense(VOCAB, kernel_initializer=keras.initializers.Identity())

    def call(self, inputs, training=None):
        return self.extra(super().call(inputs, training=training))


def own_loss(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


# Arguments of `compiled`; metrics as functions that make them, for no two models share one.
PLAIN_CASES = {
    "loss of Keras": {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
    "loss as a function": {"loss": own_loss},
    "loss in a list": {"loss": [Loss(0.1)]},
    "loss with a call of its own": {"loss": OwnLossCall(0.1)},
    "loss with an outer call of its own": {"loss": OwnLossOuterCall(0.1)},
    "loss_weights": {"loss_weights": 3.0},
    "metric of Keras": {
        "metrics": lambda: [keras.metrics.SparseCategoricalAccuracy(), t2t.Perplexity()]
    },
    "metric as a string": {"metrics": lambda: ["sparse_categorical_accuracy"]},
    "weighted metric of Keras": {
        "weighted_metrics": lambda: [keras.metrics.SparseCategoricalAccuracy()]
    },
    "metric with values only": {"metrics": lambda: [OnlyValues("largest_logit")]},
    "metric with values of its own": {"metrics": lambda: [OwnValues()]},
    "metric with an update of its own": {"metrics": lambda: [OwnUpdate()]},
    "call": {"kind": DoubledLogits},
    "call without training": {"kind": NoTrainingArgument},
    "call of a mixin": {"kind": MixedIn},
    "compute_loss": {"kind": OwnComputeLoss},
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
def test_with_parts_of_the_users_own_the_step_is_that_of_keras(name):
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


def test_without_parts_of_the_users_own_the_step_is_that_of_keras_too():
    models = [compiled(kind) for kind in (t2t.Transformer, with_step_of_keras(t2t.Transformer))]
    assert models[0].fuses_loss
    for model in models:
        for seed in range(2):
            model.train_on_batch(*batch(seed))
    np.testing.assert_allclose(*map(weights_of, models), atol=1e-6)


@pytest.mark.parametrize("run_eagerly", [False, slow(True)])
def test_a_layer_that_is_built_in_call_is_trained(run_eagerly):
    model = compiled(LayerBuiltInCall, keras.optimizers.Adam(0.01), run_eagerly=run_eagerly)
    history = model.fit(dataset(), epochs=2, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert np.any(model.extra.kernel != np.eye(VOCAB))
    # Iterations and learning rate, and two moments of each variable.
    assert len(model.optimizer.variables) == 2 + 2 * len(model.trainable_variables)


def test_a_layer_that_is_built_in_call_is_loaded(tmp_path):
    model = compiled(LayerBuiltInCall, keras.optimizers.Adam(0.01))
    model.fit(dataset(), verbose=0)
    model.save(tmp_path / "whole.keras")
    model.save_weights(tmp_path / "of.weights.h5")
    whole = keras.saving.load_model(
        tmp_path / "whole.keras", custom_objects={"LayerBuiltInCall": LayerBuiltInCall}
    )
    weights = LayerBuiltInCall(CONFIG)
    weights.load_weights(tmp_path / "of.weights.h5")
    inputs, _, _ = batch()
    for again in (whole, weights):
        np.testing.assert_array_equal(again(inputs), model(inputs))
    for one in (model, whole):
        one.fit(dataset(), verbose=0)
    np.testing.assert_allclose(weights_of(whole), weights_of(model), atol=1e-6)


def test_a_layer_whose_call_fails_is_not_loaded(tmp_path):
    class Other(LayerBuiltInCall):
        def call(self, inputs, training=None):
            return super().call(inputs | {"target_ids": inputs["more"]}, training=training)

    model = Other(CONFIG)
    inputs, _, _ = batch()
    model(inputs | {"more": inputs["target_ids"]})
    model.save_weights(tmp_path / "of.weights.h5")
    with pytest.raises(ValueError, match="build them in __init__"):
        Other(CONFIG).load_weights(tmp_path / "of.weights.h5")


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


@pytest.mark.parametrize("jit_compile", ["auto", slow(True)])
def test_a_train_step_of_the_users_own(jit_compile):
    class OwnStep(t2t.Transformer):
        def train_step(self, data):
            inputs, labels, weights = data
            with tf.GradientTape() as tape:
                logits = self(inputs, training=True)
                loss = self.compute_loss(inputs, labels, logits, weights)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"own": loss}

    own, ours = compiled(OwnStep, jit_compile=jit_compile), compiled()
    assert own.jit_compile == (jit_compile is True)
    assert list(own.train_on_batch(*batch(), return_dict=True)) == ["own"]
    ours.train_on_batch(*batch())
    np.testing.assert_allclose(weights_of(own), weights_of(ours), atol=1e-6)


# Options of compile, fit and optimizers -----------------------------------------------------------


def adam(**options):
    return lambda: keras.optimizers.Adam(0.01, **options)


# Others are like these.
SLOW_OPTIONS = {"clipnorm", "loss_scale_factor", "optimizer as a string", "weighted_metrics"}
OPTIONS = {
    "gradient_accumulation_steps": {"optimizer": adam(gradient_accumulation_steps=2)},
    "clipnorm": {"optimizer": adam(clipnorm=0.01)},
    "global_clipnorm": {"optimizer": adam(global_clipnorm=0.01)},
    "use_ema": {"optimizer": adam(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)},
    "loss_scale_factor": {"optimizer": adam(loss_scale_factor=16.0)},
    "LossScaleOptimizer": {
        "optimizer": lambda: keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2
        )
    },
    "optimizer as a string": {"optimizer": lambda: "adam"},
    "steps_per_execution": {"steps_per_execution": 3},
    "run_eagerly": {"run_eagerly": True},
    "weighted_metrics": {"weighted_metrics": lambda: [t2t.TokenAccuracy(), t2t.Perplexity()]},
}


@pytest.mark.parametrize("name", [slow(n) if n in SLOW_OPTIONS else n for n in OPTIONS])
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
    for key, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][key], rtol=1e-4)
    for a, b in zip(ours.optimizer.variables, theirs.optimizer.variables, strict=True):
        assert a.shape == b.shape


@pytest.mark.parametrize("auto_scale_loss", [True, slow(False)])
def test_mixed_float16_trains_with_and_without_loss_scaling(auto_scale_loss):
    model = compiled(
        optimizer=keras.optimizers.Adam(0.01),
        dtype="mixed_float16",
        auto_scale_loss=auto_scale_loss,
        metrics=[t2t.Perplexity()],
    )
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == auto_scale_loss
    history = model.fit(dataset(), epochs=3, verbose=0).history
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


def test_train_on_batch_returns_the_results_of_one_batch():
    model = compiled(optimizer=keras.optimizers.SGD(0.0), metrics=[t2t.Perplexity()])
    first = model.train_on_batch(*batch(0))
    model.train_on_batch(*batch(1))
    assert model.train_on_batch(*batch(0)) == pytest.approx(first, rel=1e-5)
    assert len(first) == 2


def test_a_model_without_trainable_weights_stays_unchanged():
    model = t2t.Transformer(CONFIG)
    model.trainable = False
    model.compile(keras.optimizers.SGD(1.0), Loss(), metrics=[t2t.Perplexity()])
    before = weights_of(model)
    trained = model.train_on_batch(*batch(), return_dict=True)
    np.testing.assert_array_equal(weights_of(model), before)
    assert trained == pytest.approx(model.test_on_batch(*batch(), return_dict=True), rel=1e-5)


def test_compiled_again_a_model_reports_the_new_metrics_alone():
    model = compiled(metrics=[t2t.TokenAccuracy()])
    assert set(model.train_on_batch(*batch(), return_dict=True)) == {"loss", "accuracy"}
    model.compile(keras.optimizers.SGD(0.1), Loss(), metrics=[t2t.Perplexity()])
    assert set(model.train_on_batch(*batch(), return_dict=True)) == {"loss", "perplexity"}


# Saving -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batches", [1, slow(2)])
def test_a_loaded_model_trains_on_as_the_saved_one_does(micro_batches, tmp_path):
    model = compiled(
        optimizer=keras.optimizers.Adam(0.01),
        metrics=[t2t.TokenAccuracy()],
        weighted_metrics=[t2t.Perplexity()],
    )
    model.micro_batches = micro_batches
    model.train_on_batch(*batch(0))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.compiled and again.micro_batches == micro_batches
    assert int(again.optimizer.iterations) == 1
    logs = [each.train_on_batch(*batch(1), return_dict=True) for each in (model, again)]
    assert set(logs[1]) == {"loss", "accuracy", "perplexity"}
    assert logs[1] == pytest.approx(logs[0], rel=1e-5)
    np.testing.assert_allclose(weights_of(again), weights_of(model), atol=1e-6)


def test_a_classifier_is_loaded_compiled(tmp_path):
    model = t2t.TransformerClassifier(CONFIG, 3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    ids, labels = np.arange(4, 16).reshape(4, 3), np.array([0, 1, 2, 0])
    model.fit(ids, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.iterations) == 1
    assert again.evaluate(ids, labels, verbose=0, return_dict=True) == pytest.approx(
        model.evaluate(ids, labels, verbose=0, return_dict=True)
    )


@keras.saving.register_keras_serializable(package="tests")
class OwnCompile(t2t.Transformer):
    def compile(self, rate):
        super().compile(keras.optimizers.SGD(rate), Loss())


def test_a_model_with_a_compile_of_the_users_own_is_loaded_uncompiled_as_by_keras(tmp_path):
    model = OwnCompile(CONFIG)
    model.compile(0.1)
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match=r"`compile\(\)` was not called"):
        again = keras.saving.load_model(tmp_path / "model.keras")
    assert not hasattr(again, "optimizer")
    np.testing.assert_array_equal(weights_of(again), weights_of(model))
