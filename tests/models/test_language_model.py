"""The decoder alone: against section 3 in NumPy, in all variations, and as a Keras model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from tests.models import numpy_model
from tests.models.numpy_model import randomized
from tests.models.variations import VARIATIONS

SIZES = {"model_dim": 16, "feed_forward_dim": 24, "num_heads": 2, "num_decoder_layers": 2}
IDS = np.array([[3, 8, 9, 10, 11, 12], [3, 4, 5, 6, 7, 8]], "int32")
LABELS = np.array([[8, 9, 10, 11, 12, 1], [4, 5, 6, 7, 8, 1]], "int32")


def model_of(name="plain", **fields):
    config = t2t.TransformerConfig(40, **(SIZES | VARIATIONS.get(name, {}) | fields))
    return randomized(t2t.TransformerLM(config))


every_variation = pytest.mark.parametrize("name", VARIATIONS)


def test_the_model_is_the_left_out_encoder_of_section_3_in_numpy():
    model = model_of()
    x, causal = numpy_model.embed(model, IDS), np.tril(np.ones((6, 6), bool))
    all_weights = []
    for layer in model.decoder.layers:
        x, [weights] = numpy_model.run_layer(layer, model.config, x, causal)
        all_weights.append(weights)
    expected = x @ model.embedding.matrix.numpy().astype("float64").T
    logits, weights = model({"target_ids": IDS}, return_attention_weights=True)
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    np.testing.assert_allclose(weights, np.stack(all_weights, axis=1), atol=1e-5)
    hidden = model({"target_ids": IDS}, return_hidden=True)
    np.testing.assert_allclose(hidden @ tf.transpose(model.output_matrix), expected, atol=2e-4)


@every_variation
def test_no_later_token_and_no_padding_changes_a_logit(name):
    model = model_of(name)
    logits = model({"target_ids": IDS})
    changed = IDS.copy()
    changed[:, 4:] = [[20, 21], [0, 0]]
    np.testing.assert_allclose(
        model({"target_ids": changed})[:, :4], logits[:, :4], rtol=1e-4, atol=1e-5
    )
    alone = model({"target_ids": IDS[:1]})  # nor another row of the batch
    np.testing.assert_allclose(alone, logits[:1], rtol=1e-4, atol=1e-5)


@every_variation
def test_steps_equal_the_whole(name):
    """Of two beams, which continue from others after three tokens."""
    model, parents = model_of(name), np.array([[1, 1], [1, 0]], "int32")
    before = np.random.default_rng(0).integers(4, 40, [2, 2, 6], "int32")
    after = np.concatenate([before[[[0], [1]], parents, :3], before[..., 3:]], axis=2)
    expected = [model({"target_ids": texts.reshape(4, 6)}) for texts in (before, after)]
    state, step = model.initial_state(2, beams=2), tf.function(model.step, reduce_retracing=True)
    for t in range(6):
        if t == 3:
            state = model.reorder(state, tf.constant(parents))
        logits, state = step(tf.constant(before[..., t]), state)
        found, whole = tf.reshape(logits, [4, -1]), expected[t >= 3][:, t]
        np.testing.assert_allclose(found, whole, rtol=1e-3, atol=1e-4)


@every_variation
def test_packed_texts_equal_the_texts_alone(name):
    model = model_of(name)
    if model.config.feed_forward == "convolution":
        pytest.skip("a convolution reads its neighbors, also of other texts")
    texts = [[3, 8, 9, 10], [3, 4, 5]]
    packed = {
        "target_ids": np.array([[*texts[0], *texts[1], 0]], "int32"),
        "target_segments": np.array([[1, 1, 1, 1, 2, 2, 2, 0]], "int32"),
        "target_positions": np.array([[0, 1, 2, 3, 0, 1, 2, 0]], "int32"),
    }
    found, start = model(packed), 0
    for text in texts:
        alone = model({"target_ids": np.array([text], "int32")})
        rows = found[:, start : start + len(text)]
        np.testing.assert_allclose(rows, alone, rtol=1e-4, atol=1e-5)
        start += len(text)


def test_fit_learns_and_what_is_saved_comes_back(tmp_path):
    keras.utils.set_random_seed(1)
    model = t2t.TransformerLM(t2t.TransformerConfig(40, dropout=0.0, **SIZES))
    model.compile(
        t2t.adam(16, warmup_steps=10, scale=0.5),
        t2t.LabelSmoothedCrossEntropy(0.0),
        metrics=[t2t.Perplexity(), t2t.TokenAccuracy()],
    )
    before = model.evaluate({"target_ids": IDS}, LABELS, return_dict=True, verbose=0)
    assert before["loss"] == pytest.approx(np.log(before["perplexity"]), rel=1e-5)
    model.fit({"target_ids": IDS}, LABELS, epochs=60, verbose=0)
    after = model.evaluate({"target_ids": IDS}, LABELS, return_dict=True, verbose=0)
    assert after["accuracy"] >= 11 / 12  # the first word of the two texts differs
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded({"target_ids": IDS}), model({"target_ids": IDS}))
    t2t.models.enable_lora(loaded, 2)
    assert t2t.models.merge_lora(loaded).count_params() == model.count_params()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (IDS, "give a dict of target_ids"),
        ({"source_ids": IDS}, "give a dict of target_ids"),
        ({"source_ids": IDS, "target_ids": IDS}, "source_ids, which a language model does not"),
        ({"target_ids": IDS + 40}, "the vocabulary has 40 ids"),
        ({"target_ids": IDS[:, :0]}, "at least its end or start id"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        model_of()(inputs)
