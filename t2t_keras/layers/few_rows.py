"""Products of few rows with large matrices, which lie in blocks of columns.

A few rows times a matrix takes as long as the matrix takes to be read, and one row of it after
another in strips is a slow way to read it. In blocks that each lie in one piece, [4, 512] times
[512, 32,000] takes 60 % of the time. With many rows the multiplications are what takes time, and
the plain product is the faster one.
"""

import contextlib
import contextvars

import tensorflow as tf

from t2t_keras.layers.beam_rows import BeamRows

FEW = {"float32": 32, "bfloat16": 128}
"""The greatest number of rows with which blocks are no slower, by dtype of the product."""

_BLOCK = 64

_layout = contextvars.ContextVar("layout", default=None)


class ColumnBlocks:
    """A matrix in blocks of 64 columns, the last one filled up with zeros.

    Args:
        matrix: [width, columns], a tensor, or a variable, of which this is then a copy.
        turned: whether the matrix is [columns, width] instead.
    """

    def __init__(self, matrix, turned=False):
        matrix = tf.convert_to_tensor(matrix)
        self.columns, width = matrix.shape if turned else reversed(matrix.shape)
        blocks = -(-self.columns // _BLOCK)
        missing = [0, blocks * _BLOCK - self.columns]
        if turned:
            padded = tf.pad(matrix, [missing, [0, 0]]) if missing[1] else matrix
            parts = tf.reshape(padded, [blocks, _BLOCK, width])
            self._blocks = tf.transpose(parts, [0, 2, 1])  # [blocks, width, block]
        else:
            padded = tf.pad(matrix, [[0, 0], missing]) if missing[1] else matrix
            parts = tf.reshape(padded, [width, blocks, _BLOCK])
            self._blocks = tf.transpose(parts, [1, 0, 2])

    def multiply(self, x, order=None):
        """Returns x · matrix, [rows, columns].

        Args:
            x: [rows, width], of the matrix's dtype.
            order: `BeamRows` of one sentence with as many beams as x has rows, which all products
                of a step can share; None: its own.
        """
        order = order or BeamRows(1, tf.shape(x)[0])
        blocks = tf.matmul(x[tf.newaxis], self._blocks)  # [blocks, rows, block]
        y = order.join(blocks[tf.newaxis])  # [rows, blocks · block]
        return y if y.shape[1] == self.columns else y[:, : self.columns]


class LaidOut:
    """Copies of matrices in blocks, to be multiplied with in their place.

    Args:
        matrices: Keras variables of two axes.
        dtype: what they are multiplied in.
    """

    def __init__(self, matrices, dtype):
        self._blocks = {
            id(matrix): ColumnBlocks(tf.cast(tf.convert_to_tensor(matrix), dtype))
            for matrix in matrices
        }

    @contextlib.contextmanager
    def instead(self, rows):
        """Lets `multiply` take the copies for products of so many rows, an int32 scalar."""
        token = _layout.set((self._blocks, BeamRows(1, rows)))
        try:
            yield
        finally:
            _layout.reset(token)


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
