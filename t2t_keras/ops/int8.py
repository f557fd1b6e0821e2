"""Products in int8: matrices and activations of 8-bit integers, exact sums, results in float32.

An output y of x W is Σ x_i w_i. The weights of each output have a scale, and each row of x gets its
own when the graph runs: y = (Σ q_i · v_i) · scale of the row · scale of the output with integers q
in -127 … 127 and v in -63 … 63. Sums of integers are exact, so a row's result does not depend on
other rows. CPUs without VNNI add two products in 16 bits, and the narrow range of v cannot overflow
there: 2 · 255 · 63 < 2¹⁵ (oneDNN adds 128 to q first).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.ops.indices import to_index

_MAX_WEIGHT = 63
_MAX_ACTIVATION = 127


class Int8Matrix(NamedTuple):
    """A matrix with a scale for each output: values · scales[:, newaxis]."""

    values: object  # int8 [outputs, width], array or variable
    scales: object  # float32 [outputs], array or variable


def quantize(matrix):
    """Returns the nearest `Int8Matrix` of arrays; matrix: float [outputs, width], all finite."""
    matrix = np.asarray(matrix, np.float32)
    scales = np.abs(matrix).max(axis=1) / np.float32(_MAX_WEIGHT)
    divisors = np.where(scales > 0, scales, np.float32(1))
    values = np.clip(np.rint(matrix / divisors[:, np.newaxis]), -_MAX_WEIGHT, _MAX_WEIGHT)
    return Int8Matrix(values.astype(np.int8), scales)


def operand_of(values, scales):
    """Returns the operand of `keras_compat.int8_matmul` for a matrix; call it before a loop."""
    # A range of ±127 is a scale of 1; the operation adds a bias. A loop carries no tf.qint8.
    return values, scales * 127.0, tf.zeros_like(scales)


def multiplier(matrix, constant=True):
    """Returns the function x [rows, width] → x · matrixᵀ in the dtype of x, inside a graph.

    The part that depends only on the matrix is computed now: for a loop, make it outside.
    `tf.gather` of a variable makes every read copy the variable: 16 MB at each step of base. A
    matrix that is not `constant` is reordered at each call.
    """
    operand = operand_of(*map(tf.convert_to_tensor, matrix))

    def product(x):
        rows = tf.cast(x, tf.float32)  # [rows, width]
        largest = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True)  # [rows, 1]
        factors = tf.math.divide_no_nan(float(_MAX_ACTIVATION), largest)  # [rows, 1]
        values = tf.cast(tf.round(rows * factors), tf.int8)  # [rows, width]
        y = keras_compat.int8_matmul(values, operand, constant)  # [rows, outputs]
        return tf.cast(y * (largest / _MAX_ACTIVATION), x.dtype)

    return product


def product(x, matrix):
    """Returns x · matrixᵀ for x [rows, width] and an `Int8Matrix`, see `multiplier`."""
    return multiplier(matrix)(x)


def partial_logits(ids, matrix):
    """Returns a function that multiplies x with the rows ids, int32 [ids], of an `Int8Matrix`."""
    rows = Int8Matrix(*(tf.gather(part, ids) for part in matrix))
    return multiplier(rows, constant=False)


def lookup(ids, matrix):
    """Returns rows of an `Int8Matrix` of variables, float32 [..., width], of integers ids [...]."""
    values, scales = (tf.gather(part, to_index(ids)) for part in matrix)
    return tf.cast(values, tf.float32) * tf.expand_dims(scales, -1)
