"""A loss of two passes gets them in training, in parts of a batch too, and one in evaluation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.training.r_drop import RDrop
from tests.models.test_micro_batches import CONFIG, batch, dataset


class Alternating(t2t.Transformer):
    """In training every other pass has logits twice as large, in place of dropout's chance."""

    passes = 0

    def call(self, inputs, training=None):
        logits = super().call(inputs, training)
        if not training:
            return logits
        self.passes += 1
        return logits * (1 + self.passes % 2)


def compiled(kind, loss, rate=0.5, micro_batches=1, config=CONFIG):
    keras.utils.set_random_seed(0)
    model = kind(config)
    model.micro_batches = micro_batches
    model.compile(keras.optimizers.SGD(rate), loss)
    return model


def test_training_compares_two_passes_and_evaluation_makes_one():
    inputs, labels, weights = batch(6, 5, 0)
    data = tf.data.Dataset.from_tensors((inputs, labels, weights))
    loss = RDrop(3.0, 0.1)
    model = compiled(Alternating, loss, rate=0.0)
    logits = model(inputs)
    two = loss.of_two_passes(labels, 2 * logits, logits, weights)
    history = model.fit(data, verbose=0).history
    assert history["loss"] == [pytest.approx(float(two), rel=1e-5)]
    one = t2t.LabelSmoothedCrossEntropy(0.1)(labels, logits, weights)
    assert float(two) > float(one) + 0.01
    assert model.evaluate(data, verbose=0) == pytest.approx(float(one), rel=1e-5)


def test_parts_make_the_same_steps_as_the_whole():
    models = [compiled(Alternating, RDrop(3.0), micro_batches=parts) for parts in (1, 3)]
    losses = [
        model.fit(dataset(weighted=True), steps_per_epoch=3, verbose=0).history["loss"]
        for model in models
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for a, b in zip(*(model.trainable_variables for model in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_both_passes_teach():
    """With equal passes the steps are those of one; a second pass without gradient would halve."""
    models = [
        compiled(t2t.Transformer, loss) for loss in (RDrop(3.0), t2t.LabelSmoothedCrossEntropy())
    ]
    for model in models:
        model.fit(dataset(weighted=True), steps_per_epoch=3, verbose=0)
    for a, b in zip(*(model.trainable_variables for model in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_passes_have_their_own_masks_and_a_classifier_makes_them_too():
    config = t2t.TransformerConfig.tiny(40, model_dim=16, num_heads=2, dropout=0.5)
    model = t2t.TransformerClassifier(config, classes=3)
    model.compile(keras.optimizers.SGD(0.0), RDrop(100.0, 0.0))
    ids, labels = np.ones([64, 5], np.int32), np.ones([64], np.int32)
    weights = np.ones([64], np.float32)
    in_training = model.fit(ids, labels, sample_weight=weights, verbose=0, batch_size=64)
    assert in_training.history["loss"][0] > 1 + model.evaluate(
        ids, labels, sample_weight=weights, verbose=0, batch_size=64
    )
