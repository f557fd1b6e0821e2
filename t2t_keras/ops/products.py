"""Matrix products, softmax and transposes: plain forms, and fast ones for decoding on CPUs.

Layers call `matmul`, `logits`, `lookup`, `batch_matmul`, `softmax` and `transpose`, a shortlist
`partial_logits`. `Products`, a few lines each, is the definition; training runs it. A search on a
CPU takes one other class for its steps (`with_step_products`), whatever their number of rows:
`PackedProducts` for a large model, `TransposedProducts` for a small one, `Int8StepProducts` within
`in_int8`, which multiplies matrices in int8, in searches and everywhere else.

**Packed.** With few rows, reading the matrix takes most of the time of a product. Packed in blocks
of 64 columns, each contiguous in memory, a matrix is read in 0.6 of the time ([4, 512] by
[512, 37000]); one sentence of base, beam 4, takes 0.81 of the time, 32 sentences the same time. The
matrices of small models stay in the CPU caches.

**Transposed.** The product with [vocab, model_dim]ᵀ takes up to 40 % longer than with a transposed
copy, made once for a search.

**One thread.** oneDNN's kernels split every operation between the threads, however small it is.
TensorFlow's own kernels run on the calling thread, or split only what is large:

- A product of attention is one of a row with a matrix for each query. `BatchMatMulV3` of whole
  blocks packs all keys for a few queries: 32 sentences of base take 1,777 µs for 120 keys, 574 µs
  row by row, and 525 µs in oneDNN's kernel; one sentence takes 88, 74 and 71 µs.
- A softmax of few rows takes 5 to 13 µs instead of 31 to 53.
- A transpose of [1, 4, 8, 64] takes 50 µs, and 3 µs in TensorFlow's own kernel: one sentence of
  base, beam 4, takes 0.8 of the time, 64 sentences of tiny 0.9.

**int8.** On CPUs with VNNI a product takes a third to a half of its time in float32 (see
`ops.int8`), the quantization of its rows included. Each node keeps a reordered copy of its matrix,
which is the same for any number of rows.
"""

import contextlib
import dataclasses
import functools
import math

import tensorflow as tf

from t2t_keras.ops import int8
from t2t_keras.ops.indices import to_index
from t2t_keras.ops.trace import fast_forms, options, traced_with

_BLOCK = 64  # columns
_MIN_PACKED_WEIGHTS = 2**22  # smaller decoders stay in the caches
_INTEGERS = {2: tf.int16, 4: tf.int32, 8: tf.int64}  # by bytes


# What the layers call -----------------------------------------------------------------------------


def matmul(x, kernel, *low_rank):
    """Returns x [rows, width] · kernel [width, columns].

    With LoRA `low_rank` are A [width, rank] and B [rank, columns], and x A B is added.
    """
    return _products().matmul(x, kernel, *low_rank)


def logits(x, matrix):
    """Returns x [rows, width] · matrixᵀ [vocab, width], in the dtype of x."""
    return _products().logits(x, matrix)


def partial_logits(ids, matrix, dtype):
    """Returns the function x [rows, width] → x · matrix[ids]ᵀ, [rows, ids], both in a dtype, a str.

    The matrix is a variable [vocab, width], and ids int32 [ids].
    """
    return _products().partial_logits(ids, matrix, dtype)


def lookup(ids, matrix):
    """Returns the rows of a matrix [vocab, width] at ids, integers [...]: [..., width]."""
    return _products().lookup(ids, matrix)


def batch_matmul(x, y, transpose_b=False):
    """Returns x · y, or x · yᵀ, of tensors [..., rows, columns]."""
    return _products().batch_matmul(x, y, transpose_b)


def softmax(x):
    """Returns the softmax of float32 x over the last axis."""
    return _products().softmax(x)


def transpose(x, order):
    """Returns x with its axes in another order."""
    return _products().transpose(x, order)


def _products():
    return options().products or Products()


# Plain forms --------------------------------------------------------------------------------------


class Products:
    """The plain forms of these functions; a subclass has others, with the same results."""

    def matmul(self, x, kernel, *low_rank):
        y = tf.matmul(x, kernel)
        return y + functools.reduce(tf.matmul, low_rank, x) if low_rank else y

    def logits(self, x, matrix):
        return tf.matmul(x, tf.cast(tf.convert_to_tensor(matrix), x.dtype), transpose_b=True)

    def partial_logits(self, ids, matrix, dtype):
        columns = tf.transpose(tf.cast(self.lookup(ids, matrix), dtype))  # [width, ids]
        return lambda x: tf.matmul(tf.cast(x, dtype), columns)

    def lookup(self, ids, matrix):
        return tf.gather(matrix, to_index(ids))

    def batch_matmul(self, x, y, transpose_b):
        return tf.matmul(x, y, transpose_b=transpose_b)

    def softmax(self, x):
        return tf.nn.softmax(x)

    def transpose(self, x, order):
        return tf.transpose(x, order)

    def of_steps(self, matrices, output_matrices, dtype, precompute):
        """Returns the `StepProducts` of a search; arguments as for `with_step_products`."""
        large = sum(math.prod(kernel.shape) for kernel, *_ in matrices) >= _MIN_PACKED_WEIGHTS
        kind = PackedProducts if large else TransposedProducts
        return kind(matrices, output_matrices, dtype, precompute)


