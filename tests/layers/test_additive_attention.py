"""Additive attention against Bahdanau's formula."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.variants import additive_attention
from t2t_keras.layers.variants.additive_attention import AdditiveAttention, additive_scores
from tests import reference

rng = np.random.default_rng(0)


def bahdanau(query, key, vector):
    """vᵀ tanh(q + k), one head and pair after the other."""
    scores = np.zeros((*query.shape[:-1], key.shape[-2]))
    for index in np.ndindex(*scores.shape):
        *leading, heads, i, j = index
        hidden = np.tanh(query[(*leading, heads, i)] + key[(*leading, heads, j)])
        scores[index] = vector[heads] @ hidden
    return scores


def tensors(leading=(2,), queries=5, keys=7):
    shapes = [(*leading, 3, queries, 4), (*leading, 3, keys, 4), (3, 4)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("leading", [(2, 2), ()])
def test_scores_are_those_of_bahdanau(leading):
    query, key, vector = tensors(leading)
    layer = AdditiveAttention()
    layer.build(query.shape)
    layer.vector.assign(vector)
    value, mask = rng.normal(size=(*key.shape[:-1], 6)), rng.random((5, 7)) > 0.3
    scores = bahdanau(query, key, vector)
    reference.assert_close(layer.score(query, key), scores)
    expected = reference.softmax(np.where(mask, scores, -np.inf))
    found, weights = layer(query, key, value.astype("float32"), mask)
    reference.assert_close(weights, expected)
    reference.assert_close(found, expected @ value)


@pytest.mark.parametrize("max_hidden", [1, 2 * 2 * 3 * 7 * 4, 10**6])
def test_gradients_do_not_depend_on_how_many_elements_are_held_at_a_time(max_hidden, monkeypatch):
    monkeypatch.setattr(additive_attention, "_MAX_HIDDEN", max_hidden)
    inputs = [tf.constant(tensor) for tensor in tensors()]
    upstream = tf.random.normal([2, 3, 5, 7])

    @tf.function
    def gradients(scores_of):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            scores = scores_of(*inputs)
        return scores, tape.gradient(scores, inputs, upstream)

    def formula(query, key, vector):
        hidden = tf.tanh(query[..., tf.newaxis, :] + key[..., tf.newaxis, :, :])
        return tf.einsum("bhqkd,hd->bhqk", hidden, vector)

    found = gradients(additive_scores)
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(gradients(formula)), strict=True):
        reference.assert_close(a, b)
