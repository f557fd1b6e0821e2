"""Padding changes nothing, wherever it stands in a row of either side."""

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t

SOURCE, TARGET = [5, 6, 9, 1], [3, 8, 4]
PADDED = {
    "before": ([0, 0, 5, 6, 9, 1], [0, 0, 0, 3, 8, 4]),
    "between": ([5, 0, 6, 9, 0, 1], [3, 0, 8, 0, 0, 4]),
    "after": ([5, 6, 9, 1, 0, 0], [3, 8, 4, 0, 0, 0]),
}


def model_of(**changes):
    sizes = {"model_dim": 16, "feed_forward_dim": 24, "num_heads": 2, "max_positions": 6}
    model = t2t.Transformer(t2t.TransformerConfig(20, 2, 2, **sizes, **changes))
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign_add(rng.normal(0, 0.2, weight.shape))
    return model


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("place", PADDED)
def test_padding_does_not_change_the_logits_of_tokens(place, positions):
    model = model_of(position_embedding=positions)
    expected = model({"source_ids": np.array([SOURCE]), "target_ids": np.array([TARGET])})
    source, target = (np.array([row]) for row in PADDED[place])
    found = model({"source_ids": source, "target_ids": target})
    np.testing.assert_allclose(found[target != 0], expected[0], atol=1e-5)
    compiled = tf.function(model, autograph=False)({"source_ids": source, "target_ids": target})
    np.testing.assert_allclose(compiled[target != 0], expected[0], atol=1e-5)


@pytest.mark.parametrize("place", PADDED)
def test_padding_does_not_change_what_a_search_reads(place):
    model, ids = model_of(), tf.constant([[3]])
    plain, padded = tf.constant([SOURCE]), tf.constant([PADDED[place][0]])
    expected, found = (
        model.step(ids, model.initial_state(model.encode(source), 1))[0]
        for source in (plain, padded)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("place", PADDED)
def test_padding_does_not_change_the_logits_of_a_class(place):
    config = t2t.TransformerConfig(20, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2)
    model = t2t.TransformerClassifier(config, classes=3)
    expected = model(np.array([SOURCE]))
    np.testing.assert_allclose(model(np.array([PADDED[place][0]])), expected, atol=1e-5)
