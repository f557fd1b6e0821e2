"""Training steps that XLA compiles; `test_processes.py` runs this."""

import dataclasses
import os
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.data import LengthBuckets, Packing
from t2t_keras.data.shards import RaggedPairs
from tests.two_devices import ONE, TWO, assert_same

DUMP = pathlib.Path(os.environ["XLA_DUMP"])
CONFIG = t2t.TransformerConfig(
    40, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2, dropout=0.0
)
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


def fitted(batches, strategy=ONE, config=CONFIG, micro_batches=1, loss=None, **options):
    """Returns the weights after training and the history."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = t2t.Transformer(config)
        model.micro_batches = micro_batches
        model.compile(
            keras.optimizers.SGD(0.5),  # Adam would enlarge roundings of gradients near 0
            loss or t2t.LabelSmoothedCrossEntropy(),
            weighted_metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
            **options,
        )
    history = model.fit(batches, verbose=0, shuffle=False).history
    return model.get_weights(), history


def test_xla_makes_the_steps_of_tensorflow_and_compiles_each_shape_once(monkeypatch):
    batches, traced = dataset(BATCHERS["buckets"]), []
    shapes = {tuple(labels.shape) for _, labels, _ in batches}
    assert len(shapes) == 2 < len(list(batches))
    plain = fitted(batches)
    differentiate = t2t.Transformer._differentiate
    monkeypatch.setattr(
        t2t.Transformer, "_differentiate", lambda *args: traced.append(0) or differentiate(*args)
    )
    before = compilations()
    compiled = fitted(batches, jit_compile=True, steps_per_execution=4)
    assert compilations() - before == len(shapes) + 1  # the update is compiled once
    assert len(traced) == 1
    assert_same(plain, compiled, 2e-5)


def test_xla_makes_the_steps_of_tensorflow_on_two_devices_and_in_micro_batches():
    batches = dataset(BATCHERS["buckets"])
    plain, before = fitted(batches), compilations()
    two = fitted(batches, TWO, micro_batches=2, jit_compile=True)
    # Of each shape the parts of all micro-batches are one program on each device.
    assert compilations() - before <= 2 * 2 * 2
    assert_same(plain, two, 2e-5)


@pytest.mark.parametrize(("batcher", "loss", "changes"), [
    (
        "packed",
        t2t.LabelSmoothedCrossEntropy(),
        {
            "attention_score": "additive",
            "feed_forward": "convolution",
            "norm": "pre",
            "output_bias": True,
            "position_embedding": "learned",
        },
    ),
    (
        "buckets",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
        {"attention_weights": "hard", "attention_window": 2},
    ),
])  # fmt: skip
def test_every_variant_and_a_loss_of_keras_can_be_compiled(batcher, loss, changes):
    config, batches = dataclasses.replace(CONFIG, **changes), dataset(BATCHERS[batcher])
    plain = fitted(batches, config=config, loss=loss)
    compiled = fitted(batches, config=config, loss=loss, jit_compile=True)
    assert_same(plain, compiled, 2e-5)
