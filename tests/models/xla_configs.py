"""The training steps of all configs, and the updates of our optimizers, by XLA.

`test_processes.py` runs this in a process whose XLA optimizes little, and therefore compiles fast.
"""

import importlib
import pkgutil

import keras
import numpy as np
import pytest

import t2t_keras as t2t
from pipelines import configs
from pipelines.experiment import make_optimizer
from pipelines.fields import make_config
from pipelines.tasks import make_task
from tests.models.xla_two_devices import BATCHERS, CONFIG, dataset
from tests.two_devices import assert_same

SMALL = {
    "vocab_size": 40,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "model_dim": 16,
    "feed_forward_dim": 24,
    "max_positions": 10,
}


def small_configs():
    """Returns a config for each set of configs that differ in sizes, data and numbers alone."""
    found = {}
    for info in pkgutil.iter_modules(configs.__path__):
        module = importlib.import_module(f"{configs.__name__}.{info.name}")
        rows = getattr(module, "VARIATIONS", None) or getattr(module, "ALL_ROWS", [None])
        for row in rows if info.name != "workdir" else []:
            config = module.get_config(row) if row else module.get_config()
            small = SMALL | {name: 0.0 for name in config.model if name.endswith("dropout")}
            small |= {name: 4 for name in ("key_dim", "value_dim") if config.model.get(name)}
            small["num_heads"] = min(config.model.num_heads, 2)
            config.model.update({name: small[name] for name in small if name in config.model})
            key = config.task, str(config.model), config.train.label_smoothing > 0
            found.setdefault(key, pytest.param(config, id=f"{info.name}:{row}"))
    return found.values()


def small_model():
    return t2t.Transformer(CONFIG)


def trained(batches, make_model, smoothing, metrics=None, optimizer=None, xla=False):
    """Returns the weights after training and the history."""
    keras.utils.set_random_seed(0)
    model = make_model()
    model.compile(
        optimizer or keras.optimizers.SGD(0.5),
        t2t.LabelSmoothedCrossEntropy(smoothing),
        weighted_metrics=metrics,
        jit_compile=xla,
    )
    history = model.fit(batches, verbose=0, shuffle=False).history
    return model.get_weights(), history


@pytest.mark.parametrize("config", small_configs())
def test_xla_makes_the_step_of_every_config(config):
    task, batches = make_task(config), dataset(BATCHERS["buckets"]).take(1)
    if config.task == "classification":
        batches = batches.map(lambda inputs, ids, _: (inputs["source_ids"], ids[:, 0] % 2))
    if config.task == "language_model":
        batches = batches.map(lambda inputs, *rest: ({"target_ids": inputs["target_ids"]}, *rest))
    settings = batches, task.make_model, config.train.label_smoothing
    plain, compiled = (trained(*settings, task.make_metrics(), xla=xla) for xla in (False, True))
    assert_same(plain, compiled, 2e-5)


def test_xla_makes_the_updates_of_our_optimizers():
    """Muon takes Adam for vectors and embeddings."""
    train, weights = make_config().train, []
    train.update(optimizer="muon", warmup_steps=1, epsilon=0.1)
    train.update(ema_decay=0.9, global_clipnorm=0.5, weight_decay=0.1)
    batches = dataset(BATCHERS["packed"])
    for xla in (False, True):
        optimizer = make_optimizer(train, CONFIG)
        found, _ = trained(batches, small_model, 0.1, optimizer=optimizer, xla=xla)
        weights.append([*found, *(v.numpy() for v in optimizer.variables)])
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
