"""A Transformer on one device and on two; `test_processes.py` runs this."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.models.trainable_model import TrainableModel
from tests.models.batches import CONFIG, dataset
from tests.two_devices import ONE, TWO, assert_same


def fitted(micro_batches=1, together=1):
    keras.utils.set_random_seed(0)
    model = t2t.Transformer(CONFIG)
    for variable in model.trainable_variables:
        variable.regularizer = keras.regularizers.L2(0.1)
    model.micro_batches = micro_batches
    model.compile(
        t2t.adam(16, warmup_steps=10),
        t2t.LabelSmoothedCrossEntropy(),
        metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        steps_per_execution=together,
    )
    history = model.fit(dataset(((5, 4), (2, 7), (3, 5))), steps_per_epoch=3, verbose=0).history
    assert model.fuses_loss
    return model.trainable_variables, history


def test_two_devices_train_a_transformer_as_one_does():
    one = fitted()
    with TWO.scope():
        two = fitted(micro_batches=2, together=2)
    assert one[1].keys() == {"loss", "accuracy", "perplexity"}
    assert_same(one, two, 1e-5)


# A small model, whose losses are those of Keras -------------------------------------------------


class SmallModel(TrainableModel):
    """Ids to logits: embedding, whose gradient has a row for each id, and one layer."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(20, 6)
        self.outputs = keras.layers.Dense(20)
        self(tf.ones([1, 1], tf.int32))

    def call(self, ids):
        return self.outputs(self.embedding(ids))


def small_batches(rows=(5, 1, 3, 2, 4)):
    """Batches (ids, labels, weights) of two devices' unequal shares, down to no row."""
    rng = np.random.default_rng(0)
    for count, length in zip(rows, (3, 6, 4, 2, 5), strict=False):
        ids, labels = rng.integers(1, 20, (2, count, length))
        yield ids, labels, rng.uniform(size=labels.shape) * (labels > 6)


def small_dataset():
    ids = tf.TensorSpec([None, None], tf.int32)
    signature = ids, ids, tf.TensorSpec([None, None], tf.float32)
    return tf.data.Dataset.from_generator(small_batches, output_signature=signature)


def small_fit(strategy, loss, kind=SmallModel, epochs=1, **settings):
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = kind()
        model.micro_batches = settings.pop("micro_batches", 1)
        accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
        model.compile(keras.optimizers.SGD(0.5), loss, weighted_metrics=[accuracy], **settings)
    ends = []
    end = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))
    history = model.fit(small_dataset(), epochs=epochs, verbose=0, callbacks=[end]).history
    return model, history, ends


def assert_same_fit(*runs):
    results = []
    for model, history, _ in runs:
        evaluated = model.evaluate(small_dataset(), verbose=0, return_dict=True)
        assert history.keys() == evaluated.keys() == {"loss", "accuracy"}
        history |= {f"val_{name}": value for name, value in evaluated.items()}
        results.append((model.get_weights(), history))
    assert_same(*results)


def loss_of(reduction):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)


def loss_of_a_batch(labels, logits):
    return tf.reduce_mean(loss_of("none")(labels, logits))


def test_a_loss_of_keras_is_that_of_the_global_batch():
    loss = loss_of("mean_with_sample_weight")
    one = small_fit(ONE, loss)
    assert_same_fit(one, small_fit(TWO, loss, micro_batches=2))


@pytest.mark.parametrize(("loss", "message"), [
    (loss_of("none"), "by their tokens with several devices"),
    (loss_of_a_batch, "one number for a batch"),
])  # fmt: skip
def test_a_loss_that_two_devices_cannot_share_is_refused(loss, message):
    with pytest.raises(InputError, match=message):
        small_fit(TWO, loss)


class Penalized(SmallModel):
    """A model whose call adds a loss, of weights that get gradients of some rows as well."""

    def call(self, ids):
        logits = super().call(ids)
        self.add_loss(tf.reduce_sum(tf.square(tf.convert_to_tensor(self.embedding.embeddings))))
        return logits


def test_what_a_model_adds_to_the_loss_counts_once_on_several_devices():
    loss = t2t.LabelSmoothedCrossEntropy()
    one = small_fit(ONE, loss, Penalized)
    assert_same_fit(one, small_fit(TWO, loss, Penalized))


def test_a_model_of_keras_with_our_loss_and_a_penalty_trains_on_two_devices_as_on_one():
    ids, labels = np.random.default_rng(0).integers(1, 20, (2, 4, 5))
    labels[0, 1:] = 0  # the first device has fewer tokens
    found = []
    for strategy in (ONE, TWO):
        with strategy.scope():
            keras.utils.set_random_seed(0)
            inputs = keras.Input([None], dtype="int32")
            embedded = keras.layers.Embedding(20, 6, embeddings_regularizer="l2")(inputs)
            model = keras.Model(inputs, keras.layers.Dense(20)(embedded))
            model.compile(keras.optimizers.SGD(0.5), t2t.LabelSmoothedCrossEntropy())
        model.fit(ids, labels, batch_size=4, verbose=0)
        found.append([*model.get_weights(), model.evaluate(ids, ids, verbose=0)])
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def test_steps_together_are_the_steps_one_by_one():
    one = small_fit(ONE, loss_of("sum_over_batch_size"), epochs=2)
    two = small_fit(TWO, loss_of("sum_over_batch_size"), epochs=2, steps_per_execution=2)
    assert_same_fit(one, two)
    assert two[2] == [1, 3, 5] * 2
    ids = np.arange(1, 19).reshape(9, 2)
    predictions = [model.predict(ids, batch_size=2, verbose=0) for model, *_ in (one, two)]
    np.testing.assert_allclose(*predictions, atol=1e-5)
