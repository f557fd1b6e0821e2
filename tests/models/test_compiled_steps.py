"""When XLA compiles training steps, and what happens where it cannot."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import logging as absl_logging

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.models import compiled_steps
from t2t_keras.models.trainable_model import TrainableModel


class OwnStep(t2t.Transformer):
    def train_step(self, data):
        return super().train_step(data)


@pytest.mark.parametrize(("device", "kind", "jit_compile", "run_eagerly", "compiled"), [
    ("cpu", t2t.Transformer, "auto", False, False),
    ("cpu", t2t.Transformer, True, False, True),
    ("gpu", t2t.Transformer, "auto", False, True),
    ("gpu", t2t.Transformer, "auto", True, False),
    ("gpu", t2t.Transformer, False, False, False),
    ("gpu", t2t.Transformer, None, False, False),
    ("gpu", OwnStep, "auto", False, False),
    ("gpu", OwnStep, True, False, True),
])  # fmt: skip
def test_xla_is_the_default_on_gpus(device, kind, jit_compile, run_eagerly, compiled, monkeypatch):
    monkeypatch.setattr(ops, "visible_device", lambda: device)
    model = kind(t2t.TransformerConfig.tiny(20, num_encoder_layers=1, num_decoder_layers=1))
    model.compile("sgd", "mse", jit_compile=jit_compile, run_eagerly=run_eagerly)
    assert isinstance(model.xla, compiled_steps.CompiledSteps) == compiled
    by_default = compiled and jit_compile == "auto"
    assert isinstance(model.xla, compiled_steps.DefaultSteps) == by_default
    kept = model.get_compile_config()["jit_compile"]
    assert kept == ("auto" if jit_compile == "auto" else compiled)


def test_several_gpus_train_without_xla_by_default(monkeypatch, caplog):
    monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
    with caplog.at_level(logging.INFO, absl_logging.get_absl_logger().name):
        assert not compiled_steps.is_default(replicas=2)
    assert "without XLA" in caplog.text


def of_a_python_function(x):
    return x + tf.reshape(tf.numpy_function(lambda a: a, [x], x.dtype), tf.shape(x))


def of_a_loop_of_any_length(x):
    steps = tf.cast(tf.reduce_max(tf.abs(x)), tf.int32) + 1
    return tf.while_loop(lambda i, _: i < steps, lambda i, y: (i + 1, tf.tanh(y)), (0, x))[1]


def exchanging(x):
    if ops.device() == "xla":  # as replicas raise it within a function
        raise RuntimeError("`merge_call` called while defining a new graph or a tf.function.")
    return x


class Bigrams(TrainableModel):
    """The next token from the last: the smallest model that trains."""

    def __init__(self, between=tf.identity):
        super().__init__()
        self.embed, self.head, self.between = (
            keras.layers.Embedding(9, 4),
            keras.layers.Dense(9),
            between,
        )

    def call(self, ids):
        return self.head(self.between(self.embed(ids)))


def trained(kind, batches, caplog, **options):
    """Returns the weights after training, and the lines of the log."""
    keras.utils.set_random_seed(0)
    model = Bigrams(kind)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, weighted_metrics=["accuracy"], **options)
    caplog.clear()
    with caplog.at_level(logging.INFO, absl_logging.get_absl_logger().name):
        model.fit(batches, verbose=0, shuffle=False)
    return model, [r.getMessage() for r in caplog.records if "XLA" in r.getMessage()]


def batches(lengths, skip=0):
    rng = np.random.default_rng(0)
    ids = [rng.integers(1, 9, (2, n + 1)).astype("int32") for n in lengths][skip:]
    signature = (tf.TensorSpec([None, None], tf.int32),) * 2
    return tf.data.Dataset.from_generator(
        lambda: ((row[:, :-1], row[:, 1:]) for row in ids), output_signature=signature
    )


def assert_same_weights(one, other):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_shapes_after_the_first_run_without_xla(monkeypatch, caplog):
    monkeypatch.setattr(compiled_steps, "MOST_SHAPES", 2)
    data = batches([2, 3, 2, 4, 5, 3, 4])
    plain, lines = trained(tf.identity, data, caplog, jit_compile=False)
    assert not lines
    monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
    model, lines = trained(tf.identity, data, caplog)
    assert_same_weights(plain, model)
    assert len(lines) == 1 and "bucket_lengths" in lines[0] and "Packing" in lines[0]
    keys, _ = model.xla._shapes.export()
    assert sorted(keys.numpy()) == [b"", *(f"2,{n},2,{n}".encode() for n in (2, 3))]


@pytest.mark.parametrize("kind", [
    of_a_python_function,
    *(pytest.param(k, marks=pytest.mark.slow) for k in (of_a_loop_of_any_length, exchanging)),
])  # fmt: skip
def test_what_xla_cannot_do_runs_without_it_by_default(kind, monkeypatch, caplog):
    data, lost = [2, 3, 4], int(kind is not exchanging)  # of the batches, the first
    plain, _ = trained(kind, batches(data, skip=lost), caplog, jit_compile=False)
    with pytest.raises((RuntimeError, tf.errors.InvalidArgumentError)):
        trained(kind, batches(data), caplog, jit_compile=True)
    monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
    model, lines = trained(kind, batches(data), caplog)
    assert_same_weights(plain, model)
    assert len(lines) == 1 and "without XLA" in lines[0]
    assert ("one batch was not trained on" in lines[0]) == bool(lost)
    ids = np.ones((2, 3), "int32")
    assert model.train_on_batch(ids, ids) and model.xla is None


@pytest.mark.slow
def test_errors_of_the_input_are_not_blamed_on_xla(monkeypatch, caplog):
    monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
    model, _ = trained(tf.identity, batches([2]), caplog)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.fit(np.ones((2, 3), "int32"), np.ones((2, 5), "int32"), verbose=0)
    assert not [r for r in caplog.records if "without XLA" in r.getMessage()]
    assert isinstance(model.xla, compiled_steps.DefaultSteps)


@pytest.mark.parametrize(("kind", "message", "right"), [
    ("InternalError", "Autotuning failed for HLO: %fusion", True),
    ("UnimplementedError", "XLA compilation requires a fixed tensor list size", True),
    ("InternalError", "ptxas exited with non-zero error code 65280", True),
    ("ResourceExhaustedError", "Out of memory: HLO module cluster_1 needs 90 GiB", False),
    ("InvalidArgumentError", "In /home/user/PTX/XLA/train.py: labels are wrong", False),
])  # fmt: skip
def test_an_error_of_xla_is_known_by_its_words(kind, message, right):
    assert compiled_steps.is_of_xla(getattr(tf.errors, kind)(None, None, message)) == right
