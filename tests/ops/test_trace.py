"""Options of a trace: the device, and plain forms for the whole library."""

import threading

import keras
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.ops import dense, trace


def fast_forms_in_training_step():
    """Returns which fast forms the graph of a training step holds.

    They are told by an operation that the plain form does not have.
    """
    model = t2t.Transformer(t2t.TransformerConfig(50, 1, 1, 16, 24, num_heads=2, dropout=0.1))
    model.compile(
        keras.optimizers.SGD(1.0), t2t.LabelSmoothedCrossEntropy(0.1), metrics=[t2t.TokenAccuracy()]
    )
    ids = tf.ones([2, 3], tf.int32)
    batch = {"source_ids": ids, "target_ids": ids}, ids, tf.ones([2, 3])
    graph = tf.function(model.train_step).get_concrete_function(batch).graph
    nodes = list(graph.as_graph_def().node)
    for function in graph.as_graph_def().library.function:  # bodies of loops
        nodes += function.node_def
    found = set()
    for node in nodes:
        if node.name.split("/")[-1].startswith(dense.SUM_NAME):
            found.add("sum_rows")
        if node.op == "Bitcast":
            found.add("dropout")
        if node.op == "InplaceUpdate":
            found.add("linear_cross_entropy")
    return found


def test_plain_forms_are_those_of_any_device():
    for device in trace.DEVICES:
        with ops.made_for(device):
            assert (ops.fast_forms(), trace.xla_forms()) == (device == "cpu", device == "xla")
            with ops.plain():
                assert not ops.fast_forms() and not trace.xla_forms()


def test_a_training_step_is_traced_with_fast_forms_or_with_none():
    every = {"sum_rows", "dropout", "linear_cross_entropy"}
    assert fast_forms_in_training_step() == every
    with ops.plain():
        assert fast_forms_in_training_step() == set()


# Devices ------------------------------------------------------------------------------------------


def test_the_block_decides_and_ends_also_by_an_error(monkeypatch):
    assert ops.device() == "cpu" and ops.fast_forms()  # no GPU is visible
    with ops.made_for("gpu"):
        assert ops.device() == "gpu" and not ops.fast_forms()
        with ops.made_for("cpu"):
            assert ops.fast_forms()
            with pytest.raises(ZeroDivisionError), ops.plain():
                assert ops.device() == "cpu" and not ops.fast_forms()
                with ops.plain():
                    pass
                assert not ops.fast_forms()
                _ = 1 / 0
            assert ops.fast_forms()
        assert ops.device() == "gpu"
    with pytest.raises(ValueError, match="device is 'tpu'"):
        ops.made_for("tpu")
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    assert ops.device() == "gpu" and not ops.fast_forms()
    with ops.made_for("cpu"):
        assert ops.fast_forms()


def devices_of_graphs(inner):
    """Returns the devices that `inner`, a function of a list, sees in a graph made for a GPU."""
    seen = []

    @tf.function
    def outer():
        with ops.made_for("gpu"):
            inner(seen)
        seen.append(ops.device())
        return tf.constant(0)

    outer()
    return seen


def test_graphs_within_a_graph_have_its_options():
    """Branches, bodies of loops, and functions that XLA compiles."""

    def inner(seen):
        def note(result):
            seen.append(ops.device())
            return result

        tf.cond(tf.constant(True), lambda: note(1), lambda: 2)
        tf.while_loop(lambda i: i < 1, lambda i: (note(i + 1),), [tf.constant(0)])
        tf.function(lambda: note(tf.constant(0)), jit_compile=True)()

    assert devices_of_graphs(inner) == ["gpu", "gpu", "gpu", "cpu"]


def test_replicas_have_the_options_of_the_graph_around_them():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def inner(seen):
        strategy.run(lambda: seen.append(ops.device()))

    assert devices_of_graphs(inner) == ["gpu", "cpu"]


def test_another_thread_has_its_own_options():
    """A first translation beside an export for a GPU is for the CPU."""

    def inner(seen):
        @tf.function
        def translate():
            seen.append(ops.device())
            return tf.constant(0)

        thread = threading.Thread(target=translate)
        thread.start()
        thread.join()

    assert devices_of_graphs(inner) == ["cpu", "cpu"]
    with ops.made_for("gpu"):
        assert devices_of_graphs(inner) == ["cpu", "gpu"]


def test_options_die_with_their_graph():
    before = len(trace._by_graph)
    devices_of_graphs(lambda seen: None)
    assert len(trace._by_graph) == before
