"""Ensembles: the mean of what their members predict, in calls, searches and exports."""

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.models.lora import enable_lora
from t2t_keras.ops import products
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.shortlist import ShortlistTranslator
from tests.serving.session import loaded_export
from tests.tasks import tiny
from tests.tasks.tiny import classifier, shortlist

LIMITS = {"max_extra_tokens": 8, "max_source_length": 40}
TEXTS = ["The dog sees a man.", "A train.", "", "She does not know the small old dog, she sees."]


@pytest.fixture(scope="module")
def members():
    return [tiny.model(1), tiny.model(2, num_decoder_layers=2), tiny.model(3, model_dim=24)]


def ensemble(members, **options):
    return t2t.Translator(t2t.Ensemble(members, **options), tiny.tokenizer(), **LIMITS)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


@pytest.mark.parametrize("mean", ["probabilities", "log_probabilities"])
def test_an_ensemble_predicts_the_mean_of_its_members(members, mean):
    sources, targets = tf.constant([[5, 6, 1], [9, 1, 0]]), tf.constant([[3, 8], [3, 290]])
    inputs = {"source_ids": sources, "target_ids": targets}
    each = [log_softmax(member(inputs)) for member in members]
    if mean == "probabilities":
        expected = np.log(np.mean(np.exp(each), axis=0))
    else:
        expected = log_softmax(np.mean(each, axis=0))
    model = t2t.Ensemble(members, mean=mean)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-4, atol=1e-5)
    found, weights = model(inputs, return_attention_weights=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert weights.cross.shape == (2, 1, 2, 2, 3)


def test_the_score_of_a_search_is_that_of_the_call(members, monkeypatch):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", 1)
    translator = ensemble(members)
    best = translator.n_best(TEXTS, 1)
    scores = translator.score(TEXTS, [translation.text for [translation] in best])
    penalty = ((5 + scores.lengths.numpy()) / 6) ** 0.6
    found = np.array([translation.score for [translation] in best]) * penalty
    is_usual = [  # a search may find another segmentation, or no end within the limit
        translator.targets.encode([t.text]).ids.shape[1] <= 8 + 3 for [t] in best
    ]
    assert np.isclose(found, scores.log_probabilities, rtol=1e-3)[is_usual].sum() >= 2


def test_lora_is_merged_into_copies_of_the_members():
    tuned = tiny.model(4)
    enable_lora(tuned, rank=2)
    for weight in tuned.weights:
        if "lora" in weight.path:
            weight.assign(tf.random.stateless_normal(weight.shape, [1, 2]))
    inputs = {"source_ids": tf.constant([[5, 6, 1]]), "target_ids": tf.constant([[3, 8]])}
    expected = np.log(np.mean(np.exp([log_softmax(m(inputs)) for m in (tuned, tiny.model(1))]), 0))
    model = t2t.Ensemble([tuned, tiny.model(1)])
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-3, atol=1e-4)
    assert not any("lora" in weight.path for weight in model.weights)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_export_has_the_weights_of_all_members(members, precision, tmp_path):
    translator = ensemble(members[:2])
    names = "serving_default", "score"
    loaded = loaded_export(translator, tmp_path / "1", *names, precision=precision)
    signatures = loaded.signatures
    found = signatures["serving_default"](text=tf.constant(TEXTS))
    if precision == "float32":
        assert [text.decode() for text in found["translation"].numpy()] == translator(TEXTS)
    scores = signatures["score"](text=tf.constant(TEXTS), translation=tf.constant(TEXTS))
    live = translator.score(TEXTS, TEXTS).log_probabilities
    tolerance = {"float32": 1e-4, "int8": 0.2}[precision]
    np.testing.assert_allclose(scores["log_probability"], live, rtol=tolerance, atol=tolerance)


def test_models_that_do_not_fit_together_are_refused(members):
    other = t2t.Transformer(t2t.TransformerConfig.tiny(vocab_size=400, num_encoder_layers=1))
    half = t2t.Transformer(members[0].config, dtype="mixed_bfloat16")
    for given, message in (
        ([], "has no members: give a list"),
        (members[0], "members is a Transformer: give a list of models"),
        ([members[0], other], "member 2 of the ensemble has vocab_size 400 and member 1 has 330"),
        ([members[0], half], "member 2 of the ensemble has dtype mixed_bfloat16"),
        ([classifier().model], "member 1 of the ensemble is a TransformerClassifier: give Transf"),
    ):
        with pytest.raises(InputError, match=message):
            t2t.Ensemble(given)
    with pytest.raises(InputError, match="mean is 'median': give probabilities or log_prob"):
        t2t.Ensemble(members, mean="median")


def test_what_an_ensemble_does_not_have_is_refused(members, tmp_path):
    translator = ensemble(members)
    with pytest.raises(InputError, match="Translator of a Ensemble can't be saved"):
        translator.save(tmp_path / "saved")
    with pytest.raises(InputError, match="CTranslate2 has no Ensemble: give a translator of one"):
        export_ctranslate2(translator, tmp_path / "engine")
    with pytest.raises(InputError, match="not for a Translator of a Ensemble: leave it out"):
        ShortlistTranslator(translator, shortlist())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mean", ["probabilities", "log_probabilities"])
def test_a_step_of_an_ensemble_predicts_and_attends_as_its_call_does(members, mean):
    """So that spans of `n_best_tokens` are those of `align`."""
    model = t2t.Ensemble(members, mean=mean)
    sources, targets = tf.constant([[5, 6, 9, 1]]), tf.constant([[3, 8, 290]])
    inputs = {"source_ids": sources, "target_ids": targets}
    expected, weights = model(inputs, return_attention_weights=True)
    cross = weights.cross[:, -1]  # [1, heads, 3, source]
    state = model.initial_state(model.encode(sources), beams=1)
    for position in range(3):
        ids = targets[:, position : position + 1]
        found, state, weights = model.step(ids, state, return_attention_weights=True)
        np.testing.assert_allclose(found[:, 0], expected[:, position], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(weights[:, :, 0], cross[:, :, position], rtol=1e-4, atol=1e-6)
