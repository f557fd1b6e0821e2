"""Keras has no public way to what `keras_compat` does for the training step."""

import keras
import pytest

import t2t_keras as t2t


@pytest.mark.parametrize(
    "name", ["loss_tracker", "call_has_training_arg", "flatten_layers", "all_layers_built"]
)
def test_keras_has_no_public_name(name):
    model = t2t.Transformer(t2t.TransformerConfig.tiny(vocab_size=9))
    model.compile("sgd", t2t.LabelSmoothedCrossEntropy())
    assert not hasattr(model, name)
    assert hasattr(keras.Model(), f"_{name}") or name == "all_layers_built"


def test_keras_passes_training_to_any_compute_loss():
    """`Model.compute_loss` of Keras takes `training`; older subclasses do not."""

    class Older(t2t.Transformer):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return super().compute_loss(x, y, y_pred, sample_weight)

    model = Older(t2t.TransformerConfig.tiny(vocab_size=9))
    with pytest.raises(TypeError, match="training"):
        model.compute_loss(training=True)
