"""Attention against equation 1 and section 3.2.2, step by step and as a whole."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import (
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    ScaledDotProductAttention,
    Sequences,
    Softmax,
    View,
    attention_mask,
    cache_mask,
    causal_mask,
    padding_mask,
    segment_mask,
)
from t2t_keras.layers.variants.local_attention import LocalSelfAttention
from tests import reference

rng = np.random.default_rng(0)


def split_columns(matrix, heads):
    return np.split(np.asarray(matrix, np.float64), heads, axis=1)


def test_scaled_dot_product_attention_is_equation_1():
    query, key = rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 7, 8))
    value, mask = rng.normal(size=(2, 3, 7, 4)), rng.random((2, 1, 5, 7)) > 0.4
    mask[..., 0] = True
    found, weights = ScaledDotProductAttention(dtype="float64")(query, key, value, mask)
    np.testing.assert_allclose(found, reference.attention(query, key, value, mask), rtol=1e-5)
    identity = np.eye(7)  # with it for values, the context is the weights
    expected = reference.attention(query, key, identity, mask)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-12)
    mask[:, :, 1] = False  # a query without an allowed key gets zeros
    found, _ = ScaledDotProductAttention()(query, key, value, mask)
    assert np.all(found[:, :, 1] == 0) and np.all(np.isfinite(found)) and np.any(found[:, :, 0])
    half = [tf.cast(x, tf.bfloat16) for x in (query, key, value)]
    found, weights = ScaledDotProductAttention(dtype="mixed_bfloat16")(*half)
    assert (found.dtype, weights.dtype) == (tf.bfloat16, tf.float32)
    np.testing.assert_allclose(tf.reduce_sum(weights, -1), np.ones((2, 3, 5)), rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("heads", "key_dim", "value_dim"), [(4, 2, 2), (2, 5, 3)])
def test_self_attention_is_section_3_2_2(heads, key_dim, value_dim, causal):
    x = rng.normal(size=(2, 5, 8))
    layer = MultiHeadSelfAttention(heads, key_dim, value_dim, causal=causal, dtype="float64")
    found = layer(x)
    widths = np.cumsum([heads * key_dim, heads * key_dim])
    [qkv] = layer.qkv_projection.get_weights()
    matrices = np.split(qkv, widths, axis=1)
    expected = reference.multi_head(
        x,
        x,
        *(split_columns(matrix, heads) for matrix in matrices),
        layer.output_projection.kernel.numpy(),
        mask=np.tril(np.ones((5, 5), bool)) if causal else None,
    )
    reference.assert_close(found, expected)


def test_cross_attention_is_section_3_2_2():
    x, memory = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 6, 8))
    real = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]], bool)
    layer = MultiHeadCrossAttention(2, 3, 5, dtype="float64")
    found = layer(x, memory, memory_mask=real)
    [kv] = layer.kv_projection.get_weights()
    key, value = np.split(kv, [2 * 3], axis=1)
    query = layer.query_projection.kernel.numpy()
    expected = reference.multi_head(
        x,
        memory,
        *(split_columns(matrix, 2) for matrix in (query, key, value)),
        layer.output_projection.kernel.numpy(),
        mask=real[:, None, :],
    )
    reference.assert_close(found, expected)


def test_separate_matrices_equal_fused_ones():
    """The same weights, as columns of one matrix and as a matrix each."""
    x, memory = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 6, 8))
    for kind, inputs, widths in (
        (MultiHeadSelfAttention, (x,), [2 * 3, 2 * 3]),
        (MultiHeadCrossAttention, (x, memory), [2 * 3]),
    ):
        fused = kind(2, 3, 5, dtype="float64")
        separate = kind(2, 3, 5, fused=False, dtype="float64")
        expected = fused(*inputs)
        separate(*inputs)
        projection = "qkv_projection" if kind is MultiHeadSelfAttention else "kv_projection"
        [kernel] = getattr(fused, projection).get_weights()
        getattr(separate, projection).set_weights(np.split(kernel, np.cumsum(widths), axis=1))
        for name in {"query_projection", "output_projection"} & set(vars(fused)):
            getattr(separate, name).set_weights(getattr(fused, name).get_weights())
        np.testing.assert_allclose(separate(*inputs), expected, atol=1e-12)
        assert separate.count_params() == fused.count_params()


def test_hypotheses_attend_to_their_own_history_in_a_cache_that_is_never_reordered():
    layer, beams, steps = MultiHeadSelfAttention(2, 4, causal=True), 3, 5
    x = rng.normal(size=(steps, 2, beams, 8)).astype("float32")  # the input of each beam
    layer(x[0])
    cache, history = layer.initial_cache(2), np.zeros((2, beams, 0), np.int32)
    for t in range(steps):
        parents = rng.integers(beams, size=(2, beams))
        history = np.take_along_axis(history, parents[..., np.newaxis], axis=1)
        own = np.broadcast_to(np.arange(beams, dtype=np.int32), (2, beams))[..., np.newaxis]
        history = np.concatenate([history, own], axis=2)  # [batch, beams, t + 1]
        mask = (history[..., np.newaxis] == np.arange(beams)).reshape(2, 1, beams, -1)
        np.testing.assert_array_equal(cache_mask(ops.to_index(history)), mask)
        y, cache = layer.step(x[t], cache, View(tf.constant(mask), tf.constant(t)))
        for row, beam in np.ndindex(2, beams):
            inputs = [x[s, row, history[row, beam, s]] for s in range(t + 1)]
            alone = layer(np.array([inputs]))
            reference.assert_close(y[row, beam], alone[0, -1])


def as_lists(mask):
    [[mask]] = np.asarray(mask).astype(int).tolist()
    return mask


def test_masks_follow_from_sequences():
    assert as_lists(padding_mask(tf.constant([[True, True, False]]))) == [[1, 1, 0]]
    assert as_lists(causal_mask(3)) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    segments = segment_mask(tf.constant([[1, 2, 0]]), tf.constant([[1, 1, 2, 0]]))
    assert as_lists(segments) == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert cache_mask(tf.zeros([2, 1, 5], tf.int32)) is None
    padded = Sequences(mask=tf.constant([[True, True, False]]))
    packed = Sequences(padded.mask, segments=tf.constant([[1, 2, 0]]))
    rows = Sequences(segments=tf.constant([[1, 1, 2]]))
    assert attention_mask(Sequences(), Sequences()) is None
    assert as_lists(attention_mask(padded, padded)) == [[1, 1, 0]]
    assert as_lists(attention_mask(packed, packed)) == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert as_lists(attention_mask(rows, rows)) == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert as_lists(attention_mask(Sequences(), Sequences(), 2)) == [[1, 0], [1, 1]]
    assert as_lists(attention_mask(padded, padded, 3)) == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert as_lists(attention_mask(rows, rows, 3)) == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert attention_mask(padded, Sequences()) is None
    assert as_lists(attention_mask(Sequences(), padded)) == [[1, 1, 0]]
    assert as_lists(attention_mask(rows, packed)) == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_no_mask_is_fused_with_a_product():
    """With oneDNN, the sum of a batched product and a mask takes some hundred times as long."""
    attention = ScaledDotProductAttention()
    run = tf.function(lambda x, mask: attention(x, x, x, mask))
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


MASK = np.array([[1, 1, 0], [1, 0, 0]])
CONFIG = t2t.TransformerConfig.tiny(100, model_dim=8, num_heads=2)
LAYERS = (
    MultiHeadSelfAttention(2, 4),
    MultiHeadSelfAttention(2, 4, causal=True),
    LocalSelfAttention(2, 4, window=2),
    MultiHeadCrossAttention(2, 4),
)


@pytest.mark.parametrize(
    "attend",
    [
        lambda x, mask: ScaledDotProductAttention()(x, x, x, mask=mask[:, np.newaxis])[0],
        lambda x, mask: Softmax()(tf.matmul(x, x, transpose_b=True), mask[:, np.newaxis]),
        lambda x, mask: LAYERS[0](x, mask=mask),
        lambda x, mask: LAYERS[2](x, Sequences(mask)),
    ],
)
@pytest.mark.parametrize("kind", ["int32", "float32", "uint8"])
def test_a_mask_of_0_and_1_counts_as_bool(attend, kind):
    x = tf.constant(rng.normal(size=(2, 3, 8)), tf.float32)
    np.testing.assert_allclose(attend(x, MASK.astype(kind)), attend(x, MASK.astype(bool)))
    np.testing.assert_allclose(attend(x, 3 * MASK.astype(kind)), attend(x, MASK.astype(bool)))


OF_ONE_SIDE = [*LAYERS[:3], t2t.models.EncoderLayer(CONFIG), t2t.models.Encoder(CONFIG)]
OF_TWO_SIDES = [LAYERS[3], t2t.models.DecoderLayer(CONFIG), t2t.models.Decoder(CONFIG)]


@pytest.mark.parametrize("layer", OF_ONE_SIDE + OF_TWO_SIDES)
@pytest.mark.parametrize("rows", [2, 3])  # three rows look like the three fields of Sequences
def test_a_side_has_one_mask_in_any_form(layer, rows):
    x = tf.constant(rng.normal(size=(rows, 3, 8)), tf.float32)
    memory = [x] if layer in OF_TWO_SIDES else []
    names = ["x_mask", "memory_mask"] if memory else ["mask"]
    earlier = layer.masks.values()
    mask = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]], bool)[:rows]
    masks, nothing = [mask] * (1 + len(memory)), [None] * (1 + len(memory))
    expected = layer(x, *memory, *map(Sequences, masks))
    assert np.any(np.abs(expected - layer(x, *memory)) > 1e-3)
    for found in (
        layer(x, *memory, *masks),
        layer(x, *memory, *map(list, map(Sequences, masks))),  # as a functional model loads them
        layer(x, *memory, **dict(zip(names, masks, strict=True))),
        layer(x, *memory, *nothing, **dict(zip(names, masks, strict=True))),
        layer(x, *memory, *nothing, *masks),  # the order of version 0.2
        layer(x, *memory, *map(Sequences, masks), *nothing),
        layer(x, *memory, *[tuple(map(tuple, mask)) for mask in masks]),
        layer(x, *memory, *[list(map(tf.constant, mask)) for mask in masks]),
        layer(
            **dict(zip(["x", "memory"], [x, *memory], strict=False)),
            **dict(zip(earlier, map(Sequences, masks), strict=True)),
        ),
        layer(x, *memory, **dict(zip(earlier, map(Sequences, masks), strict=True))),
    ):
        np.testing.assert_array_equal(found, expected)
    for other in ("real", {"mask": mask}, 3):
        with pytest.raises(InputError, match=r"mask of .* is a .*: give bool .*Sequences"):
            layer(x, *memory, **{names[-1]: other})
    with pytest.raises(TypeError, match=f"arguments follow x.*: give {' and '.join(names)}, and"):
        layer(x, *memory, *nothing, *masks, True)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        *(
            ({field: np.ones(shape, "int32")}, rf"{field} has shape .*give \[batch, length\]")
            for field in ("mask", "segments", "positions")
            for shape in ([2, 2], [3, 3], [2, 3, 1])
        ),
        ({"mask": np.ones([1, 3], bool)}, "mask has shape"),
        ({"mask": np.ones([3], bool)}, "mask has shape"),
        ({"mask": np.array([[0, 0, -1e9]] * 2)}, "with values below 0: give bool"),
        ({"mask": np.array([["a"] * 3] * 2)}, "a mask is string: give bool"),
        ({"segments": np.ones([1, 3], "int32")}, "segments has shape"),
        ({"segments": np.ones([2, 3])}, "segments are float.*: give integers"),
        ({"positions": np.ones([2, 3], bool)}, "positions are bool: give integers"),
    ],
)
def test_rows_of_another_shape_or_kind_are_refused(rows, text):
    x, attend = tf.ones([2, 3, 8]), LAYERS[0]
    with pytest.raises(InputError, match=text):
        attend(x, Sequences(**{name: tf.constant(value) for name, value in rows.items()}))
    if "mask" in rows:
        with pytest.raises(InputError, match=text):
            attend(x, mask=rows["mask"])


def test_a_memory_and_its_rows_are_checked():
    x, memory, cross = tf.ones([2, 3, 8]), tf.ones([2, 5, 8]), LAYERS[3]
    segments = Sequences(segments=tf.ones([2, 5], tf.int32))
    with pytest.raises(InputError, match=r"mask has shape .* here \(2, 5\) as memory"):
        cross(x, memory, memory_mask=np.ones([2, 3], bool))
    with pytest.raises(InputError, match="segments for both, or for neither"):
        cross(x, memory, memory_mask=segments)
    with pytest.raises(InputError, match="memory has shape"):
        cross(x, memory[:, 0])
    with pytest.raises(InputError, match=r"mask has shape \(2, 5\): give \[..., query, key\]"):
        ScaledDotProductAttention()(x, memory, memory, mask=np.ones([2, 5], bool))


def test_a_mask_that_is_added_to_scores_is_refused_in_a_graph():
    attend = tf.function(lambda x, mask: LAYERS[0](x, mask=mask))
    x = tf.constant(rng.normal(size=(2, 3, 8)), tf.float32)
    np.testing.assert_allclose(attend(x, MASK.astype("float32")), LAYERS[0](x, mask=MASK))
    with pytest.raises(tf.errors.InvalidArgumentError, match="values below 0"):
        attend(x, tf.constant([[0.0, 0.0, -1e9]] * 2))


def test_names_in_the_place_of_objects_are_refused():
    for make in (
        lambda: MultiHeadSelfAttention(2, 4, attention="additive"),
        lambda: MultiHeadSelfAttention(2, 4, positions="rotary"),
        lambda: ScaledDotProductAttention("hard"),
    ):
        with pytest.raises(InputError, match="is only a name: give an object"):
            make()
