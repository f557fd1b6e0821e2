"""The placement audit, on graphs whose copies are known, and the copies of a step that it holds."""

import re

import pytest
import tensorflow as tf

from tools import device_audit

pytestmark = pytest.mark.slow

CONFIG = {"vocab_size": 300, "num_encoder_layers": 1, "num_decoder_layers": 1}


def copies(function, *specs):
    """Returns {(to, type, bytes, scope)} of all copies in the graph of a function."""
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    found = device_audit.audit(traced)
    return {(c.to, c.tensor.dtype.name, c.bytes, c.scope) for c in found}


def of(found, kind, scope=None):
    """Returns the copies of a kind, in all scopes or in one."""
    return [c for c in found if c.kind == kind and scope in (None, c.scope)]


def on_device(dtype=tf.float32, size=100):
    """Returns numbers that the GPU has made."""
    return tf.cast(tf.sqrt(tf.fill([size], 2.0)), dtype)


def successors(dtype):
    return lambda: tf.cast(on_device(dtype) + 1, tf.float32) * on_device()


def doubled(dtype):
    return lambda: tf.while_loop(
        lambda i, x: tf.reduce_sum(on_device(x.dtype)) < 9,
        lambda i, x: (i + 1, x * 2),
        (tf.constant(0), on_device(dtype)),
    )[1]


def updated():
    variable, counter = tf.Variable(tf.ones([7])), tf.Variable(1, dtype=tf.int64)

    def step():
        counter.assign_add(1)
        variable.assign_sub(variable * tf.cast(counter, tf.float32))

    return step


WHOLE_SLICE = ("host", "int32", 400, "")
GRAPHS = {  # by the kernels of TensorFlow 2.21
    "floats": (lambda: tf.matmul(on_device()[:, tf.newaxis], tf.ones([1, 9])), set()),
    "int32": (successors(tf.int32), {WHOLE_SLICE, ("device", "int32", 400, "")}),
    "int64": (successors(tf.int64), set()),
    "slice": (lambda: on_device(tf.int32)[-1], {WHOLE_SLICE}),
    "slice of bytes": (lambda: tf.bitcast(on_device(tf.int32), tf.uint8)[-1, 0], set()),
    "shape": (lambda: tf.reshape(on_device(), [tf.shape(on_device())[0] // 10, 10]), set()),
    "loop": (doubled(tf.int64), {("host", "bool", 1, "while")}),
    "condition": (lambda: tf.cond(on_device()[0] > 0, on_device, lambda: 2 * on_device()),
     {("host", "bool", 1, "")}),
    "variables": (updated(), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_the_copies_of_a_graph_are_those_of_its_kernels(name):
    function, expected = GRAPHS[name]
    assert copies(function) == expected


def test_arguments_cross_once():
    spec = tf.TensorSpec([None, 2], tf.float32)
    size = 4 * 2 * device_audit.UNKNOWN
    assert copies(lambda x: tf.sqrt(x) * tf.sin(x), spec) == {("device", "float32", size, "")}


def test_operations_without_a_gpu_kernel_are_named():
    traced = tf.function(lambda: tf.pad(on_device(tf.int64), [[0, 1]]) + 1).get_concrete_function()
    there, back = device_audit.audit(traced)
    assert (there.to, there.bytes, back.to, back.bytes) == ("host", 800, "device", 808)
    assert all(re.fullmatch(r"Pad(V2)? \(without a GPU kernel\)", r) for r in there.readers)
    assert not any("without" in reader for reader in back.readers)


# What a step of ours copies -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def search():
    model = device_audit.make_model("tiny", **CONFIG)
    return device_audit.audit(device_audit.search(model, batch=16, length=28))


def test_in_a_decoding_step_the_host_reads_one_truth_value(search):
    """It ends the loop; the GPU gets step, limits, batch size and constants, a number each."""
    _, compaction, loop = sorted({c.scope for c in search})
    assert loop.count("while") > compaction.count("while")
    found = [c for c in search if c.scope == loop]
    assert [c.tensor.dtype for c in found if c.to == "host"] == [tf.bool]
    assert len(found) <= 9 and all(c.bytes <= 8 for c in found)


def test_when_a_search_drops_sentences_the_host_reads_their_number(search):
    _, compaction, _ = sorted({c.scope for c in search})
    found = [c for c in search if c.scope == compaction]
    assert sum(c.to == "host" for c in found) <= 2
    assert all(c.bytes <= 8 for c in found)


def test_of_a_search_only_the_answer_crosses(search):
    """The ids, int32, which `Identity` hands on in host memory, `IdentityN` out of a function."""
    assert {(c.to, *c.readers) for c in of(search, "data")} == {
        ("host", "Identity"),
        ("device", "IdentityN"),
    }
    assert {(c.tensor.shape.rank, c.scope) for c in of(search, "data")} == {(3, "")}
    assert len(of(search, "bookkeeping", "")) <= 11


@pytest.mark.parametrize("packed", [False, True])
def test_in_a_training_step_the_host_reads_no_data(packed):
    """The batch goes to the GPU, and numbers of its rows and tokens.

    The loop over chunks of the loss counts on the host, by an `Identity` that Grappler removes.
    """
    model = device_audit.make_model("tiny", dtype="mixed_bfloat16", **CONFIG)
    found = device_audit.audit(device_audit.training_step(model, 64, 28, packed))
    assert not of(found, "data")
    assert len(of(found, "input")) == (8 if packed else 4)  # labels and weights are two
    bookkeeping = of(found, "bookkeeping")
    assert len(bookkeeping) <= 8 and all(c.bytes <= 8 for c in bookkeeping)
    assert [(c.scope != "", c.tensor.dtype) for c in bookkeeping if c.to == "host"] == [
        (True, tf.bool)
    ]


def test_the_forms_for_cpus_would_cross():
    """The audit is no tautology: traced for CPUs the same step copies data both ways."""
    model = device_audit.make_model("tiny", **CONFIG)
    found = device_audit.audit(device_audit.training_step(model, 64, 28, device="cpu"))
    assert {c.to for c in of(found, "data")} == {"host", "device"}
