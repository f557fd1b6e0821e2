"""LoRA: a few weights are trained, and everything that reads a model sees them merged."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import keras_compat, ops
from t2t_keras.layers.basic import Linear
from t2t_keras.models import enable_lora, merge_lora
from t2t_keras.models.search_steps import step_products
from t2t_keras.ops import products

CONFIG = t2t.TransformerConfig(
    50, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2, dropout=0.0, attention_bias=True
)
INPUTS = {"source_ids": np.array([[5, 6, 1], [7, 1, 0]]), "target_ids": np.array([[3, 8], [3, 9]])}
LABELS = np.array([[8, 1], [9, 1]])


def with_lora(seed=0, alpha=6, **options):
    """A model whose A and B have values, as after training."""
    keras.utils.set_random_seed(seed)
    model = t2t.Transformer(CONFIG, **options)
    enable_lora(model, 3, lora_alpha=alpha)
    rng = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def merged_by_hand(model):
    """Returns {path: kernel + A B · α / rank} of NumPy, for the model's weights without LoRA."""
    values = {weight.path: weight.numpy().astype("float64") for weight in model.weights}
    for path in list(values):
        if path.endswith("lora_kernel_a"):
            stem = path.removesuffix("lora_kernel_a")
            a, b = values.pop(path), values.pop(stem + "lora_kernel_b")
            values[stem + "kernel"] = values[stem + "kernel"] + a @ b * 2
    return list(values.values())


def test_training_moves_the_low_rank_matrices_alone():
    model = t2t.Transformer(CONFIG)
    before = model(INPUTS)
    enable_lora(model, 3)
    np.testing.assert_allclose(model(INPUTS), before, atol=1e-6)  # B is 0
    # 4 matrices of the encoder (Q, K and V are one) and 7 of the decoder, each with A and B.
    assert len(model.trainable_weights) == 2 * (4 + 7)
    weights = {weight.path: weight.numpy() for weight in model.weights}
    model.compile(keras.optimizers.Adam(0.01), t2t.LabelSmoothedCrossEntropy(), run_eagerly=True)
    losses = model.fit(INPUTS, LABELS, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    moved = {w.path for w in model.weights if np.any(w.numpy() != weights[w.path])}
    assert moved == {weight.path for weight in model.trainable_weights}


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_merged_model_has_the_sums_of_numpy_and_the_same_logits(dtype):
    model = with_lora(dtype=dtype)
    merged = merge_lora(model)
    assert type(merged) is t2t.Transformer and merge_lora(merged) is merged
    for weight, expected in zip(merged.weights, merged_by_hand(model), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-6)
    plain = t2t.Transformer(CONFIG, dtype=dtype)
    assert [w.shape for w in merged.weights] == [w.shape for w in plain.weights]
    tolerance = 1e-5 if dtype == "float32" else 0.15
    np.testing.assert_allclose(merged(INPUTS), model(INPUTS), atol=tolerance)


@pytest.mark.parametrize("least", [1, 2**62], ids=["packed", "not_packed"])
def test_decoding_steps_see_the_low_rank_matrices(least, monkeypatch):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", least)
    model = with_lora()
    merged = merge_lora(model)
    ids, source_ids = tf.fill([2, 3], 4), tf.constant(INPUTS["source_ids"], tf.int32)

    def step(model):
        state = model.initial_state(model.encode(source_ids), 3)
        return model.step(ids, state)[0]

    expected = step(merged)
    matrices = step_products(model)
    with ops.with_step_products(**matrices):
        found = step(model)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(matrices["matrices"]) == 7 - 1  # W^K and W^V of memory apart


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
def test_keras_files_hold_the_merged_weights(tmp_path):
    model = with_lora(dtype="mixed_bfloat16")
    model.compile(keras.optimizers.Adam(0.01), t2t.LabelSmoothedCrossEntropy())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    other = t2t.Transformer(CONFIG, dtype="mixed_bfloat16")
    other.load_weights(tmp_path / "model.weights.h5")
    for found in (loaded, other):
        for weight, expected in zip(found.weights, merged_by_hand(model), strict=True):
            np.testing.assert_allclose(weight, expected, atol=1e-6)
    before = loaded(INPUTS)
    enable_lora(loaded, 2)  # a second fine-tuning
    np.testing.assert_allclose(loaded(INPUTS), before, atol=1e-6)


def test_lora_is_refused_by_a_sentence_where_it_makes_no_sense():
    model = t2t.Transformer(CONFIG)
    with pytest.raises(t2t.InputError, match="rank is 0: give a whole number"):
        enable_lora(model, 0)
    assert len(model.trainable_weights) == len(model.weights)
    enable_lora(model, 2)
    with pytest.raises(t2t.InputError, match="has LoRA already"):
        enable_lora(model, 2)
    with pytest.raises(t2t.InputError, match="has no Linear"):
        enable_lora(keras.Sequential([keras.layers.Dense(2)]), 2)
    compiled = t2t.Transformer(CONFIG)
    compiled.compile("adam", t2t.LabelSmoothedCrossEntropy())
    enable_lora(compiled, 2)
    with pytest.raises(ValueError, match=r"call `compile\(\)`"):
        compiled.fit(INPUTS, LABELS, verbose=0)


def test_training_with_lora_goes_on_from_saved_weights(tmp_path):
    def fit(model, epochs):
        model.compile(keras.optimizers.SGD(0.5), t2t.LabelSmoothedCrossEntropy(0.1))
        return model.fit(INPUTS, LABELS, epochs=epochs, batch_size=2, verbose=0).history["loss"]

    model = with_lora()
    expected = fit(with_lora(), 4)
    fit(model, 2)
    model.save_weights(tmp_path / "saved.weights.h5")
    resumed = with_lora(seed=1)
    resumed.load_weights(tmp_path / "saved.weights.h5")
    np.testing.assert_allclose(fit(resumed, 2), expected[2:], rtol=1e-5)


def test_a_loaded_linear_has_its_alpha(tmp_path):
    x = keras.Input([8])
    model = keras.Model(x, Linear(4)(x))
    enable_lora(model, 2, lora_alpha=6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.layers[-1].lora_rank, loaded.layers[-1].lora_alpha) == (2, 6)


def test_weights_of_another_rank_or_without_lora_become_the_kernel(tmp_path):
    other, plain = with_lora(), t2t.Transformer(CONFIG)
    other.save_weights(tmp_path / "other.weights.h5")
    keras.utils.set_random_seed(2)
    model = t2t.Transformer(CONFIG)
    enable_lora(model, 2)
    for tuned in (model, plain):
        tuned.load_weights(tmp_path / "other.weights.h5")
        np.testing.assert_allclose(tuned(INPUTS), other(INPUTS), rtol=1e-4, atol=1e-5)
    pairs = [layer for layer in keras_compat.all_layers(model) if isinstance(layer, Linear)]
    for layer in pairs:  # A is as it was, so that B can learn
        assert np.any(layer.lora_kernel_a) and not np.any(layer.lora_kernel_b)
