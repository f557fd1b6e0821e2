"""Products of few rows with large matrices, which lie in blocks of columns.

A few rows times a matrix takes as long as the matrix takes to be read, and one row of it after
another in strips is a slow way to read it. In blocks that each lie in one piece, [4, 512] times
[512, 37,000] takes 60 % of the time. With many rows the multiplications are what takes time, and
the plain product is the faster one.
"""

import contextvars

import tensorflow as tf

from t2t_keras.layers.beam_rows import BeamRows
from t2t_keras.layers.context_variables import holding
from t2t_keras.layers.weight_copies import copied

FEW = {"float32": 32, "bfloat16": 128}
"""The greatest number of rows with which blocks are no slower, by dtype of the product."""

_BLOCK = 64

_layout = contextvars.ContextVar("layout", default=None)


class ColumnBlocks:
    """A copy of a matrix in blocks of 64 columns, the last one filled up with zeros.

    Args:
        matrix: Keras variable [width, columns].
        dtype: name of the dtype that it is multiplied in.
        turned: whether the variable is [columns, width] instead.
    """

    def __init__(self, matrix, dtype, turned=False):
        self.columns = matrix.shape[0 if turned else 1]
        self._blocks = copied(
            ("column blocks", id(matrix), dtype, turned),
            lambda: _column_blocks(tf.cast(tf.convert_to_tensor(matrix), dtype), turned),
        )

    def multiply(self, x, order=None):
        """Returns x · matrix, [rows, columns].

        Args:
            x: [rows, width] in the dtype.
            order: `BeamRows` of one sentence with as many beams as x has rows, which all products
                of a step can share; None: its own.
        """
        order = order or BeamRows(1, tf.shape(x)[0])
        blocks = tf.matmul(x[tf.newaxis], self._blocks)  # [blocks, rows, block]
        y = order.join(blocks[tf.newaxis])  # [rows, blocks · block]
        return y if y.shape[1] == self.columns else y[:, : self.columns]


def _column_blocks(matrix, turned):
    """Returns [blocks, width, block] of [width, columns], or if turned of [columns, width]."""
    columns, width = matrix.shape if turned else matrix.shape[::-1]
    blocks = -(-columns // _BLOCK)
    missing = [0, blocks * _BLOCK - columns]
    if turned:
        parts = tf.reshape(tf.pad(matrix, [missing, [0, 0]]), [blocks, _BLOCK, width])
        return tf.transpose(parts, [0, 2, 1])
    parts = tf.reshape(tf.pad(matrix, [[0, 0], missing]), [width, blocks, _BLOCK])
    return tf.transpose(parts, [1, 0, 2])


class LaidOut:
    """Copies of matrices in blocks, to be multiplied with in their place.

    Args:
        matrices: Keras variables of two axes.
        dtype: name of the dtype that they are multiplied in.
    """

    def __init__(self, matrices, dtype):
        self._blocks = {id(matrix): ColumnBlocks(matrix, dtype) for matrix in matrices}

    def instead(self, rows):
        """Lets `multiply` take the copies for products of so many rows, an int32 scalar."""
        return holding(_layout, (self._blocks, BeamRows(1, rows)))


def multiply(x, matrix):
    """Returns x · matrix, by the matrix's blocks where `LaidOut.instead` says so.

    Args:
        x: [rows, width].
        matrix: Keras variable [width, columns].
    """
    blocks, order = _layout.get() or ({}, None)
    if id(matrix) in blocks:
        return blocks[id(matrix)].multiply(x, order)
    return tf.matmul(x, matrix)
