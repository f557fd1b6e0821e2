import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.layers.beam_rows import BeamRows
from t2t_keras.layers.masks import causal_mask, padding_mask, segment_mask
from t2t_keras.layers.multi_head import MultiHeadCrossAttention, MultiHeadSelfAttention
from tests import reference

rng = np.random.default_rng(0)


def heads_of(matrix, heads):
    return np.split(np.asarray(matrix, np.float64), heads, axis=1)


def test_scaled_dot_product_attention_is_equation_1():
    query, key = rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 7, 8))
    value, mask = rng.normal(size=(2, 3, 7, 4)), rng.random((2, 1, 5, 7)) > 0.4
    mask[..., 0] = True
    result = ScaledDotProductAttention(dtype="float64")(query, key, value, attention_mask=mask)
    np.testing.assert_allclose(result, reference.attention(query, key, value, mask), atol=1e-6)


def test_a_query_that_may_attend_to_nothing_gets_zeros():
    x = tf.random.normal([1, 2, 3, 4])
    mask = tf.constant([[True, False, True], [False, False, False], [True, True, True]])
    result = ScaledDotProductAttention()(x, x, x, attention_mask=mask)
    assert np.all(result[:, :, 1] == 0)
    assert np.all(np.isfinite(result))
    assert np.any(result[:, :, 0] != 0)


@pytest.mark.parametrize(("heads", "key_dim", "value_dim"), [(1, 6, 6), (4, 2, 2), (2, 5, 3)])
def test_self_attention_is_section_3_2_2(heads, key_dim, value_dim):
    x = rng.normal(size=(2, 5, 8))
    layer = MultiHeadSelfAttention(heads, key_dim, value_dim, dtype="float64")
    result = layer(x, attention_mask=causal_mask(5))
    widths = np.cumsum([heads * key_dim, heads * key_dim])
    query, key, value = np.split(layer.qkv_projection.kernel.numpy(), widths, axis=1)
    expected = reference.multi_head(
        x,
        x,
        *(heads_of(w, heads) for w in (query, key, value)),
        layer.output_projection.kernel.numpy(),
        mask=np.tril(np.ones((5, 5), bool)),
    )
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_cross_attention_is_section_3_2_2():
    x, memory = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 6, 8))
    ids = np.array([[5, 6, 7, 8, 9, 1], [5, 6, 1, 0, 0, 0]])
    layer = MultiHeadCrossAttention(2, 3, 5, dtype="float64")
    result = layer(x, memory, attention_mask=padding_mask(ids))
    key, value = np.split(layer.kv_projection.kernel.numpy(), [2 * 3], axis=1)
    query = layer.query_projection.kernel.numpy()
    expected = reference.multi_head(
        x,
        memory,
        *(heads_of(w, 2) for w in (query, key, value)),
        layer.output_projection.kernel.numpy(),
        mask=(ids != 0)[:, None, :],
    )
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_separate_matrices_equal_stacked_ones():
    """One and the same weights, as columns of one matrix and as a matrix each."""
    x, memory = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 6, 8))
    for kind, inputs, widths in (
        (MultiHeadSelfAttention, (x,), [2 * 3, 2 * 3]),
        (MultiHeadCrossAttention, (x, memory), [2 * 3]),
    ):
        stacked = kind(2, 3, 5, dtype="float64")
        separate = kind(2, 3, 5, projections="separate", dtype="float64")
        expected = stacked(*inputs)
        separate(*inputs)
        *before, kernel, output = stacked.get_weights()
        separate.set_weights([*before, *np.split(kernel, np.cumsum(widths), axis=1), output])
        np.testing.assert_allclose(separate(*inputs), expected, atol=1e-12)
        assert separate.count_params() == stacked.count_params()


def test_steps_with_a_cache_equal_the_causal_whole():
    x = tf.random.normal([2, 6, 8])
    layer = MultiHeadSelfAttention(2, 4)
    whole = layer(x, attention_mask=causal_mask(6))
    cache, steps = layer.initial_cache(2), []
    for i in range(6):
        y, cache = layer.step(x[:, i], cache, BeamRows(2, 1))
        steps.append(y)
    np.testing.assert_allclose(tf.stack(steps, axis=1), whole, atol=1e-5)


def test_hypotheses_see_their_own_ancestors_in_a_cache_that_is_never_reordered():
    rng = np.random.default_rng(0)
    layer, beams, steps = MultiHeadSelfAttention(2, 4), 3, 5
    x = rng.normal(size=(steps, 2, beams, 8)).astype("float32")  # what each beam read
    layer(x[0])
    rows = BeamRows(2, beams)
    cache, ancestry = layer.initial_cache(2), np.zeros((2, beams, 0), int)
    for step in range(steps):
        parents = rng.integers(beams, size=(2, beams))
        ancestry = np.take_along_axis(ancestry, parents[..., np.newaxis], axis=1)
        own = np.broadcast_to(np.arange(beams), (2, beams))[..., np.newaxis]
        ancestry = np.concatenate([ancestry, own], axis=2)  # [batch, beams, step + 1]
        mask = (ancestry[..., np.newaxis] == np.arange(beams)).reshape(2, 1, beams, -1)
        y, cache = layer.step(tf.constant(x[step].reshape(2 * beams, 8)), cache, rows, mask)
        for row, beam in np.ndindex(2, beams):
            history = [x[t, row, ancestry[row, beam, t]] for t in range(step + 1)]
            alone = layer(np.array([history]), attention_mask=causal_mask(step + 1))
            np.testing.assert_allclose(y[beams * row + beam], alone[0, -1], atol=1e-5)


def test_weights_are_softmax_in_float32_under_bfloat16():
    x = tf.random.normal([1, 2, 5, 8], dtype=tf.bfloat16)
    weights = ScaledDotProductAttention(dtype="mixed_bfloat16").weigh(x, x)
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(tf.reduce_sum(weights, -1), np.ones((1, 2, 5)), atol=1e-6)


def test_masks():
    assert padding_mask(tf.constant([[4, 1, 0]])).numpy().tolist() == [[[[True, True, False]]]]
    assert causal_mask(3)[0, 0].numpy().astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    segments = segment_mask(tf.constant([[1, 2, 0]]), tf.constant([[1, 1, 2, 0]]))
    assert segments[0, 0].numpy().astype(int).tolist() == [
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
    ]


def test_no_mask_is_fused_with_a_product():
    """With oneDNN, the sum of a batched product and a mask takes some hundred times as long."""
    attention = ScaledDotProductAttention()
    run = tf.function(lambda x, mask: attention(x, x, x, attention_mask=mask))
    x, mask = tf.ones([2, 4, 9, 32]), tf.ones([2, 1, 1, 9], tf.bool)
    context.enable_run_metadata()
    try:
        run(x, mask)
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    functions = [function for graph in graphs for function in graph.library.function]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for function in functions for node in function.node_def]
    assert any("BatchMatMul" in node.op for node in nodes)
    assert not any("FusedBatchMatMul" in node.op for node in nodes)
