"""Paths of weights and layers say where they stand in the model; policies are chosen by them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t

SIZES = {"model_dim": 8, "feed_forward_dim": 12, "num_heads": 2}
CONFIG = t2t.TransformerConfig(30, 2, 1, **SIZES)
OTHER = t2t.TransformerConfig(
    30,
    1,
    2,
    norm="pre",
    attention_score="additive",
    position_embedding="learned",
    fused_qkv=False,
    **SIZES,
)


def paths(model):
    return [weight.path for weight in model.weights]


@pytest.mark.parametrize("config", [CONFIG, OTHER])
def test_the_path_of_a_weight_is_its_place_in_every_model(config):
    first, second = (paths(t2t.Transformer(config)) for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)
    expected = {
        "embedding/matrix",
        "encoder/layer_1/attention/qkv_projection/kernel",
        "encoder/layer_1/attention_residual/norm/gamma",
        "decoder/layer_0/cross_attention/output_projection/kernel",
        "decoder/layer_0/feed_forward/inner/bias",
    }
    assert config is OTHER or expected <= set(first)


def test_a_stack_gives_its_own_dtype_whatever_the_global_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = t2t.Transformer(CONFIG, dtype="float32")
    finally:
        keras.config.set_dtype_policy(before)
    x = tf.ones([1, 3, CONFIG.model_dim])
    assert model.encoder(x).dtype == model.decoder(x, x).dtype == tf.float32
    assert t2t.Transformer(CONFIG, dtype="mixed_bfloat16").encoder(x).dtype == tf.bfloat16


@pytest.mark.parametrize("config", [CONFIG, OTHER])
def test_a_policy_for_paths_holds_for_all_layers_below(config):
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["encoder.*"] = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    model = t2t.Transformer(config, dtype=policies)
    for side, dtype in ((model.encoder, "bfloat16"), (model.decoder, "float32")):
        assert {layer.compute_dtype for layer in side._flatten_layers()} == {dtype}
    ids = np.array([[5, 6, 7]])
    inputs = {"source_ids": ids, "target_ids": ids}
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = tf.reduce_sum(logits**2)
    assert all(gradient is not None for gradient in tape.gradient(loss, model.trainable_weights))
    plain = t2t.Transformer(config)
    plain.set_weights(model.get_weights())
    logits = model(inputs)
    assert logits.dtype == "float32"
    np.testing.assert_allclose(logits, plain(inputs), atol=0.1)
    assert not np.allclose(logits, plain(inputs), atol=1e-5)  # the encoder rounds
