"""Models, their weights and their graphs are freed when nobody has them any more."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest

import t2t_keras as t2t
from tests.models.live_graphs import graphs
from tests.processes import run_python
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


@pytest.mark.parametrize("make", [fitted, fitted_as_keras_does, translated])
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


def test_memory_stays_flat_over_many_models():
    """Trained on two devices and one, saved, loaded, exported, served; 64 MiB of weights a model.

    One set of weights that is kept would be 64 MiB in each round. What the allocator keeps of the
    first rounds, up to 49 MiB, does not come again.
    """
    printed = run_python("-m", "tests.models.many_models", "3").stdout
    sizes = [float(line) for line in printed.split()]
    assert min(later - sooner for sooner, later in itertools.pairwise(sizes)) < 32, sizes  # MiB
