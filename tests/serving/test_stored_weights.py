"""Tensors that an export computes from its weights at loading, and when it frees them."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.models.search_steps import step_products
from t2t_keras.ops import products
from t2t_keras.serving.stored_weights import DerivedWeights, stored_weights
from t2t_keras.tasks.translation import Translator
from tests.serving.session import loaded_export
from tests.tasks import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def forms_for_cpus():
    with ops.made_for("cpu"):
        yield


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_copies_for_steps_are_computed_at_loading(precision, monkeypatch, tmp_path):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", 1)
    translator = tiny.translator()
    names = "serving_default", "n_best"
    loaded = loaded_export(translator, tmp_path / "1", *names, precision=precision)
    few = loaded.signatures["n_best"](text=tf.constant(tiny.ODD))  # 6 · 4 rows
    many = loaded.signatures["n_best"](text=tf.constant(tiny.ODD * 2))
    np.testing.assert_array_equal(few["translations"], many["translations"][:6])
    np.testing.assert_allclose(few["scores"], many["scores"][:6], 1e-4)
    if precision == "float32":
        expected = [[t.text.encode() for t in row] for row in translator.n_best(tiny.ODD)]
        np.testing.assert_array_equal(few["translations"], expected)
    # One for each matrix of the decoder and one for the softmax, whatever the number of signatures,
    # beside those that bfloat16 widens.
    copies = [weight for weight in loaded.weights if not isinstance(weight, tf.Variable)]
    matrices = [weight for weight in translator.model.weights if len(weight.shape) > 1]
    widened = len(matrices) if precision == "bfloat16" else 0
    assert len(copies) == len(step_products(translator.model)["matrices"]) + 1 + widened


def test_models_that_share_derived_weights_keep_their_own(monkeypatch):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", 1)
    translators = [Translator(tiny.model(seed=seed), tiny.tokenizer()) for seed in (3, 4)]
    alone = [translator.n_best(tiny.LINES[:2], 1) for translator in translators]
    derived = DerivedWeights(stored_weights(translators[0].model, "float32"))
    for translator in translators:
        translator.precompute = derived.get
    both = tf.function(lambda texts: [t.translate(texts) for t in translators], autograph=False)
    for expected, found in zip(alone, both(tf.constant(tiny.LINES[:2])), strict=True):
        assert [[row[0].text.encode()] for row in expected] == found.texts.numpy().tolist()
        np.testing.assert_allclose([row[0].score for row in expected], found.scores[:, 0], 1e-5)
    assert alone[0] != alone[1]
