"""Keras has no public way to what `keras_compat` does for the training step."""

import os
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import keras_compat
from t2t_keras.errors import require_backend


@pytest.mark.parametrize(
    "name", ["loss_tracker", "compile_loss", "call_has_training_arg", "flatten_layers", "kernel"]
)
def test_keras_has_no_public_name(name):
    model = t2t.Transformer(t2t.TransformerConfig.tiny(vocab_size=9))
    model.compile("sgd", t2t.LabelSmoothedCrossEntropy())
    linear = model.decoder.layers[0].feed_forward.inner
    linear.enable_lora(2)  # whose public `kernel` is a sum
    assert not hasattr(model, name) and not isinstance(linear.kernel, keras.Variable)
    assert hasattr(model, f"_{name}") or hasattr(linear, f"_{name}")


def test_another_backend_of_keras_is_refused_before_its_package_is_imported():
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", "import t2t_keras"]
    process = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert process.stderr.splitlines()[-1] == (
        "ImportError: Keras's backend is jax, but t2t_keras needs tensorflow: set the environment "
        "variable KERAS_BACKEND=tensorflow."
    )
    with pytest.raises(ImportError, match="backend is torch"):  # of ~/.keras/keras.json
        require_backend("torch")


def test_keras_saves_no_signature_of_a_built_model(tmp_path):
    class Plain(t2t.Transformer):
        _default_save_signature = keras.Model._default_save_signature

    config = t2t.TransformerConfig.tiny(9, num_encoder_layers=1, num_decoder_layers=1)
    ids = {name: tf.constant([[5, 6, 1]]) for name in ("source_ids", "target_ids")}
    signatures = {}
    for model in (Plain(config), t2t.Transformer(config), t2t.Ensemble([t2t.Transformer(config)])):
        path = str(tmp_path / type(model).__name__)
        tf.saved_model.save(model, path)
        loaded = tf.saved_model.load(path)  # it owns the variables
        signatures[type(model).__name__] = list(loaded.signatures)
        for signature in loaded.signatures.values():
            [found] = signature(**ids).values()
            tf.debugging.assert_near(found, model(ids), 1e-4, 1e-4)
    one = ["serving_default"]
    assert signatures == {"Plain": [], "Transformer": one, "Ensemble": one}


def test_keras_passes_training_to_any_compute_loss():
    """`Model.compute_loss` of Keras takes `training`; older subclasses do not."""

    class Older(t2t.Transformer):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return super().compute_loss(x, y, y_pred, sample_weight)

    model = Older(t2t.TransformerConfig.tiny(vocab_size=9))
    with pytest.raises(TypeError, match="training"):
        model.compute_loss(training=True)


def test_keras_leaves_lists_out_of_tensorflow_checkpoints(tmp_path):
    class Listed(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.parts = [keras.layers.Dense(2), keras.layers.Dense(2)]
            for part in self.parts:
                part.build((None, 3))

    def saved(layer):
        path = tf.train.Checkpoint(layer=layer).save(tmp_path / "ckpt")
        return {name.split("/")[1] for name, _ in tf.train.list_variables(path) if "/" in name}

    layer = Listed()
    assert not saved(layer) & {"part_0", "part_1"}
    keras_compat.track(layer, "part", layer.parts)
    assert saved(layer) >= {"part_0", "part_1"}
