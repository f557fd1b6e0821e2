"""The step that holds the softmax matrix turned round is the plain one."""

import numpy as np
import tensorflow as tf

from t2t_keras import Transformer, TransformerConfig


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
