"""What Keras users do with a model of this library, written as they would write it.

Each test is one recipe on a tiny task: the target is the source in reverse order. Fine-tuning by
LoRA has its example at `models.enable_lora`.
"""

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import t2t_keras as t2t

pytestmark = pytest.mark.slow

CONFIG = t2t.TransformerConfig(20, 1, 1, model_dim=16, feed_forward_dim=32, num_heads=2)
START = 3


def reversing_task(rows=64, length=5, seed=0):
    """Returns inputs and labels as `fit` takes them."""
    source = np.random.default_rng(seed).integers(4, 20, (rows, length))
    labels = source[:, ::-1]
    shifted = np.concatenate([np.full((rows, 1), START), labels[:, :-1]], axis=1)
    return {"source_ids": source, "target_ids": shifted}, labels


def compiled(learning_rate=0.01, **options):
    keras.utils.set_random_seed(0)
    model = t2t.Transformer(CONFIG, **options)
    model.compile(
        keras.optimizers.Adam(learning_rate),
        t2t.LabelSmoothedCrossEntropy(0.1),
        metrics=[t2t.TokenAccuracy()],
    )
    return model


def test_freezing_the_encoder():
    model = t2t.Transformer(CONFIG)
    model.encoder.trainable = False
    model.compile("adam", t2t.LabelSmoothedCrossEntropy())
    frozen, trained = (
        [weight.numpy() for weight in stack.weights] for stack in (model.encoder, model.decoder)
    )
    model.fit(*reversing_task(), batch_size=32, verbose=0)
    for old, weight in zip(frozen, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(old, weight)
    for old, weight in zip(trained, model.decoder.weights, strict=True):
        assert np.any(old != weight.numpy())


class LearningRateFinder(keras.callbacks.Callback):
    """Multiplies the learning rate after each batch, and keeps the losses (Smith 2017).

    Args:
        factor: float.
    """

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.rates, self.losses = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.losses.append(logs["loss"])
        self.model.optimizer.learning_rate = self.rates[-1] * self.factor


def test_a_learning_rate_finder_sees_every_rate():
    model, finder = compiled(learning_rate=1e-6), LearningRateFinder(factor=10)
    before = [weight.numpy() for weight in model.weights]
    model.fit(*reversing_task(), batch_size=16, callbacks=[finder], verbose=0)
    np.testing.assert_allclose(finder.rates, [1e-6, 1e-5, 1e-4, 1e-3], rtol=1e-5)
    assert np.all(np.isfinite(finder.losses))
    # A weight's first step of Adam is the rate, whatever its gradient; the largest rate shows.
    moves = [np.abs(old - weight).max() for old, weight in zip(before, model.weights, strict=True)]
    assert 3e-4 < max(moves) < 3e-3


def test_early_stopping_restores_the_best_weights():
    model = compiled()
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    inputs, labels = reversing_task()
    # The more the model learns of reversing, the worse it copies.
    validation = (inputs, np.random.default_rng(1).permutation(labels))
    history = model.fit(
        inputs,
        labels,
        validation_data=validation,
        epochs=30,
        batch_size=32,
        callbacks=[stopping],
        verbose=0,
    ).history
    assert len(history["loss"]) < 30
    best = model.evaluate(*validation, batch_size=32, verbose=0, return_dict=True)["loss"]
    assert best == pytest.approx(min(history["val_loss"]), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_by_the_global_policy(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = compiled()
    finally:
        keras.config.set_dtype_policy(before)
    losses = model.fit(*reversing_task(), epochs=8, batch_size=16, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}
    assert model(reversing_task()[0]).dtype == "float32"


@pytest.mark.slow
def test_tensorboard_shows_losses_and_weights(tmp_path):
    callback = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1)
    validation = reversing_task(seed=1)
    compiled().fit(*reversing_task(), validation_data=validation, verbose=0, callbacks=[callback])
    tags = {}
    for part in ("train", "validation"):
        events = EventAccumulator(str(tmp_path / part))
        events.Reload()
        tags[part] = events.Tags()["tensors"]
    assert {"epoch_loss", "epoch_accuracy"} <= set(tags["train"]) & set(tags["validation"])
    assert any("embedding" in tag and "histogram" in tag for tag in tags["train"])