def merged_kernel(kernel, *low_rank):
    """Returns kernel + A B, a tensor in the dtype of the kernel; without LoRA the kernel."""
    kernel = tf.convert_to_tensor(kernel)
    if not low_rank:
        return kernel
    left, right = (tf.cast(tf.convert_to_tensor(factor), tf.float32) for factor in low_rank)
    return tf.cast(tf.cast(kernel, tf.float32) + tf.matmul(left, right), kernel.dtype)


class _Table:
    """What belongs to some variables; variables are the same only if they are one object."""

    def __init__(self, pairs):
        self._pairs = {id(variable): (variable, value) for variable, value in pairs}

    def get(self, variable):
        """Returns the value of a variable; None if it has none."""
        return self._pairs.get(id(variable), (variable, None))[1]


# The steps of a search on a CPU -------------------------------------------------------------------


def compute_now(key, make):
    """Returns make(): a `precompute` without a cache, for graphs whose weights may change."""
    del key
    return make()


def with_step_products(*, matrices, output_matrices, dtype, precompute=compute_now):
    """Context manager that traces the block with the products that are fastest for a search.

    Args:
        matrices: list of the steps' arguments of `matmul`: (variable [width, columns],), or with
            LoRA (variable, A, B). Without any matrix the block keeps its products.
        output_matrices: list of variables [vocab, model_dim], the output projections of one model
            or several; empty: steps multiply with other columns.
        dtype: str, compute dtype.
        precompute: function (key, make) → tensor, which keeps tensors that depend only on weights.
            As long as it keeps one it must keep `make`, so that the variable in it stays alive.
    """
    if not fast_forms() or not (matrices or output_matrices):
        return contextlib.nullcontext()
    products = _products().of_steps(matrices, output_matrices, dtype, precompute)
    return traced_with(dataclasses.replace(options(), products=products))


class StepProducts(Products):
    """Products of steps: attention on the calling thread, matrices by copies made once.

    `multipliers` are pairs of a variable and a function x → its product with the copy.
    """

    def __init__(self, multipliers):
        self._multipliers = _Table(multipliers)

    def matmul(self, x, kernel, *low_rank):
        multiply = self._multipliers.get(kernel)
        return multiply(x) if multiply else super().matmul(x, kernel, *low_rank)

    def logits(self, x, matrix):
        multiply = self._multipliers.get(matrix)
        return multiply(x) if multiply else super().logits(x, matrix)

    def batch_matmul(self, x, y, transpose_b):
        rows, columns = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
        if x.shape[-2] == 1:
            return tf.cast(_on_one_thread(rows, columns, transpose_b), x.dtype)
        rows = tf.expand_dims(rows, -2)  # [..., rows, 1, width]
        columns = tf.expand_dims(columns, -3)  # broadcast over the rows, not copied
        return tf.cast(tf.squeeze(_on_one_thread(rows, columns, transpose_b), -2), x.dtype)

    def softmax(self, x):
        return tf.exp(tf.nn.log_softmax(x))

    def transpose(self, x, order):
        """Transposes the bits of x as integers, which oneDNN's kernel does not take."""
        shape = [x.shape[axis] for axis in order]
        longer = [axis for axis in order if x.shape[axis] != 1]
        if longer == sorted(longer) and shape.count(None) == 1 and 0 not in shape:
            # Only axes of one element move.
            return tf.reshape(x, [-1 if size is None else size for size in shape])
        bits = tf.bitcast(x, _INTEGERS[x.dtype.size])
        return tf.bitcast(tf.transpose(bits, order), x.dtype)


def _on_one_thread(x, y, transpose_b):
    """Returns a batched product by TensorFlow's own kernel: oneDNN does not take this operation."""
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose_b)


class TransposedProducts(StepProducts):
    """Multiplies with transposed copies of the output matrices."""

    def __init__(self, matrices, output_matrices, dtype, precompute):
        del matrices

        def multiplier(matrix):
            copy = precompute(
                _key("transposed", matrix, dtype),
                lambda: tf.transpose(tf.cast(tf.convert_to_tensor(matrix), dtype)),
            )  # [width, vocab]
            return lambda x: tf.cast(tf.matmul(tf.cast(x, dtype), copy), x.dtype)

        super().__init__((matrix, multiplier(matrix)) for matrix in output_matrices)


