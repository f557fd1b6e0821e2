"""Products in int8: exact on every CPU, and independent of the rows beside them."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.ops import int8
from tests.processes import run_python


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def variables(matrix):
    return int8.Int8Matrix(*(tf.Variable(part) for part in int8.quantize(matrix)))


def graph(function):
    return tf.function(function, autograph=False, reduce_retracing=True)


def expected(x, matrix):
    """The product by integers in NumPy, x [rows, width] and matrix [outputs, width]."""
    scales = np.abs(matrix).max(axis=1) / 63
    values = np.rint(matrix / scales[:, np.newaxis]).astype(np.int64)
    largest = np.abs(x).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = np.nan_to_num(np.rint(x * (np.float32(127) / largest))).astype(np.int64)
    return (rows @ values.T) * scales * (largest / 127)


def test_a_matrix_is_quantized_to_seven_bits_with_a_scale_for_each_output():
    matrix = normal(5, 40) * np.float32([[1], [100], [1e-3], [0], [7]])
    values, scales = int8.quantize(matrix)
    assert (values.dtype, scales.dtype, scales.shape) == (np.int8, np.float32, (5,))
    assert np.abs(values).max(axis=1).tolist() == [63, 63, 63, 0, 63]
    error = np.abs(values * scales[:, np.newaxis] - matrix)
    assert np.all(error <= scales[:, np.newaxis] * 0.5001)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_those_of_integers(dtype):
    x, matrix = normal(6, 40) * np.float32([[1], [1000], [1e-4], [0], [3], [1]]), normal(50, 40)
    x = tf.cast(x, dtype)
    found = graph(int8.product)(x, variables(matrix))
    assert found.dtype == dtype
    right = expected(tf.cast(x, "float32").numpy(), matrix)
    tolerance = 1e-5 if dtype == "float32" else 2**-8
    np.testing.assert_allclose(tf.cast(found, "float32"), right, rtol=tolerance, atol=1e-9)
    exact = tf.cast(x, "float32").numpy() @ matrix.T
    worst = np.abs(found - exact).max(axis=1) / np.maximum(np.abs(exact).max(axis=1), 1e-9)
    assert worst.max() < 0.03


def test_a_row_alone_gives_the_bits_that_it_gives_in_a_batch():
    rows = np.exp(normal(70, 1, seed=1) * 4) * normal(70, 96)
    multiply, matrix = graph(int8.product), variables(normal(130, 96))
    together = multiply(tf.constant(rows), matrix).numpy()
    for place in (slice(0, 1), slice(33, 34), slice(40, 45), slice(0, 0)):
        np.testing.assert_array_equal(multiply(tf.constant(rows[place]), matrix), together[place])


def test_rows_that_are_looked_up_are_those_of_the_matrix():
    matrix = normal(9, 16)
    ids = np.array([[8, 0], [3, 3]])
    found = graph(int8.lookup)(tf.constant(ids), variables(matrix))
    values, scales = int8.quantize(matrix)
    np.testing.assert_array_equal(found, (values * scales[:, np.newaxis])[ids])


def test_a_trace_in_int8_multiplies_with_the_matrices_it_names_and_no_others():
    kernel, embedding, other = (
        keras.Variable(normal(*shape)) for shape in ((16, 30), (50, 16), (16, 7))
    )
    named = [(kernel, variables(np.transpose(kernel))), (embedding, variables(embedding))]
    x = normal(3, 16)

    def products():
        return (
            ops.matmul(tf.constant(x), kernel),
            ops.logits(tf.constant(x), embedding),
            ops.lookup(tf.constant([4]), embedding),
            ops.matmul(tf.constant(x), other),
        )

    def search():
        with ops.with_step_products(
            matrices=[(kernel,)], output_matrices=[embedding], dtype="float32"
        ):
            return products()

    right = [expected(x, np.transpose(kernel)), expected(x, embedding.numpy())]
    values, scales = int8.quantize(embedding)
    right += [values[[4]] * scales[4], x @ other.numpy()]

    @tf.function(autograph=False)
    def both():
        with ops.in_int8(named):
            return products(), search()

    for found in both():
        for y, exact in zip(found, right, strict=True):
            np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)
    # Each of these nodes keeps a copy of a matrix.
    kinds = [operation.type for operation in both.get_concrete_function().graph.get_operations()]
    assert kinds.count(keras_compat.INT8_PRODUCT) == 2 * 2


# Every CPU ----------------------------------------------------------------------------------------


def integer_product(x, matrix, scales):
    return keras_compat.int8_matmul(x, int8.operand_of(matrix, scales))


def check_extreme_products():
    rng = np.random.default_rng(0)
    for rows, outputs, width in ((1, 96, 512), (40, 64, 130)):
        scales = rng.random(outputs).astype("float32")
        random = rng.integers(-127, 128, (rows, width)), rng.integers(-63, 64, (outputs, width))
        largest = np.full((rows, width), 127), np.full((outputs, width), 63)
        for x, matrix in (random, largest, (-largest[0], largest[1])):
            found = graph(integer_product)(x.astype("int8"), matrix.astype("int8"), scales)
            np.testing.assert_allclose(found, (x @ matrix.T) * scales.astype("float64"), 1e-5)


@pytest.mark.parametrize(
    "isa", [None, *(pytest.param(isa, marks=pytest.mark.slow) for isa in ("AVX2", "AVX512_CORE"))]
)
def test_the_largest_products_overflow_on_no_cpu(isa):
    """Without VNNI there are instructions that add two products in 16 bits."""
    if isa is None:
        check_extreme_products()
        return
    code = "from tests.ops import test_int8; test_int8.check_extreme_products()"
    run_python("-c", code, env=os.environ | {"ONEDNN_MAX_CPU_ISA": isa})


def test_logits_of_some_rows_are_those_of_the_whole_matrix():
    matrix = variables(normal(300, 64, seed=1))

    @graph
    def both(x, ids):
        chosen = int8.partial_logits(ids, matrix)(x)
        return chosen, tf.gather(int8.product(x, matrix), ids, axis=1)

    for seed, ids in enumerate(([5, 299, 0], [7, 8, 9], list(range(40, 140)))):
        chosen, whole = both(tf.constant(normal(4, 64, seed=seed)), tf.constant(ids))
        np.testing.assert_array_equal(chosen, whole)


def test_scales_are_read_at_every_call():
    """oneDNN's cache of products names scales by their address."""
    values, scales = tf.Variable(tf.ones([4, 8], tf.int8)), tf.Variable(tf.ones([4]))
    multiply = graph(lambda x: integer_product(x, tf.convert_to_tensor(values), scales))
    x = tf.ones([2, 8], tf.int8)
    assert multiply(x)[0, 0] == 8
    scales.assign_add(tf.ones([4]))  # in place
    assert multiply(x)[0, 0] == 16
