"""A translator that is fine-tuned by LoRA: saved and exported, its weights are merged."""

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.models import enable_lora
from t2t_keras.ops import products
from tests.tasks import tiny

pytestmark = pytest.mark.slow


def tune(model):
    """Gives A and B values, as training does."""
    enable_lora(model, 2)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(0, 0.7, weight.shape))


@pytest.fixture(scope="module")
def answers():
    """A tuned translator that has translated before, and what it translates now."""
    translator = tiny.translator()
    before = translator.n_best(tiny.LINES)
    tune(translator.model)
    after = translator.n_best(tiny.LINES)
    assert all(abs(a.score - b.score) > 0.1 for [a, *_], [b, *_] in zip(before, after, strict=True))
    return translator, after


def test_a_saved_translator_loads_without_lora_and_answers_alike(answers, tmp_path):
    translator, after = answers
    translator.save(tmp_path / "tuned")
    loaded = t2t.load(tmp_path / "tuned")
    assert len(loaded.model.weights) == len(tiny.model().weights)
    for row, other in zip(loaded.n_best(tiny.LINES), after, strict=True):
        assert [t.text for t in row] == [t.text for t in other]
        np.testing.assert_allclose([t.score for t in row], [t.score for t in other], rtol=1e-3)
    assert len(translator.model.trainable_weights) == 2 * (4 + 7)  # it can train on


@pytest.mark.slow
def test_an_export_has_merged_weights(answers, monkeypatch, tmp_path):
    translator, after = answers
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", 1)
    with ops.made_for("cpu"):
        t2t.export_saved_model(translator, tmp_path / "1", signatures=["n_best"], verify=False)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    found = loaded.signatures["n_best"](text=tf.constant(tiny.LINES))
    expected = [[t.text.encode() for t in row] for row in after]
    np.testing.assert_array_equal(found["translations"], expected)
    names = {tensor.name for tensor in loaded.weights if isinstance(tensor, tf.Variable)}
    assert names and not [name for name in names if "lora" in name]
