"""Training steps that XLA compiles; `test_processes.py` runs this."""

import importlib
import os
import pathlib
import pkgutil

import keras
import numpy as np
import pytest
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import t2t_keras as t2t  # noqa: E402
from pipelines import configs  # noqa: E402
from pipelines.experiment import make_optimizer  # noqa: E402
from pipelines.fields import make_config  # noqa: E402
from pipelines.tasks import make_task  # noqa: E402
from t2t_keras import ops  # noqa: E402
from t2t_keras.data import LengthBuckets, Packing  # noqa: E402
from t2t_keras.data.shards import RaggedPairs  # noqa: E402
from tests.models.test_compiled_steps import assert_same_weights, trained  # noqa: E402
from tests.models.test_compiled_steps import batches as few_ids  # noqa: E402

DUMP = pathlib.Path(os.environ["XLA_DUMP"])
CONFIG = t2t.TransformerConfig(
    40, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2, dropout=0.0
)
ONE = tf.distribute.get_strategy()
TWO = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
BATCHERS = {
    "buckets": LengthBuckets(40, batch_multiple=4, bucket_lengths=(5, 10)),
    "packed": Packing(40, row_length=10, batch_multiple=4),
}


def dataset(batcher, seed=0):
    """Some 10 batches of sentences of 1 to 10 tokens."""
    rng = np.random.default_rng(seed)
    sides = [[rng.integers(4, 40, n).tolist() for n in rng.integers(1, 11, 40)] for _ in "st"]
    pairs = RaggedPairs.from_ragged(*(tf.ragged.constant(side, tf.int32) for side in sides))
    windows = tf.data.Dataset.from_tensors((pairs, tf.zeros([2], tf.int64)))
    batches = batcher.batches(windows, shuffle=False)
    # Keras makes a part of another step where data ends that it does not know the end of.
    return batches.apply(tf.data.experimental.assert_cardinality(len(list(batches))))


def compilations():
    """Returns how many programs with dropouts, losses or products XLA has compiled."""
    return len(list(DUMP.glob("*before_optimizations.txt")))


def fitted(batches, strategy=ONE, make=None, micro_batches=1, loss=None, metrics=None, **options):
    """Returns the weights after training and the history."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = make() if make else t2t.Transformer(CONFIG)
        model.micro_batches = micro_batches
        model.compile(
            keras.optimizers.SGD(0.5),  # Adam would enlarge roundings of gradients near 0
            loss or t2t.LabelSmoothedCrossEntropy(),
            weighted_metrics=metrics or [t2t.TokenAccuracy(), t2t.Perplexity()],
            **options,
        )
    history = model.fit(batches, verbose=0, shuffle=False).history
    return model.get_weights(), history


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    assert one[1].keys() == other[1].keys()
    for name, values in one[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=1e-5)


@pytest.mark.parametrize("kind", ["buckets", pytest.param("packed", marks=pytest.mark.slow)])
def test_xla_makes_the_steps_of_tensorflow_and_compiles_each_shape_once(kind, monkeypatch):
    batches, traced = dataset(BATCHERS[kind]), []
    shapes = {tuple(labels.shape) for _, labels, _ in batches}
    assert len(shapes) == {"buckets": 2, "packed": 1}[kind] < len(list(batches))
    plain = fitted(batches)
    differentiate = t2t.Transformer._differentiate
    monkeypatch.setattr(
        t2t.Transformer, "_differentiate", lambda *args: traced.append(0) or differentiate(*args)
    )
    before = compilations()
    compiled = fitted(batches, jit_compile=True, steps_per_execution=4)
    assert compilations() - before == len(shapes) + 1  # the update is compiled once
    assert len(traced) == 1
    assert_same(plain, compiled)


@pytest.mark.slow
def test_xla_makes_the_steps_of_tensorflow_on_two_devices_and_in_micro_batches():
    batches = dataset(BATCHERS["buckets"])
    plain, before = fitted(batches), compilations()
    two = fitted(batches, TWO, micro_batches=2, jit_compile=True)
    # Of each shape the parts of all micro-batches are one program on each device.
    assert compilations() - before <= 2 * 2 * 2
    assert_same(plain, two)


@pytest.mark.slow
def test_xla_makes_the_steps_of_a_loss_of_keras_on_two_devices():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    batches = dataset(BATCHERS["buckets"])
    assert_same(fitted(batches, loss=loss), fitted(batches, TWO, loss=loss, jit_compile=True))


@pytest.mark.slow
def test_the_first_sixteen_shapes_are_compiled_by_default(monkeypatch, caplog):
    data = few_ids([*range(1, 18), *range(17, 0, -1)])
    plain, lines = trained(tf.identity, data, caplog)
    assert not lines
    monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
    before = compilations()
    compiled, lines = trained(tf.identity, data, caplog, steps_per_execution=2)
    assert compilations() - before == 16 + 1  # the update is compiled once
    assert_same_weights(plain, compiled)
    assert len(lines) == 1 and "bucket_lengths" in lines[0]


def small_configs():
    """Returns {what is left of a config in small: (names of such configs, a config)}."""
    found = {}
    for info in pkgutil.iter_modules(configs.__path__):
        module = importlib.import_module(f"{configs.__name__}.{info.name}")
        if info.name == "workdir":
            continue
        rows = getattr(module, "VARIATIONS", None) or getattr(module, "ALL_ROWS", [None])
        for row in rows:
            config = module.get_config(row) if row else module.get_config()
            small = {"vocab_size": 40, "model_dim": 16, "feed_forward_dim": 24}
            small |= {"num_encoder_layers": 1, "num_decoder_layers": 1, "max_positions": 10}
            small |= {name: 4 for name in ("key_dim", "value_dim") if config.model.get(name)}
            small |= {name: 0.0 for name in config.model if name.endswith("dropout")}
            small["num_heads"] = min(config.model.num_heads, 2)
            config.model.update({name: small[name] for name in small if name in config.model})
            key = config.task, str(config.model), config.train.label_smoothing
            found.setdefault(key, ([], config))[0].append(
                f"{info.name}:{row}" if row else info.name
            )
    return [pytest.param(config, id=" ".join(names)) for names, config in found.values()]


@pytest.mark.slow
@pytest.mark.parametrize("config", small_configs())
def test_xla_makes_the_step_of_every_config(config):
    task, batches = make_task(config), dataset(BATCHERS["buckets"]).take(1)
    if config.task == "classification":
        batches = batches.map(lambda inputs, ids, _: (inputs["source_ids"], ids[:, 0] % 2))
    settings = {
        "make": task.make_model,
        "loss": t2t.LabelSmoothedCrossEntropy(config.train.label_smoothing),
    }
    plain = fitted(batches, metrics=task.make_metrics(), **settings)
    assert_same(plain, fitted(batches, metrics=task.make_metrics(), jit_compile=True, **settings))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "muon"])
def test_xla_makes_the_updates_of_our_optimizers(name):
    train, weights = make_config().train, []
    train.update(optimizer=name, warmup_steps=1, epsilon=0.1)
    train.update(ema_decay=0.9, global_clipnorm=0.5, weight_decay=0.1)
    for xla in (False, True):
        keras.utils.set_random_seed(0)
        model, optimizer = t2t.Transformer(CONFIG), make_optimizer(train, CONFIG)
        model.compile(optimizer, t2t.LabelSmoothedCrossEntropy(), jit_compile=xla)
        model.fit(dataset(BATCHERS["packed"]), verbose=0, shuffle=False)
        weights.append([*model.get_weights(), *(v.numpy() for v in optimizer.variables)])
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
