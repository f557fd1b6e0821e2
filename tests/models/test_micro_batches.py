"""The step of several micro-batches is that of the batch, whatever tokens each holds."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError

CONFIG = t2t.TransformerConfig(
    40, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2, dropout=0.0
)


def batch(rows, length, seed):
    """Rows of very unequal token counts, the first half of them almost empty."""
    rng = np.random.default_rng(seed)
    source, labels = rng.integers(4, 40, (2, rows, length))
    labels[: rows // 2, 1:] = 0
    target = np.pad(labels, [[0, 0], [1, 0]], constant_values=3)[:, :-1]
    inputs = {"source_ids": source.astype(np.int32), "target_ids": target.astype(np.int32)}
    return inputs, labels.astype(np.int32), np.sign(labels).astype(np.float32)


def dataset(weighted):
    parts = [batch(6, 5, 0), batch(5, 7, 1), batch(2, 3, 2)]
    dataset = tf.data.Dataset.from_tensors(parts[0])
    for part in parts[1:]:
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(part))
    return dataset if weighted else dataset.map(lambda inputs, labels, _: (inputs, labels))


def fitted(micro_batches, loss, weighted, parallel_micro_batches=1, **options):
    keras.utils.set_random_seed(0)
    model = t2t.Transformer(CONFIG)
    model.micro_batches = micro_batches
    model.parallel_micro_batches = parallel_micro_batches
    metrics = [t2t.TokenAccuracy(), t2t.Perplexity()]
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=metrics, **options)
    history = model.fit(dataset(weighted), steps_per_epoch=3, verbose=0).history
    return model, history


@pytest.mark.parametrize(
    ("micro_batches", "parallel", "weighted"),
    [(2, 1, False), pytest.param(5, 3, True, marks=pytest.mark.slow)],
)
def test_micro_batches_make_the_steps_of_the_batch(micro_batches, parallel, weighted):
    whole, expected = fitted(1, t2t.LabelSmoothedCrossEntropy(0.1), weighted)
    parts, history = fitted(micro_batches, t2t.LabelSmoothedCrossEntropy(0.1), weighted, parallel)
    for a, b in zip(whole.trainable_variables, parts.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert history.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-5)
    assert int(parts.optimizer.iterations) == 3


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight"])
def test_keras_losses_and_metrics_are_summed_over_micro_batches_too(reduction):
    """Their losses are means over elements, padding too, or over the weights of elements."""
    results = []
    for micro_batches in (1, 4):
        keras.utils.set_random_seed(0)
        model = t2t.Transformer(CONFIG)
        model.micro_batches = micro_batches
        model.compile(
            keras.optimizers.SGD(0.5),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction),
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
            run_eagerly=True,
        )
        logs = [model.train_on_batch(*batch(6, 5, seed), return_dict=True) for seed in (0, 1)]
        results.append((model.get_weights(), logs))
    for whole, parts in zip(*(weights for weights, _ in results), strict=True):
        np.testing.assert_allclose(whole, parts, atol=1e-6)
    for whole, parts in zip(*(logs for _, logs in results), strict=True):
        assert parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_batch_may_have_fewer_rows_than_micro_batches(run_eagerly):
    """Convolutions refuse length 0, and loops over no chunk have no tensor to return."""
    config = dataclasses.replace(CONFIG, feed_forward="convolution")
    found = []
    for micro_batches in (1, 4):
        keras.utils.set_random_seed(0)
        model = t2t.Transformer(config)
        model.micro_batches = micro_batches
        loss = t2t.LabelSmoothedCrossEntropy(0.1)
        model.compile(keras.optimizers.SGD(0.5), loss, run_eagerly=run_eagerly)
        inputs, labels, weights = batch(3, 4, 0)
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
    step = tf.function(model.train_step).get_concrete_function(batch(4, 5, 0))
    waiting = [op for op in step.graph.get_operations() if len(op.control_inputs) > 10]
    return len([op for op in waiting if op.type == "Identity"]) // 4  # tensors of one


def test_micro_batches_beyond_the_parallel_ones_wait_for_earlier_gradients():
    assert waiting_inputs(2, parallel_micro_batches=1) == 1
    assert waiting_inputs(2, parallel_micro_batches=2) == 0
    assert waiting_inputs(4, parallel_micro_batches=2) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"micro_batches": 0}, "micro_batches is 0"),
        ({"parallel_micro_batches": 0}, "parallel_micro_batches is 0"),
        ({"reduction": "sum"}, "reduction='sum', which micro_batches above 1"),
        ({"reduction": "none"}, "reduction='none', which micro_batches above 1"),
    ],
)
def test_settings_and_losses_whose_parts_do_not_add_up_are_refused(settings, message):
    model = t2t.Transformer(CONFIG)
    model.micro_batches = settings.get("micro_batches", 2)
    model.parallel_micro_batches = settings.get("parallel_micro_batches", 1)
    reduction = settings.get("reduction", "sum_over_batch_size")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    model.compile(keras.optimizers.SGD(0.1), loss)
    with pytest.raises(InputError, match=message):
        model.fit(*batch(4, 3, 0)[:2], verbose=0)
