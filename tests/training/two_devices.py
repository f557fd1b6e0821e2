"""One device and two train alike; `test_processes.py` of the models runs this."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.layers.basic import Dropout
from t2t_keras.models.classifier import WordDropout
from t2t_keras.training.callbacks import (
    CheckpointCallback,
    EvaluationCallback,
    ProgressLogger,
    StopOnDivergence,
    evaluate_on,
)
from t2t_keras.training.checkpoints import CheckpointManager, restore_weights
from t2t_keras.training.metrics_log import MetricsLog
from t2t_keras.training.optimizers import Adam, Muon
from tests.training import tiny
from tests.two_devices import ONE, TWO


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def unequal_batches():
    """Batches of other lengths, whose halves hold very unequal counts of tokens, down to none."""
    parts = [next(tiny.batches(1, 4, length, seed=length)) for length in (5, 9, 2, 7, 3)]
    for ids, labels, weights in [*parts, tuple(array[:3] for array in parts[0])]:
        for array in (ids, labels, weights):
            array[2:, 1:] = 0
        yield ids, labels, weights
    ids, labels, weights = parts[1]
    yield ids, labels, weights * np.array([[1], [1], [0], [0]], np.float32)
    yield ids[:1], labels[:1], weights[:1]


OPTIMIZERS = {
    "ema": lambda: Adam(0.01, ema_decay=0.7, weight_decay=0.1, global_clipnorm=0.5),
    "clipnorm": lambda: Adam(0.01, clipnorm=0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_devices_take_the_same_steps_as_one(optimizer):
    models = []
    for strategy in (ONE, TWO):
        with strategy.scope():
            model = tiny.compiled_model(optimizer=OPTIMIZERS[optimizer]())
        tiny.fit(model, tiny.dataset_of(unequal_batches()), 8)
        models.append(model)
    assert_same(*(model.trainable_variables for model in models))
    if optimizer == "ema":
        averages = [model.optimizer.averages for model in models]
        assert_same(*averages)
        assert all(np.any(average.numpy() != 0) for average in averages[0])
    batches = tiny.dataset_of(unequal_batches())
    one, two = (model.evaluate(batches, verbose=0, return_dict=True) for model in models)
    for name in ("accuracy", "perplexity"):  # Keras weights the loss by rows
        assert two[name] == pytest.approx(one[name], rel=1e-5)


@pytest.mark.parametrize("kind", [Adam, Muon])
def test_two_devices_update_weights_of_several_types_as_one(kind):
    types, results = ("bfloat16", "float32", "float64"), []
    for strategy in (ONE, TWO):
        with strategy.scope():
            weights = [keras.Variable(np.eye(2), dtype=dtype) for dtype in types]
            optimizer = kind(0.1, global_clipnorm=1.0, weight_decay=0.1, ema_decay=0.5)
            optimizer.build(weights)

        def update(strategy=strategy, optimizer=optimizer, weights=weights):
            values = np.array([[1.0, 3.0], [-2.0, 1.0]]) / strategy.num_replicas_in_sync
            optimizer.apply([tf.constant(values, dtype) for dtype in types], weights)

        step = tf.function(lambda strategy=strategy, f=update: strategy.run(f), autograph=False)
        for _ in range(3):
            step()
        results.append([v.numpy().astype(np.float64) for v in [*weights, *optimizer.variables]])
    assert all(np.all(np.isfinite(values)) for values in results[0])
    assert np.abs(results[0][0] - np.eye(2)).max() > 0.05
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_one_replicas_infinite_gradient_skips_all_updates():
    """The skipped update is a step, and the average is that of the weights after each step."""
    with TWO.scope():
        weight = keras.Variable([1.0])
        optimizer = keras_compat.LossScaleOptimizer(Adam(0.1, ema_decay=0.5), initial_scale=4.0)
        optimizer.build([weight])

    def update():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply([tf.where(tf.equal([replica], 1), np.nan, 1.0)], [weight])

    tf.function(lambda: TWO.run(update), autograph=False)()
    average = optimizer.inner_optimizer.averages[0]
    results = weight, average, optimizer.iterations, optimizer.dynamic_scale
    assert [float(np.squeeze(x.numpy())) for x in results] == [1.0, 1.0, 1.0, 2.0]


def test_the_gradients_are_added_up_in_packs(monkeypatch, caplog):
    weights = []
    # Each of the three dense layers has a matrix of more than 128 bytes.
    for size, packs in ((2**25, "1"), (128, "3")):
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=size)
        monkeypatch.setattr(keras_compat, "_OPTIONS", options)
        caplog.clear()
        with TWO.scope():
            model = tiny.compiled_model(optimizer=Adam(0.01))
        with caplog.at_level("INFO", logger="tensorflow"):
            tiny.fit(model, tiny.dataset(3), 3)
        assert packs in re.findall(r"num_packs = (\d+)", caplog.text)
        weights.append(model.get_weights())
    assert_same(*weights)


@pytest.mark.parametrize("layer", [Dropout, WordDropout])
def test_each_device_draws_a_mask_of_its_own(layer):
    ids = tf.ones([50, 60], "float32" if layer is Dropout else "int32")

    def masks_with(strategy):
        """Returns whether each id is kept, [call, replica, ...]."""
        keras.utils.set_random_seed(5)
        with strategy.scope():
            dropout = layer(0.5)
        run = tf.function(lambda: strategy.run(lambda: dropout(ids, training=True)))
        calls = [strategy.experimental_local_results(run()) for _ in range(3)]
        return np.array(calls) != 0

    one, two = masks_with(ONE), masks_with(TWO)
    np.testing.assert_array_equal(two[:, :1], one)
    masks = two.reshape(6, -1)
    agreement = [np.mean(masks[i] == masks[j]) for i in range(6) for j in range(i)]
    np.testing.assert_allclose(agreement, 0.5, atol=4 * 0.5 / np.sqrt(ids.shape.num_elements()))


def test_callbacks_and_checkpoints_cross_from_two_devices_to_one(tmp_path):
    with TWO.scope():
        model = tiny.compiled_model(dropout=0.5)
    log = MetricsLog(tmp_path)
    checkpoints = CheckpointManager(tmp_path / "checkpoints", model)
    validate = EvaluationCallback(1, evaluate_on(tiny.dataset(2)), log, "validation_loss", "min")
    guard = StopOnDivergence(checkpoints, 100.0, every=3)
    saving = CheckpointCallback(checkpoints, steps=3, guard=guard)
    callbacks = [guard, ProgressLogger(3, 6, log), validate, saving]
    tiny.fit(model, tiny.dataset(6), 6, callbacks)
    window = [batch[1] for batch in tiny.batches(6)][3:]
    padding = dict(log.values("padding_share"))[6]
    assert padding == pytest.approx(np.mean(np.equal(window, 0)), rel=1e-4)
    single = tiny.compiled_model(seed=1, dropout=0.5)
    assert CheckpointManager(tmp_path / "checkpoints", single).restore_latest() == 6
    assert_same(single.trainable_variables, model.trainable_variables)
    with TWO.scope():
        again = tiny.compiled_model(seed=2, dropout=0.5)
    restore_weights(again, checkpoints.paths()[-1])
    assert_same(again.trainable_variables, model.trainable_variables)
    assert CheckpointManager(tmp_path / "checkpoints", again).restore_latest() == 6
    for one in (model, again):
        tiny.fit(one, tiny.dataset(2), 2)
    assert_same(again.trainable_variables, model.trainable_variables)
