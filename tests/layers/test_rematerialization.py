"""Under `keras.RematScope` a training step is the same, and needs less memory."""

import keras
import numpy as np
import pytest

import t2t_keras as t2t
from tests.models.live_graphs import graphs

IDS = np.random.default_rng(0).integers(4, 30, size=(3, 6))
INPUTS = {"source_ids": IDS, "target_ids": IDS}
CONFIG = t2t.TransformerConfig(
    30,
    1,
    1,
    model_dim=8,
    feed_forward_dim=8,
    num_heads=2,
    dropout=0.2,
    attention_dropout=0.3,
    activation_dropout=0.3,
)
PARTS = ["attention", "self_attention", "cross_attention", "feed_forward"]


def trained(scope):
    """The weights after two steps, and the types of operations in the graph of a step."""
    keras.utils.set_random_seed(1)
    with scope:
        model = t2t.Transformer(CONFIG)
    model.compile(keras.optimizers.SGD(0.5), t2t.LabelSmoothedCrossEntropy())
    before = {id(graph) for graph in graphs()}
    model.fit(INPUTS, IDS, epochs=2, verbose=0)
    new = [graph for graph in graphs() if id(graph) not in before]
    count = sum(op.type == "BatchMatMulV2" for graph in new for op in graph.get_operations())
    return model.get_weights(), count


SCOPES = {
    "larger_than": lambda: keras.RematScope("larger_than", output_size_threshold=1),
    "parts": lambda: keras.RematScope("list_of_layers", layer_names=PARTS),
    "activations": lambda: keras.RematScope("activations"),
}


@pytest.fixture(scope="module")
def plain():
    return trained(keras.RematScope(None))


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["full", *SCOPES])
def test_a_step_with_dropout_is_the_same(scope, plain):
    expected, products = plain
    found, more_products = trained(SCOPES.get(scope, lambda: keras.RematScope("full"))())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert more_products > products or scope in ("activations", "larger_than")
