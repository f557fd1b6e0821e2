"""Operations of a decoding step: plain forms, and fast forms for CPUs.

A step of beam search multiplies [sentences · beams, model_dim] with every matrix of the decoder.
The layers take a `Kernels` as an argument and call its methods. `PLAIN` is the definition and the
default everywhere. `run_with_step_kernels` chooses for a whole search, once, by its rows.

With few rows a product takes as long as its matrix takes to be read. Packed in blocks of 64
columns, each in one piece of memory, a matrix is read in 0.6 of the time ([4, 512] by
[512, 37000]); one sentence of base, beam 4, takes 0.81 of the time. Packing is slower from about 64
rows on, and in small models, whose matrices stay in the CPU caches.

oneDNN's kernels split every operation between the threads, however small it is:

- Batched products and softmaxes of few rows take 31 to 53 µs, in TensorFlow's own kernels 5 to 13:
  one sentence of tiny takes 43 ms instead of 73. If each head has one query, these are the faster
  ones in float32 for any number of rows: greedy search of tiny, batch 64, takes 0.8 of the time.
- A transpose of [1, 4, 8, 64] takes 50 µs, in TensorFlow's own kernel 3: one sentence of base,
  beam 4, takes 0.8 of the time, 64 sentences of tiny 0.9.
"""

import functools
import math

import tensorflow as tf

from t2t_keras.ops.switch import fast_forms

_BLOCK = 64  # columns
_MIN_PACKED_WEIGHTS = 2**22  # smaller decoders stay in the caches
_MAX_PACKED_ROWS = {"float32": 32, "bfloat16": 128}
_INTEGERS = {2: tf.int16, 4: tf.int32, 8: tf.int64}  # by bytes
_MAX_QUERY_ELEMENTS = 2048  # rows · model_dim up to which small batched products are faster


class Kernels:
    """The plain operations of a decoding step, which define the others."""

    def matmul(self, x, kernel, *low_rank):
        """Returns x [rows, width] · kernel, a variable [width, columns].

        With LoRA `low_rank` are A [width, rank] and B [rank, columns], and x A B is added.
        """
        y = tf.matmul(x, kernel)
        return y + functools.reduce(tf.matmul, low_rank, x) if low_rank else y

    def output_logits(self, x, matrix):
        """Returns x [rows, width] · matrixᵀ, a variable [classes, width], in the dtype of x."""
        return tf.matmul(x, tf.cast(tf.convert_to_tensor(matrix), x.dtype), transpose_b=True)

    def batch_matmul(self, x, y, transpose_b=False):
        """Returns x · y, or x · yᵀ, of tensors [..., rows, columns]."""
        return tf.matmul(x, y, transpose_b=transpose_b)

    def softmax(self, x):
        """Returns the softmax of float32 x over the last axis."""
        return tf.nn.softmax(x)

    def transpose(self, x, order):
        """Returns x with its axes in another order."""
        return tf.transpose(x, order)


PLAIN = Kernels()


def make_now(key, make):
    """Returns make(): a `derive` without a cache, for graphs whose weights may change."""
    del key
    return make()


def _key(form, variable, dtype):
    """Returns a key for `derive`. Models may share one, so that it identifies the variable."""
    return form, dtype, id(variable)


class _IntegerTranspose(Kernels):
    """`Kernels` that transpose the bits of x as integers, which oneDNN's kernel does not take."""

    def transpose(self, x, order):
        shape = [x.shape[axis] for axis in order]
        longer = [axis for axis in order if x.shape[axis] != 1]
        if longer == sorted(longer) and shape.count(None) == 1 and 0 not in shape:
            # Only axes of one element move.
            return tf.reshape(x, [-1 if size is None else size for size in shape])
        bits = tf.bitcast(x, _INTEGERS[x.dtype.size])
        return tf.bitcast(tf.transpose(bits, order), x.dtype)


class _TransposedOutput(_IntegerTranspose):
    """`Kernels` with a transposed copy of the output matrix, made once for a search.

    The product with [vocab, model_dim]ᵀ takes up to 40 % longer than with its transposed copy.
    """

    def __init__(self, output_matrix, dtype, derive):
        self.transposed = derive(
            _key("transposed", output_matrix, dtype),
            lambda: tf.transpose(tf.cast(tf.convert_to_tensor(output_matrix), dtype)),
        )

    def output_logits(self, x, matrix):
        del matrix
        return tf.matmul(x, self.transposed)


class _SmallBatch(Kernels):
    """Batched products and softmaxes by kernels that run on the calling thread."""

    def batch_matmul(self, x, y, transpose_b=False):
        float_x, float_y = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
        product = tf.raw_ops.BatchMatMulV3(x=float_x, y=float_y, Tout=tf.float32, adj_y=transpose_b)
        return tf.cast(product, x.dtype)

    def softmax(self, x):
        return tf.exp(tf.nn.log_softmax(x))


