"""Products of a decoding step: all forms compute the same, and the model chooses among them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import Transformer, TransformerConfig, ops
from t2t_keras.models.search_steps import step_products
from t2t_keras.ops import products
from tests import reference

SOURCE = tf.constant([[5, 6, 1], [7, 1, 0]])


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def step_forms(*, matrices=(), output_matrix=None, dtype="float32"):
    """Returns the `Products` of a search."""
    with ops.with_step_products(
        matrices=[(matrix,) for matrix in matrices],
        output_matrices=[
            keras.Variable(tf.zeros([50, 16])) if output_matrix is None else output_matrix
        ],
        dtype=dtype,
    ):
        return ops.options().products


@pytest.fixture
def packs_any_size(monkeypatch):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", 1)


# What they compute --------------------------------------------------------------------------------


@pytest.mark.usefixtures("packs_any_size")
@pytest.mark.parametrize("columns", [192, 1, 100])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("bfloat16", 2**-6)])
def test_packed_products_are_those_of_numpy(rows, columns, dtype, error):
    x, matrix, output = normal(rows, 7), normal(7, columns), normal(columns, 7)
    kernel, output_matrix = keras.Variable(matrix), keras.Variable(output)
    packed = step_forms(matrices=[kernel], output_matrix=output_matrix, dtype=dtype)
    for variable in (kernel, output_matrix):  # packed copies alone are multiplied with
        variable.assign(tf.zeros_like(variable))
    for found, expected in (
        (packed.matmul(tf.cast(x, dtype), kernel), x @ matrix),
        (packed.logits(tf.cast(x, dtype), output_matrix), x @ output.T),
    ):
        assert (found.dtype, found.shape) == (dtype, (rows, columns))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(tf.cast(found, "float32"), expected, atol=error * scale)


def test_logits_are_products_with_a_transposed_copy():
    x, matrix = normal(3, 16), normal(50, 16)
    variable = keras.Variable(matrix)
    forms = step_forms(output_matrix=variable)
    variable.assign(tf.zeros_like(variable))
    np.testing.assert_allclose(
        forms.logits(tf.constant(x), variable), x @ matrix.T, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("bfloat16", 2**-6)])
def test_batched_products_are_those_of_numpy(dtype, error, transpose_b):
    x, y = tf.cast(normal(2, 3, 4, 8), dtype), tf.cast(normal(2, 3, 8, 5), dtype)
    right = tf.linalg.matrix_transpose(y) if transpose_b else y
    found = step_forms(dtype=dtype).batch_matmul(x, right, transpose_b)
    assert found.dtype == dtype
    expected = np.asarray(tf.cast(x, "float64")) @ np.asarray(tf.cast(y, "float64"))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(tf.cast(found, "float64"), expected, atol=error * scale)


def test_the_softmax_is_that_of_numpy():
    x = np.array([[1.0, 2.0, 3.0], [1e9, 0.0, -1e9], [-1e9, -1e9, -1e9]], "float32")
    found = step_forms().softmax(tf.constant(x))
    np.testing.assert_allclose(found, reference.softmax(x.astype("float64")), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_transpose_moves_every_bit(dtype):
    x = tf.cast(normal(2, 3, 4, 8), dtype)
    found = step_forms().transpose(x, [0, 2, 1, 3])
    assert found.dtype == dtype
    np.testing.assert_array_equal(tf.cast(found, "float64"), np.swapaxes(x.numpy(), 1, 2))


# Which are taken ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "gpu", "xla", "plain"])
def test_only_a_cpu_takes_other_forms_than_the_definitions(name):
    with ops.plain() if name == "plain" else ops.made_for(name):
        found = step_forms(matrices=[keras.Variable(tf.zeros([4, 4]))])
    assert (found is None) == (name != "cpu")


def test_the_size_of_the_matrices_decides():
    least = products._MIN_PACKED_WEIGHTS
    for more, kind in ((0, products.PackedProducts), (-1, products.TransposedProducts)):
        found = step_forms(matrices=[keras.Variable(tf.zeros([1, least + more]))])
        assert type(found) is kind


# In a model ---------------------------------------------------------------------------------------


def small_model(dtype=None, **changes):
    return Transformer(TransformerConfig(50, 1, 2, 32, 48, num_heads=4, **changes), dtype=dtype)


def decode(model, steps=3, beams=3):
    """Returns the logits of greedy steps of some hypotheses, and the last beam history."""
    ids = tf.fill([2, beams], 4)
    state = model.initial_state(model.encode(SOURCE), beams)
    all_logits = []
    for _ in range(steps):
        logits, state = model.step(ids, state)
        assert logits.shape == (2, beams, 50) and logits.dtype == tf.float32
        ids = tf.argmax(logits, axis=2, output_type=tf.int32)
        all_logits.append(logits)
    return tf.stack(all_logits), state.beam_history


VARIATIONS = {
    "paper": {},
    "separate": {
        "fused_qkv": False,
        "key_dim": 10,
        "value_dim": 6,
        "feed_forward": "convolution",
        "attention_score": "additive",
        "norm": "pre",
    },
    "local": {"attention_window": 2},
}


def searched(model, search):
    with ops.with_step_products(**step_products(model)):
        return search()


@pytest.mark.parametrize("least", [1, 2**62], ids=["packed", "not_packed"])
@pytest.mark.parametrize("name", VARIATIONS)
def test_steps_give_the_logits_of_plain_steps(name, least, monkeypatch):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", least)
    beams = 1 if name == "paper" else 3
    model = small_model(**VARIATIONS[name])
    expected = decode(model, beams=beams)
    found = searched(model, lambda: decode(model, beams=beams))
    reference.assert_close(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.usefixtures("packs_any_size")
def test_the_decoder_multiplies_with_the_packed_copies_alone():
    model = small_model()
    state = model.initial_state(model.encode(SOURCE), beams=3)
    ids = tf.fill([2, 3], 4)
    expected, _ = model.step(ids, state)

    def step_without_matrices():
        matrices = step_products(model)["matrices"]
        assert len(matrices) == 2 * 6  # of 2 layers, W^K and W^V of memory apart
        for (matrix,) in matrices:
            matrix.assign(tf.zeros_like(matrix))
        return model.step(ids, state)[0]

    found = searched(model, step_without_matrices)
    reference.assert_close(found, expected)
