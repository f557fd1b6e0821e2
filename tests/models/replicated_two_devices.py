"""A Transformer on one device and on two; `test_processes.py` runs this."""

import keras
import numpy as np
import pytest
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import t2t_keras as t2t  # noqa: E402
from t2t_keras.errors import InputError  # noqa: E402
from t2t_keras.models.trainable_model import TrainableModel  # noqa: E402

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


def fitted(kind, micro_batches=1, penalty=0.0, together=1):
    keras.utils.set_random_seed(0)
    model = kind(CONFIG)
    for variable in model.trainable_variables if penalty else ():
        variable.regularizer = keras.regularizers.L2(penalty)
    model.micro_batches = micro_batches
    model.compile(
        t2t.adam(16, warmup_steps=10),
        t2t.LabelSmoothedCrossEntropy(),
        metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        steps_per_execution=together,
    )
    history = model.fit(dataset(), steps_per_epoch=3, verbose=0).history
    return model, history


@pytest.fixture(scope="module")
def one():
    return fitted(t2t.Transformer, penalty=0.1)


@pytest.mark.parametrize(
    ("kind", "micro_batches", "together"),
    [(t2t.Transformer, 2, 2), pytest.param(PlainRoute, 2, 1, marks=pytest.mark.slow)],
)
def test_two_devices_train_a_transformer_as_one_does(kind, micro_batches, together, one):
    one, expected = one
    with TWO.scope():
        two, history = fitted(kind, micro_batches, penalty=0.1, together=together)
    assert one.fuses_loss
    assert two.fuses_loss == (kind is t2t.Transformer)
    for a, b in zip(one.trainable_variables, two.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert history.keys() == expected.keys() == {"loss", "accuracy", "perplexity"}
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)


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


def assert_same(first, second):
    (one, of_one, _), (two, of_two, _) = first, second
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    evaluated = [m.evaluate(small_dataset(), verbose=0, return_dict=True) for m in (one, two)]
    for a, b in [(of_one, of_two), evaluated]:
        assert a.keys() == b.keys() == {"loss", "accuracy"}
        for name, values in a.items():
            np.testing.assert_allclose(b[name], values, rtol=1e-5)


def loss_of(reduction, **options):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction, **options
    )


def loss_of_elements(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


@pytest.mark.parametrize(
    ("loss", "micro_batches"),
    [
        (loss_of("mean_with_sample_weight"), 2),
        pytest.param(loss_of("sum"), 1, marks=pytest.mark.slow),
        pytest.param(loss_of_elements, 2, marks=pytest.mark.slow),
        pytest.param(loss_of("mean", ignore_class=7), 1, marks=pytest.mark.slow),
    ],
)
def test_a_loss_of_keras_is_that_of_the_global_batch(loss, micro_batches):
    one = small_fit(tf.distribute.get_strategy(), loss)
    assert_same(one, small_fit(TWO, loss, micro_batches=micro_batches))


def loss_of_a_batch(labels, logits):
    return tf.reduce_mean(loss_of_elements(labels, logits))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (loss_of("none"), "or none, which several devices"),
        (loss_of_a_batch, "one number for a batch"),
    ],
)
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
    one = small_fit(tf.distribute.get_strategy(), loss, Penalized)
    assert_same(one, small_fit(TWO, loss, Penalized))


def test_several_steps_together_are_the_steps_one_by_one():
    one = small_fit(tf.distribute.get_strategy(), loss_of("sum_over_batch_size"), epochs=2)
    two = small_fit(TWO, loss_of("sum_over_batch_size"), epochs=2, steps_per_execution=2)
    assert_same(one, two)
    assert two[2] == [1, 3, 5] * 2
    ids = np.arange(1, 19).reshape(9, 2)
    predictions = [model.predict(ids, batch_size=2, verbose=0) for model, *_ in (one, two)]
    np.testing.assert_allclose(*predictions, atol=1e-5)


class WithoutLoop(SmallModel):
    """A model whose steps Keras puts together."""

    _make_function = keras.Model._make_function


@pytest.mark.slow  # fails on the day that the loop can go
def test_keras_cannot_make_several_steps_together():
    with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value for placeholder"):
        small_fit(TWO, loss_of("sum"), WithoutLoop, steps_per_execution=2)


# What Keras cannot ------------------------------------------------------------------------------


@pytest.mark.slow  # fails on the day that the repair can go
def test_keras_cannot_add_the_replicas_batches():
    with (
        TWO.scope(),
        pytest.raises(tf.errors.InvalidArgumentError, match="must have the same size"),
    ):
        fitted(WithoutRepair)