class _SingleQuery(Kernels):
    """Like `_SmallBatch`, for one query per head, as in greedy search."""

    def batch_matmul(self, x, y, transpose_b=False):
        return _kernels_for_queries(x).batch_matmul(x, y, transpose_b)

    def softmax(self, x):
        return _kernels_for_queries(x).softmax(x)


def _kernels_for_queries(x):
    """Returns the `Kernels` for x [..., query, width]."""
    return _SmallBatch() if x.shape[-2] == 1 else PLAIN


class _ManyRows(_TransposedOutput, _SingleQuery):
    """For many rows in float32."""


class _SmallModel(_TransposedOutput, _SmallBatch):
    """For few rows of a model whose matrices stay in the caches."""


class _Packed(_IntegerTranspose):
    """For few rows of a large model: every matrix in blocks of columns."""

    def __init__(self, kernels, output_matrix, dtype, derive):
        self.blocks = {
            id(factors[0]): derive(
                _key("packed", factors[0], dtype),
                lambda f=factors: _pack(merged_kernel(*f), dtype),
            )
            for factors in kernels
        }
        self.output_blocks = derive(
            _key("packed, transposed", output_matrix, dtype),
            lambda: _pack(output_matrix, dtype, transpose=True),
        )

    def matmul(self, x, kernel, *low_rank):
        del low_rank  # its product is in the blocks
        return self._multiply(x, self.blocks[id(kernel)], kernel.shape[1])

    def output_logits(self, x, matrix):
        return self._multiply(x, self.output_blocks, matrix.shape[0])

    def _multiply(self, x, blocks, columns):
        """Returns [rows, columns] of x [rows, width] and blocks [blocks, width, 64]."""
        y = self.transpose(tf.matmul(x[tf.newaxis], blocks), [1, 0, 2])  # [rows, blocks, 64]
        return tf.reshape(y, [-1, blocks.shape[0] * _BLOCK])[:, :columns]


class _PackedSmallBatch(_Packed, _SmallBatch):
    """`_Packed` matrices with the batched products of `_SmallBatch`."""


def merged_kernel(kernel, *low_rank):
    """Returns kernel + A B, a tensor in the dtype of the kernel; without LoRA the kernel."""
    kernel = tf.convert_to_tensor(kernel)
    if not low_rank:
        return kernel
    left, right = (tf.cast(tf.convert_to_tensor(factor), tf.float32) for factor in low_rank)
    return tf.cast(tf.cast(kernel, tf.float32) + tf.matmul(left, right), kernel.dtype)


def _pack(matrix, dtype, transpose=False):
    """Returns [blocks, width, 64] of a matrix [width, columns] (transpose: [columns, width])."""
    matrix = tf.cast(tf.convert_to_tensor(matrix), dtype)
    columns, width = matrix.shape if transpose else matrix.shape[::-1]
    blocks = -(-columns // _BLOCK)
    missing = [0, blocks * _BLOCK - columns]
    if transpose:
        parts = tf.reshape(tf.pad(matrix, [missing, [0, 0]]), [blocks, _BLOCK, width])
        return tf.transpose(parts, [0, 2, 1])
    parts = tf.reshape(tf.pad(matrix, [[0, 0], missing]), [width, blocks, _BLOCK])
    return tf.transpose(parts, [1, 0, 2])


def run_with_step_kernels(search, *, rows, kernels, output_matrix, dtype, derive=make_now):
    """Returns search(kernels) with the `Kernels` that are fastest for its steps.

    Args:
        search: function of `Kernels` to a nest of tensors. It may be called twice in one graph,
            once for each branch of a condition on the rows.
        rows: int32 scalar, sentences · beams, most rows of a step.
        kernels: list of what a step passes to `Kernels.matmul`: (variable [width, columns],), or
            with LoRA (variable, A, B).
        output_matrix: variable [vocab, model_dim] of the output projection.
        dtype: str, compute dtype.
        derive: function (key, make) → tensor, which keeps tensors that depend on weights alone. As
            long as it keeps one it must keep `make`, so that the variable in it stays alive.
    """
    if not fast_forms():
        return search(PLAIN)
    packs = sum(math.prod(kernel.shape) for kernel, *_ in kernels) >= _MIN_PACKED_WEIGHTS
    row_limit = max(_MAX_QUERY_ELEMENTS // output_matrix.shape[1], 1)
    if packs:
        row_limit = _MAX_PACKED_ROWS.get(dtype, row_limit)

    def search_few():
        if not packs:
            return search(_SmallModel(output_matrix, dtype, derive))
        kind = _PackedSmallBatch if dtype == "float32" else _Packed
        return search(kind(kernels, output_matrix, dtype, derive))

    def search_many():
        kind = _ManyRows if dtype == "float32" else _TransposedOutput
        return search(kind(output_matrix, dtype, derive))

    return tf.cond(tf.convert_to_tensor(rows) <= row_limit, search_few, search_many)
