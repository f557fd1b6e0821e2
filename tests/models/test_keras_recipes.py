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


def compiled():
    keras.utils.set_random_seed(0)
    model = t2t.Transformer(CONFIG)
    model.compile(
        keras.optimizers.Adam(0.01),
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


def test_callbacks_of_keras_stop_early_restore_the_best_and_draw_curves(tmp_path):
    model = compiled()
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.TensorBoard(tmp_path, histogram_freq=1),
    ]
    inputs, labels = reversing_task()
    # The more the model learns of reversing, the worse it copies.
    validation = (inputs, np.random.default_rng(1).permutation(labels))
    history = model.fit(
        *(inputs, labels),
        validation_data=validation,
        epochs=30,
        batch_size=32,
        callbacks=callbacks,
        verbose=0,
    ).history
    assert len(history["loss"]) < 30
    best = model.evaluate(*validation, batch_size=32, verbose=0, return_dict=True)["loss"]
    assert best == pytest.approx(min(history["val_loss"]), rel=1e-5)
    tags = {}
    for part in ("train", "validation"):
        events = EventAccumulator(str(tmp_path / part))
        events.Reload()
        tags[part] = events.Tags()["tensors"]
    assert {"epoch_loss", "epoch_accuracy"} <= set(tags["train"]) & set(tags["validation"])
    assert any("embedding" in tag and "histogram" in tag for tag in tags["train"])


def test_mixed_precision_by_the_global_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = compiled()
    finally:
        keras.config.set_dtype_policy(before)
    losses = model.fit(*reversing_task(), epochs=4, batch_size=16, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}
    assert model(reversing_task()[0]).dtype == "float32"
    assert model.encoder.compute_dtype == "bfloat16"
