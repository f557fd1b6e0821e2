"""Attention of few queries: the same numbers as of many, by kernels of its own."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import few_queries
from t2t_keras.layers.attention import ScaledDotProductAttention
from tests import reference

# [batch, heads, queries, key_dim]: one query a head; few of them; too many.
SHAPES = {"one": (2, 3, 1, 8), "few": (1, 4, 5, 8), "many": (3, 4, 22, 8)}


def attended(shape, dtype):
    """Returns what attention gives, what it should give, and the function that was run."""
    rng = np.random.default_rng(0)
    keys = (*shape[:2], 6, shape[3])
    query, key, value = (
        tf.cast(rng.normal(size=size), dtype) for size in (shape, keys, (*keys[:3], 4))
    )
    mask = tf.constant(rng.random((shape[0], 1, shape[2], 6)) < 0.7)
    layer = ScaledDotProductAttention(dtype=dtype)

    @tf.function
    def attend(query):
        return few_queries.attend_from(query, lambda: layer(query, key, value, mask))

    wide = [np.asarray(tf.cast(x, tf.float64)) for x in (query, key, value)]
    expected = reference.attention(*wide, mask=mask.numpy())
    return attend(query), expected, attend.get_concrete_function(query)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("bfloat16", 0.02)])
def test_context_is_that_of_the_formula(name, dtype, error):
    context, expected, _ = attended(SHAPES[name], dtype)
    assert context.dtype == dtype
    np.testing.assert_allclose(tf.cast(context, tf.float64), expected, atol=error)


def test_one_query_a_head_needs_no_condition_and_no_kernel_of_onednn():
    _, _, function = attended(SHAPES["one"], "float32")
    kinds = {op.type for op in function.graph.get_operations()}
    assert {"BatchMatMulV3", "LogSoftmax"} <= kinds
    assert not kinds & {"BatchMatMulV2", "Softmax", "If", "StatelessIf"}


@pytest.mark.parametrize(("name", "few"), [("few", True), ("many", False)])
def test_the_number_of_queries_decides(name, few, monkeypatch):
    taken = []
    monkeypatch.setattr(few_queries, "_FEW", np.prod(SHAPES["few"]))
    query = tf.zeros(SHAPES[name])
    few_queries.attend_from(query, lambda: taken.append(few_queries._here.get()) or query)
    assert taken == [few]
    assert not few_queries._here.get()


def test_in_bfloat16_one_query_a_head_is_no_reason_of_its_own():
    _, _, function = attended(SHAPES["one"], "bfloat16")
    assert any("If" in op.type for op in function.graph.get_operations())
