"""What the exported graph is made of: only ops that a stock model server has."""

import pytest
import tensorflow as tf

from tests.processes import run_python
from tests.serving.session import graph_of, nodes_of

pytestmark = pytest.mark.slow

# All ops of tensorflow-text 2.20 in the four families that need no model but the tokenizer's own.
TEXT_OPS = {
    "CaseFoldUTF8", "FindSourceOffsets", "NormalizeUTF8", "NormalizeUTF8WithOffsetsMap",
    "RegexSplitWithOffsets", "SentencepieceDetokenizeOp", "SentencepieceIdToStringOp",
    "SentencepieceOp", "SentencepieceStringToIdOp", "SentencepieceTokenizeOp",
    "SentencepieceTokenizeWithOffsetsOp", "SentencepieceVocabSizeOp",
    "WordpieceTokenizeWithOffsets",
}  # fmt: skip

# They need Python, or files that the server does not have.
FORBIDDEN = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "ReadFile", "WriteFile", "MatchingFiles"}

LIST_CORE_OPS = """
import tensorflow
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
ops = op_def_pb2.OpList()
ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
print(*(op.name for op in ops.op))
"""


@pytest.fixture(scope="module")
def allowed():
    core = set(run_python("-c", LIST_CORE_OPS).stdout.split())
    assert "MatMul" in core
    assert not core & TEXT_OPS
    return (core | TEXT_OPS) - FORBIDDEN


def _unservable(directory, allowed):
    """Returns the ops outside `allowed`, and the attributes that ask for a compiler."""
    functions, nodes = graph_of(directory).graph_def.library.function, nodes_of(directory)
    names = {function.signature.name for function in functions}
    ops = {node.op for node in nodes} - names
    compiled = {
        name
        for attributes in (*(node.attr for node in nodes), *(f.attr for f in functions))
        for name, value in attributes.items()
        if "xla" in name.lower() and (value.b or value.s)
    }
    return (ops - allowed) | compiled


def test_an_export_needs_no_more_than_a_stock_server_has(exported, exported_wordpiece, allowed):
    for directory, op in ((exported, "SentencepieceOp"), (exported_wordpiece, "FindSourceOffsets")):
        assert op in {node.op for node in nodes_of(directory)}
        assert not _unservable(directory, allowed)


@pytest.mark.parametrize(("function", "culprit"), [
    (tf.function(lambda x: tf.numpy_function(lambda y: y, [x], tf.float32)), "PyFunc"),
    (tf.function(lambda x: x + 1, jit_compile=True), "_XlaMustCompile"),
])  # fmt: skip
def test_ops_that_a_server_lacks_are_found(function, culprit, allowed, tmp_path):
    module = tf.Module()
    signature = function.get_concrete_function(tf.TensorSpec([None], tf.float32))
    tf.saved_model.save(module, str(tmp_path), signatures=signature)
    assert _unservable(str(tmp_path), allowed) == {culprit}