class PackedProducts(StepProducts):
    """Multiplies with packed copies of all matrices, [blocks, width, 64]."""

    def __init__(self, matrices, output_matrices, dtype, precompute):
        def of_kernel(kernel, *low_rank):
            blocks = precompute(
                _key("packed", kernel, dtype),
                lambda: _pack(merged_kernel(kernel, *low_rank), dtype),
            )
            return lambda x: _packed_matmul(x, blocks, kernel.shape[1])

        def of_output(matrix):
            blocks = precompute(
                _key("packed, transposed", matrix, dtype),
                lambda: _pack(matrix, dtype, transposed=True),
            )
            return lambda x: _packed_matmul(x, blocks, matrix.shape[0])

        super().__init__(
            [(factors[0], of_kernel(*factors)) for factors in matrices]
            + [(matrix, of_output(matrix)) for matrix in output_matrices]
        )


def _key(form, variable, dtype):
    """Returns a key for `precompute`. Models may share one, so that it identifies the variable."""
    return form, dtype, id(variable)


def _pack(matrix, dtype, transposed=False):
    """Returns [blocks, width, 64] of a matrix [width, columns], or transposed [columns, width]."""
    matrix = tf.cast(tf.convert_to_tensor(matrix), dtype)
    columns, width = matrix.shape if transposed else matrix.shape[::-1]
    blocks = -(-columns // _BLOCK)
    missing = [0, blocks * _BLOCK - columns]
    if transposed:
        parts = tf.reshape(tf.pad(matrix, [missing, [0, 0]]), [blocks, _BLOCK, width])
        return tf.transpose(parts, [0, 2, 1])
    parts = tf.reshape(tf.pad(matrix, [[0, 0], missing]), [width, blocks, _BLOCK])
    return tf.transpose(parts, [1, 0, 2])


def _packed_matmul(x, blocks, columns):
    """Returns [rows, columns] of x [rows, width] and a packed matrix [blocks, width, 64]."""
    y = tf.matmul(tf.cast(x, blocks.dtype)[tf.newaxis], blocks)  # [blocks, rows, 64]
    bits = tf.transpose(tf.bitcast(y, _INTEGERS[y.dtype.size]), [1, 0, 2])
    y = tf.bitcast(bits, y.dtype)  # [rows, blocks, 64]
    return tf.cast(tf.reshape(y, [-1, blocks.shape[0] * _BLOCK])[:, :columns], x.dtype)


# int8 ---------------------------------------------------------------------------------------------


def in_int8(matrices):
    """Context manager, in a graph: products with the given matrices in the block are in int8.

    Args:
        matrices: list of (variable, `Int8Matrix` of variables), whose rows are outputs: the
            transpose of a kernel [width, columns] that `matmul` gets, a matrix [vocab, width] that
            `logits`, `partial_logits` and `lookup` get as it is. With LoRA, of kernel + A B.
    """
    return traced_with(dataclasses.replace(options(), products=Int8Products(matrices)))


class Int8Products(Products):
    """Products in int8 with some matrices, see `in_int8`; all others are plain."""

    def __init__(self, matrices):
        self._matrices = _Table(matrices)

    def matmul(self, x, kernel, *low_rank):
        matrix = self._matrices.get(kernel)
        return int8.product(x, matrix) if matrix else super().matmul(x, kernel, *low_rank)

    def logits(self, x, matrix):
        found = self._matrices.get(matrix)
        return int8.product(x, found) if found else super().logits(x, matrix)

    def partial_logits(self, ids, matrix, dtype):
        found = self._matrices.get(matrix)
        return (
            int8.partial_logits(ids, found) if found else super().partial_logits(ids, matrix, dtype)
        )

    def lookup(self, ids, matrix):
        found = self._matrices.get(matrix)
        return int8.lookup(ids, found) if found else super().lookup(ids, matrix)

    def of_steps(self, matrices, output_matrices, dtype, precompute):
        del dtype, precompute
        variables = [*(kernel for kernel, *_ in matrices), *output_matrices]
        return Int8StepProducts(self._matrices, variables)


class Int8StepProducts(StepProducts, Int8Products):
    """Products of steps, in int8 with some matrices: what depends only on these is made once."""

    def __init__(self, table, variables):
        held = ((variable, table.get(variable)) for variable in variables)
        super().__init__((variable, int8.multiplier(m)) for variable, m in held if m)
        self._matrices = table
