"""A Transformer on one device and on two; `test_replicated.py` runs this in its own process."""

import keras
import numpy as np
import pytest
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import t2t_keras as t2t  # noqa: E402

CONFIG = t2t.TransformerConfig(
    40, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2, dropout=0.0
)
TWO = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


class PlainRoute(t2t.Transformer):
    """A model whose loss gets logits, because it defines `call`."""

    def call(self, inputs, training=None):
        return super().call(inputs, training=training)


class WithoutRepair(t2t.Transformer):
    """A model whose shapes Keras learns from the replicas' batches."""

    _maybe_symbolic_build = keras.Model._maybe_symbolic_build


def dataset():
    """Batches of 5, 2 and 3 rows, whose lengths vary: no two replicas get the same."""

    def batches():
        rng = np.random.default_rng(0)
        for rows, length in ((5, 4), (2, 7), (3, 5)):
            source, labels = rng.integers(4, 40, (2, rows, length))
            labels[1:, 2:] = 0
            target = np.pad(labels, [[0, 0], [1, 0]], constant_values=3)[:, :-1]
            yield {"source_ids": source, "target_ids": target}, labels, np.sign(labels)

    ids = tf.TensorSpec([None, None], tf.int32)
    weights = tf.TensorSpec([None, None], tf.float32)
    signature = ({"source_ids": ids, "target_ids": ids}, ids, weights)
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def fitted(kind, micro_batches=1, penalty=0.0):
    keras.utils.set_random_seed(0)
    model = kind(CONFIG)
    for variable in model.trainable_variables if penalty else ():
        variable.regularizer = keras.regularizers.L2(penalty)
    model.micro_batches = micro_batches
    model.compile(
        t2t.adam(16, warmup_steps=10),
        t2t.LabelSmoothedCrossEntropy(),
        metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
    )
    history = model.fit(dataset(), steps_per_epoch=3, verbose=0).history
    return model, history


@pytest.fixture(scope="module")
def one():
    return fitted(t2t.Transformer, penalty=0.1)


@pytest.mark.parametrize(
    ("kind", "micro_batches"),
    [
        pytest.param(t2t.Transformer, 1, marks=pytest.mark.slow),
        (t2t.Transformer, 2),
        pytest.param(PlainRoute, 2, marks=pytest.mark.slow),
    ],
)
def test_two_devices_train_a_transformer_as_one_does(kind, micro_batches, one):
    one, expected = one
    with TWO.scope():
        two, history = fitted(kind, micro_batches, penalty=0.1)
    assert one.fuses_loss
    assert two.fuses_loss == (kind is t2t.Transformer)
    for a, b in zip(one.trainable_variables, two.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert history.keys() == expected.keys() == {"loss", "accuracy", "perplexity"}
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)


def test_keras_cannot_add_the_replicas_batches():
    with (
        TWO.scope(),
        pytest.raises(tf.errors.InvalidArgumentError, match="must have the same size"),
    ):
        fitted(WithoutRepair)
