"""Every variation is a complete model: it decodes, is saved, and keeps to its masks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import beam_search
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.checkpoints import model_variables
from tests.models.batches import inputs
from tests.models.numpy_model import randomized
from tests.models.variations import VARIATIONS

SOURCE = [[5, 6, 7, 1, 0, 0, 0], [5, 6, 7, 8, 9, 4, 1]]
TARGET = [[3, 8, 9, 10, 11, 12], [3, 4, 5, 6, 7, 8]]

every_variation = pytest.mark.parametrize("name", VARIATIONS)


def model_of(name, **kwargs):
    config = TransformerConfig(40, 2, 2, 16, 24, num_heads=2, **VARIATIONS[name])
    return randomized(Transformer(config, **kwargs))


@every_variation
def test_steps_inside_a_search_equal_the_call(name):
    model = model_of(name)
    no_padding = -1e9 * tf.one_hot(0, 40)  # as a token, id 0 would be masked in the call

    def step(ids, state):
        logits, state = model.step(ids, state)
        return logits + no_padding, state

    def search(source):
        return beam_search(
            step,
            model.initial_state(model.encode(source), beams=1),
            bos_ids=tf.constant([3, 3]),
            eos_id=1,
            beam_size=1,
            max_lengths=tf.constant([7, 7]),
            reorder=model.reorder,
        )

    search = tf.function(search) if name == "local_relative" else search
    found = search(tf.constant(SOURCE))
    ids = found.ids[:, 0].numpy()  # [batch, length]
    target = np.pad(ids, [[0, 0], [1, 0]], constant_values=3)[:, :-1]
    logits = (model(inputs(SOURCE, target)) + no_padding).numpy()
    real = np.arange(ids.shape[1]) < found.lengths.numpy()
    np.testing.assert_array_equal(ids[real], logits.argmax(-1)[real])
    log_probabilities = np.where(real, tf.nn.log_softmax(logits).numpy().max(-1), 0).sum(-1)
    np.testing.assert_allclose(found.log_probabilities[:, 0], log_probabilities, atol=1e-4)


PADDED = {
    "before": ([0, 0, 5, 6, 9, 1], [0, 0, 0, 3, 8, 4]),
    "between": ([5, 0, 6, 9, 0, 1], [3, 0, 8, 0, 0, 4]),
    "after": ([5, 6, 9, 1, 0, 0], [3, 8, 4, 0, 0, 0]),
}


@every_variation
def test_nothing_leaks_from_the_future_or_from_padding(name):
    model = model_of(name)
    before = model(inputs(SOURCE, TARGET)).numpy()
    for t in (1, 4):
        changed = np.array(TARGET)
        changed[:, t] = 20
        after = model(inputs(SOURCE, changed)).numpy()
        np.testing.assert_allclose(after[:, :t], before[:, :t], rtol=1e-5, atol=1e-6)
        assert np.any(after[:, t] != before[:, t])
    source, target = [5, 6, 9, 1], [3, 8, 4]
    logits = model(inputs([source], [target]))[0]
    state = model.initial_state(model.encode(tf.constant([source])), 1)
    step = model.step(tf.constant([[3]]), state)[0]
    graph = tf.function(model, autograph=False)  # all of one shape
    for place, rows in PADDED.items():
        if model.config.attention_window and place != "after":
            continue  # whose window is of positions in the row
        padded = [tf.constant([row]) for row in rows]
        matrix = model.embedding.matrix.numpy()  # padding has some embedding
        model.embedding.matrix.assign(np.concatenate([matrix[:1] + 9, matrix[1:]]))
        for call in (model, graph) if name == "learned_hard" else (model,):
            found = call(inputs(*padded))[..., 1:][padded[1] != 0]
            np.testing.assert_allclose(found, logits[..., 1:], rtol=1e-4, atol=1e-5)
        state = model.initial_state(model.encode(padded[0]), 1)
        found = model.step(tf.constant([[3]]), state)[0]
        np.testing.assert_allclose(found[..., 1:], step[..., 1:], rtol=1e-4, atol=1e-5)
        model.embedding.matrix.assign(matrix)


@pytest.mark.slow
@every_variation
def test_packed_pairs_equal_the_pairs_alone(name):
    model = model_of(name)
    packed = {
        "source_ids": [[5, 6, 1, 7, 8, 9, 4, 1, 0]],
        "source_segments": [[1, 1, 1, 2, 2, 2, 2, 2, 0]],
        "source_positions": [[0, 1, 2, 0, 1, 2, 3, 4, 0]],
        "target_ids": [[3, 4, 3, 10, 11, 12, 13, 0]],
        "target_segments": [[1, 1, 2, 2, 2, 2, 2, 0]],
        "target_positions": [[0, 1, 0, 1, 2, 3, 4, 0]],
    }
    together = model({key: tf.constant(value) for key, value in packed.items()})[0]
    first = model(inputs([[5, 6, 1]], [[3, 4]]))[0]
    second = model(inputs([[7, 8, 9, 4, 1]], [[3, 10, 11, 12, 13]]))[0]
    np.testing.assert_allclose(together[:2], first, atol=1e-5)
    np.testing.assert_allclose(together[2:7], second, atol=1e-5)


@every_variation
def test_attention_weights_are_those_of_the_variation(name):
    model = model_of(name)
    _, attention = model(inputs(SOURCE, TARGET), return_attention_weights=True)
    window = model.config.attention_window or 7
    for weights in attention:
        np.testing.assert_allclose(tf.reduce_sum(weights, -1), np.ones(weights.shape[:-1]), 1e-5)
        if model.config.attention_weights == "hard":
            assert set(np.unique(weights)) == {0.0, 1.0}
    assert np.all(np.count_nonzero(attention.encoder[1], axis=-1) <= window)
    assert np.all(np.count_nonzero(attention.decoder, axis=-1) <= window)
    assert np.all(np.triu(attention.decoder, 1) == 0)
    # The output of a layer is the mean of its values by these weights.
    layer = model.encoder.layers[0].attention
    x = tf.random.normal([1, 7, 16])
    found, weights = layer(x, return_attention_weights=True)
    weights = layer.full_weights(weights, 7)
    if model.config.position_embedding == "relative":
        return  # its result has vectors of the distances, too
    context = layer.merge_heads(tf.matmul(weights, layer.project(x)[1].value))
    np.testing.assert_allclose(found, layer.output_projection(context), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["additive_equal_forms", "local_relative", "pretrained", "combined"]
)
def test_keras_saving_and_mixed_precision(name, tmp_path):
    model, batch = model_of(name), inputs(SOURCE, TARGET)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(batch), again(batch))
    assert len(model_variables(model)) == len(model.variables)  # a checkpoint has them all
    mixed = model_of(name, dtype="mixed_bfloat16")
    mixed.set_weights(model.get_weights())
    logits = mixed(batch)
    assert logits.dtype == tf.float32
    assert mixed.encoder.layers[0].attention.attention.compute_dtype == "bfloat16"
    assert np.any(logits != model(batch))
    # The median: where two keys are nearly equal, rounding decides which one is taken.
    assert np.median(np.abs(logits - model(batch))) < 0.1
