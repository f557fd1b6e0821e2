"""Backends that are refused, and models that TensorFlow saves."""

import os

import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import require_backend
from tests.processes import run_python


@pytest.mark.parametrize(("variable", "value", "words"), [
    (
        "KERAS_BACKEND",
        "jax",
        "Keras's backend is jax, but t2t_keras needs tensorflow: set the environment variable "
        "KERAS_BACKEND=tensorflow.",
    ),
    (
        "TF_USE_LEGACY_KERAS",
        "1",
        "TF_USE_LEGACY_KERAS is 1, but tf_keras is not installed: unset the environment variable "
        "(t2t_keras needs Keras 3), or install tf_keras for your other code.",
    ),
])  # fmt: skip
def test_another_keras_is_refused_before_its_package_is_imported(variable, value, words):
    environment = os.environ | {variable: value}
    process = run_python("-c", "import t2t_keras", env=environment, code=1)
    assert process.stderr.splitlines()[-1] == f"ImportError: {words}"


def test_a_backend_of_kerass_own_file_is_refused():  # ~/.keras/keras.json
    with pytest.raises(ImportError, match="backend is torch"):
        require_backend("torch")


def test_a_model_that_tensorflow_saves_has_a_signature(tmp_path):
    config = t2t.TransformerConfig.tiny(9, num_encoder_layers=1, num_decoder_layers=1)
    ids = {name: tf.constant([[5, 6, 1]]) for name in ("source_ids", "target_ids")}
    model = t2t.Ensemble([t2t.Transformer(config)])
    tf.saved_model.save(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))  # it owns the variables
    [found] = loaded.signatures["serving_default"](**ids).values()
    tf.debugging.assert_near(found, model(ids), 1e-4, 1e-4)
