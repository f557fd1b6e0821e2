"""The steps that hold matrices in another order are the plain one."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import Transformer, TransformerConfig
from t2t_keras.models import transformer


def test_its_logits_and_states_are_those_of_the_plain_step():
    model = Transformer(TransformerConfig.tiny(vocab_size=50))
    state = model.initial_state(model.encode(tf.constant([[5, 6, 1], [7, 1, 0]])), 3)
    ids, prepared, states = tf.fill([2, 3], 4), model.make_step(), [state, state]
    for _ in range(3):
        logits, states[0] = model.step(ids, states[0])
        same, states[1] = prepared(ids, states[1])
        assert same.shape == (2, 3, 50) and same.dtype == tf.float32
        np.testing.assert_allclose(same, logits, atol=1e-5)
        ids = tf.argmax(logits, axis=2, output_type=tf.int32)
    np.testing.assert_array_equal(states[0].ancestry, states[1].ancestry)


def test_in_bfloat16_it_multiplies_in_bfloat16():
    model = Transformer(TransformerConfig.tiny(vocab_size=50), dtype="bfloat16")
    state = model.initial_state(model.encode(tf.constant([[5, 6, 1]])), 1)
    logits, _ = model.step(tf.constant([[4]]), state)
    same, _ = model.make_step()(tf.constant([[4]]), state)
    np.testing.assert_allclose(same, logits, atol=0.02)
    np.testing.assert_array_equal(tf.cast(tf.cast(same, "bfloat16"), "float32"), same)


_VARIATIONS = [
    {},
    {"fused_qkv": False, "key_dim": 10, "value_dim": 6, "feed_forward": "convolution"},
    {"attention_score": "additive", "norm": "pre"},
]


@pytest.mark.parametrize("fields", _VARIATIONS, ids=["plain", "separate", "additive"])
def test_with_matrices_in_blocks_it_is_the_same_function(fields):
    model = Transformer(TransformerConfig.tiny(vocab_size=50, **fields))
    state = model.initial_state(model.encode(tf.constant([[5, 6, 1], [7, 1, 0]])), 3)
    ids, prepared, states = tf.fill([2, 3], 4), model.make_step(few_rows=True), [state, state]
    for _ in range(3):
        logits, states[0] = model.step(ids, states[0])
        same, states[1] = prepared(ids, states[1])
        np.testing.assert_allclose(same, logits, atol=1e-5)
        ids = tf.argmax(logits, axis=2, output_type=tf.int32)


def test_the_decoder_multiplies_with_the_blocks_alone():
    model = Transformer(TransformerConfig.tiny(vocab_size=50))
    state = model.initial_state(model.encode(tf.constant([[5, 6, 1]])), 2)
    ids = tf.fill([1, 2], 4)
    logits, _ = model.step(ids, state)
    prepared = model.make_step(few_rows=True)
    for matrix in model.decoder.matrices:
        matrix.assign(tf.zeros_like(matrix))
    same, _ = prepared(ids, state)
    np.testing.assert_allclose(same, logits, atol=1e-5)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 32), ("bfloat16", 128)])
def test_blocks_are_for_few_rows_and_large_decoders_on_a_cpu(monkeypatch, dtype, most):
    model = Transformer(TransformerConfig.tiny(vocab_size=50), dtype=dtype)
    asked = []
    monkeypatch.setattr(
        model, "make_step", lambda few_rows=False: asked.append(few_rows) or (lambda: few_rows)
    )

    def chosen(rows):
        return bool(model.for_rows(tf.constant(rows), lambda step: tf.constant(step())))

    assert not chosen(1)
    assert asked == [False]
    monkeypatch.setattr(transformer, "_LARGE", 1)
    assert chosen(1) and chosen(most) and not chosen(most + 1)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert not chosen(1)
