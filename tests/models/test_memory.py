"""Models, their weights and their graphs are freed when nobody has them any more."""

import gc
import itertools
import subprocess
import sys
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import keras_compat
from tests.tasks import tiny

pytestmark = pytest.mark.slow

IDS = np.random.default_rng(0).integers(4, 30, size=(4, 6))
INPUTS = {"source_ids": IDS, "target_ids": IDS}


def transformer(**settings):
    return t2t.Transformer(
        t2t.TransformerConfig(
            30, 1, 1, model_dim=8, feed_forward_dim=8, num_heads=2, activation="silu", **settings
        )
    )


def fitted():
    model = transformer()
    model.compile(t2t.adam(8), t2t.LabelSmoothedCrossEntropy(0.1), metrics=[t2t.TokenAccuracy()])
    model.fit(INPUTS, IDS, verbose=0)
    return model


def fitted_as_keras_does():
    """With an optimizer, loss and metric of Keras, evaluated and asked."""
    model = transformer(attention_score="additive")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(INPUTS, IDS, verbose=0)
    model.evaluate(INPUTS, IDS, verbose=0)
    model.predict(INPUTS, verbose=0)
    return model


def translated():
    translator = tiny.translator()
    translator(["The old man."])
    return translator.model


def graphs():
    return [o for o in gc.get_objects() if type(o).__name__.endswith("FuncGraph")]


@pytest.mark.parametrize(
    "make",
    [
        fitted,
        pytest.param(fitted_as_keras_does, marks=pytest.mark.slow),
        translated,
    ],
)
def test_a_model_is_freed_with_its_weights_and_graphs(make):
    tiny.tokenizer()  # kept for all tests
    gc.collect()
    before = weakref.WeakSet(graphs())
    model = make()
    made = [weakref.ref(graph) for graph in graphs() if graph not in before]
    assert made
    watched = [weakref.ref(weight.value.handle) for weight in model.weights]
    watched += [weakref.ref(model), *made]
    keras.backend.clear_session()  # Keras remembers the last model's names
    del model
    gc.collect()
    kept = [thing() for thing in watched if thing() is not None]
    assert not kept


@pytest.mark.parametrize("repaired", [False, True])
def test_keras_optimizers_keep_a_graph_for_ever(repaired):
    weight, kept = tf.Variable([1.0, 2.0]), []
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([weight])
    if repaired:
        keras_compat.keep_no_graphs(optimizer)

    def step():
        kept.append(weakref.ref(tf.compat.v1.get_default_graph()))
        optimizer.apply([tf.constant([2.0, 4.0])], [weight])

    function = tf.function(step, autograph=False)
    function()
    np.testing.assert_allclose(weight, [0.0, 0.0])
    del function
    gc.collect()
    assert (kept[0]() is None) == repaired


@pytest.mark.slow
def test_memory_stays_flat_over_many_models():
    """Trained on one device and two, saved, loaded, exported, served; 16 MiB of weights a model.

    A round makes four models. One set of weights kept in each would be 16 MiB a round; the median
    slope between two rounds ignores rounds with a peak.
    """
    command = [sys.executable, "-m", "tests.models.many_models", "10"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = [float(line) for line in result.stdout.split()][3:]  # the first rounds fill caches
    pairs = itertools.combinations(enumerate(sizes), 2)
    slope = np.median([(second - first) / (j - i) for (i, first), (j, second) in pairs])
    assert slope < 8, sizes  # MiB a round
