"""Matrix products, softmax and transposes: plain forms, and fast ones for decoding on CPUs.

Layers call `matmul`, `logits`, `lookup`, `batch_matmul`, `softmax` and `transpose`, a shortlist
`partial_logits`. Their plain forms, a few lines each, are the definition; training runs them. A
search chooses faster forms once for its steps, by the rows of a step (`run_with_step_products`): a
step multiplies [sentences · beams, model_dim] with every matrix of the decoder. `_CHOICES` lists
the choices. `in_int8` uses int8 for matrices, in searches and everywhere else.

**Packed.** With few rows, reading the matrix takes most of the time of a product. Packed in blocks
of 64 columns, each contiguous in memory, a matrix is read in 0.6 of the time ([4, 512] by
[512, 37000]); one sentence of base, beam 4, takes 0.81 of the time. Packing is slower above
32 rows in float32 and 128 in bfloat16, and in small models, whose matrices stay in the CPU caches.

**Transposed.** The product with [vocab, model_dim]ᵀ takes up to 40 % longer than with a transposed
copy, made once for a search.

**One thread.** oneDNN's kernels split every operation between the threads, however small it is:

- Batched products and softmaxes of few rows take 31 to 53 µs, and 5 to 13 µs in TensorFlow's own
  kernels, which run on the calling thread: one sentence of tiny takes 43 ms instead of 73. If each
  head has one query, these kernels are faster in float32 for any number of rows: greedy search of
  tiny, batch 64, takes 0.8 of the time.
- A transpose of [1, 4, 8, 64] takes 50 µs, and 3 µs in TensorFlow's own kernel: one sentence of
  base, beam 4, takes 0.8 of the time, 64 sentences of tiny 0.9.

**int8.** On CPUs with VNNI a product takes a third to a half of its time in float32 (see
`ops.int8`), the quantization of its rows included. Each node keeps a reordered copy of its matrix,
which is the same for any number of rows: one search serves them all, with one copy.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.ops import int8
from t2t_keras.ops.indices import to_index
from t2t_keras.ops.trace import fast_forms, options, traced_with

_BLOCK = 64  # columns
_MIN_PACKED_WEIGHTS = 2**22  # smaller decoders stay in the caches
_MAX_PACKED_ROWS = {"float32": 32, "bfloat16": 128}
_INTEGERS = {2: tf.int16, 4: tf.int32, 8: tf.int64}  # by bytes
_MAX_QUERY_ELEMENTS = 2048  # rows · model_dim up to which small batched products are faster


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
    """Returns the rows ids, integers [...], of a matrix [vocab, width]: [..., width]."""
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


class Products(NamedTuple):
    """The forms of these functions in a graph; all forms have the same arguments and results."""

    matmul: Callable
    logits: Callable
    partial_logits: Callable
    lookup: Callable
    batch_matmul: Callable
    softmax: Callable
    transpose: Callable


def _products():
    return options().products or PLAIN


# Plain forms --------------------------------------------------------------------------------------


def _matmul(x, kernel, *low_rank):
    y = tf.matmul(x, kernel)
    return y + functools.reduce(tf.matmul, low_rank, x) if low_rank else y


def _logits(x, matrix):
    return tf.matmul(x, tf.cast(tf.convert_to_tensor(matrix), x.dtype), transpose_b=True)


def _partial_logits(ids, matrix, dtype):
    columns = tf.transpose(tf.cast(_lookup(ids, matrix), dtype))  # [width, ids]
    return lambda x: tf.matmul(x, columns)


def _lookup(ids, matrix):
    return tf.gather(matrix, to_index(ids))


def _batch_matmul(x, y, transpose_b):
    return tf.matmul(x, y, transpose_b=transpose_b)


PLAIN = Products(
    _matmul, _logits, _partial_logits, _lookup, _batch_matmul, tf.nn.softmax, tf.transpose
)


# Fast forms for CPUs ------------------------------------------------------------------------------


def _integer_transpose(x, order):
    """Transposes the bits of x as integers, which oneDNN's kernel does not take."""
    shape = [x.shape[axis] for axis in order]
    longer = [axis for axis in order if x.shape[axis] != 1]
    if longer == sorted(longer) and shape.count(None) == 1 and 0 not in shape:
        # Only axes of one element move.
        return tf.reshape(x, [-1 if size is None else size for size in shape])
    bits = tf.bitcast(x, _INTEGERS[x.dtype.size])
    return tf.bitcast(tf.transpose(bits, order), x.dtype)


def _one_thread_batch_matmul(x, y, transpose_b):
    float_x, float_y = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
    product = tf.raw_ops.BatchMatMulV3(x=float_x, y=float_y, Tout=tf.float32, adj_y=transpose_b)
    return tf.cast(product, x.dtype)


def _one_thread_softmax(x):
    return tf.exp(tf.nn.log_softmax(x))


def _single_query_batch_matmul(x, y, transpose_b):
    form = _one_thread_batch_matmul if x.shape[-2] == 1 else _batch_matmul
    return form(x, y, transpose_b)


def _single_query_softmax(x):
    return _one_thread_softmax(x) if x.shape[-2] == 1 else tf.nn.softmax(x)


def _packed_matmul(x, blocks, columns):
    """Returns [rows, columns] of x [rows, width] and a packed matrix [blocks, width, 64]."""
    y = _integer_transpose(tf.matmul(x[tf.newaxis], blocks), [1, 0, 2])  # [rows, blocks, 64]
    return tf.reshape(y, [-1, blocks.shape[0] * _BLOCK])[:, :columns]


def merged_kernel(kernel, *low_rank):
    """Returns kernel + A B, a tensor in the dtype of the kernel; without LoRA the kernel."""
    kernel = tf.convert_to_tensor(kernel)
    if not low_rank:
        return kernel
    left, right = (tf.cast(tf.convert_to_tensor(factor), tf.float32) for factor in low_rank)
    return tf.cast(tf.cast(kernel, tf.float32) + tf.matmul(left, right), kernel.dtype)


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


# The choice for a search --------------------------------------------------------------------------

_CHOICES = {
    # model, rows, dtype: form of products with matrices, of batched products and softmaxes
    ("small", "few", "float32"): ("transposed", "one thread"),
    ("small", "few", "16 bits"): ("transposed", "one thread"),
    ("small", "many", "float32"): ("transposed", "one thread for one query"),
    ("small", "many", "16 bits"): ("transposed", "plain"),
    ("large", "few", "float32"): ("packed", "one thread"),
    ("large", "few", "16 bits"): ("packed", "plain"),
    ("large", "many", "float32"): ("packed logits", "one thread for one query"),
    ("large", "many", "16 bits"): ("transposed", "plain"),
    ("small", "any", "int8"): ("int8", "one thread"),
    ("large", "any", "int8"): ("int8", "one thread"),
}

_BATCHED = {
    "plain": (_batch_matmul, tf.nn.softmax),
    "one thread": (_one_thread_batch_matmul, _one_thread_softmax),
    "one thread for one query": (_single_query_batch_matmul, _single_query_softmax),
}


def compute_now(key, make):
    """Returns make(): a `precompute` without a cache, for graphs whose weights may change."""
    del key
    return make()


def few_rows(rows, *, matrices, output_matrices, dtype):
    """Returns whether a search with `rows`, an int, takes the forms for few; None: it has one form.

    The other arguments are as for `run_with_step_products`.
    """
    return rows <= _kind_of(matrices, output_matrices, dtype)[2] if fast_forms() else None


def _kind_of(matrices, output_matrices, dtype):
    """Returns whether a model is large, its number format, and the most rows that are few."""
    large = sum(math.prod(kernel.shape) for kernel, *_ in matrices) >= _MIN_PACKED_WEIGHTS
    width = output_matrices[0].shape[1] if output_matrices else matrices[0][0].shape[0]
    most = max(_MAX_QUERY_ELEMENTS // width, 1)
    number_format = "float32" if dtype == "float32" else "16 bits"
    if options().int8:
        number_format = "int8"
    elif large:
        most = _MAX_PACKED_ROWS.get(dtype, most)
    return large, number_format, most


def run_with_step_products(
    search, *, rows, matrices, output_matrices, dtype, precompute=compute_now
):
    """Returns search(), traced with the products that are fastest for its steps.

    Args:
        search: function to a nest of tensors. It is called twice in one graph, once for each branch
            of a condition on the rows, unless int8 or `TraceOptions.few_rows` decides.
        rows: int32 scalar, sentences · beams, most rows of a step.
        matrices: list of the steps' arguments of `matmul`: (variable [width, columns],), or with
            LoRA (variable, A, B).
        output_matrices: list of variables [vocab, model_dim], the output projections of one model
            or several; empty: steps multiply with other columns.
        dtype: str, compute dtype.
        precompute: function (key, make) → tensor, which keeps tensors that depend only on weights.
            As long as it keeps one it must keep `make`, so that the variable in it stays alive.
    """
    if not fast_forms():
        return search()
    large, number_format, most = _kind_of(matrices, output_matrices, dtype)

    def search_with(rows):
        choice = ("large" if large else "small", rows, number_format)
        of_matrices, batched = _CHOICES[choice]
        form = _FORMS_OF_MATRICES[of_matrices]
        matmul, logits = form(matrices, output_matrices, dtype, precompute)
        rest = dict(zip(("batch_matmul", "softmax"), _BATCHED[batched], strict=True))
        products = _products()._replace(
            matmul=matmul, logits=logits, transpose=_integer_transpose, **rest
        )
        with traced_with(dataclasses.replace(options(), products=products)):
            return search()

    if number_format == "int8":
        return search_with("any")
    if options().few_rows is not None:
        return search_with("few" if options().few_rows else "many")
    return tf.cond(
        tf.convert_to_tensor(rows) <= most, lambda: search_with("few"), lambda: search_with("many")
    )


def _transposed(matrices, output_matrices, dtype, precompute):
    """Returns matmul, and logits by transposed copies of the output matrices."""
    del matrices

    def of_output(matrix):
        copy = precompute(
            _key("transposed", matrix, dtype),
            lambda: tf.transpose(tf.cast(tf.convert_to_tensor(matrix), dtype)),
        )  # [width, vocab]
        return lambda x: tf.matmul(x, copy)

    return _matmul, _by_matrix({id(m): of_output(m) for m in output_matrices}, _logits)


def _packed(matrices, output_matrices, dtype, precompute):
    """Returns matmul and logits by packed copies of all matrices."""

    def of_kernel(kernel, *low_rank):
        blocks = precompute(
            _key("packed", kernel, dtype), lambda: _pack(merged_kernel(kernel, *low_rank), dtype)
        )
        return lambda x: _packed_matmul(x, blocks, kernel.shape[1])

    by_kernel = {id(factors[0]): of_kernel(*factors) for factors in matrices}
    _, logits = _packed_logits([], output_matrices, dtype, precompute)
    return _by_matrix(by_kernel, _matmul), logits


def _packed_logits(matrices, output_matrices, dtype, precompute):
    """Returns matmul, and logits by packed copies of the output matrices."""
    del matrices

    def of_output(matrix):
        blocks = precompute(
            _key("packed, transposed", matrix, dtype), lambda: _pack(matrix, dtype, transposed=True)
        )
        return lambda x: _packed_matmul(x, blocks, matrix.shape[0])

    return _matmul, _by_matrix({id(m): of_output(m) for m in output_matrices}, _logits)


def _key(form, variable, dtype):
    """Returns a key for `precompute`. Models may share one, so that it identifies the variable."""
    return form, dtype, id(variable)


def _by_matrix(products, plain):
    """Returns a function that selects from `products` by the matrix's id, else `plain`."""

    def product(x, matrix, *others):
        known = products.get(id(matrix))
        return plain(x, matrix, *others) if known is None else known(x)

    return product


def _int8(matrices, output_matrices, dtype, precompute):
    """Returns matmul and logits in int8; the parts that depend only on matrices are made here."""
    del dtype, precompute

    def by_id(variables):
        held = {id(variable): options().int8.get(id(variable)) for variable in variables}
        return {key: int8.multiplier(matrix) for key, matrix in held.items() if matrix}

    kernels = [kernel for kernel, *_ in matrices]
    return _by_matrix(by_id(kernels), _matmul), _by_matrix(by_id(output_matrices), _logits)


_FORMS_OF_MATRICES = {
    "transposed": _transposed,
    "packed": _packed,
    "packed logits": _packed_logits,
    "int8": _int8,
}


# int8 ---------------------------------------------------------------------------------------------


def in_int8(matrices):
    """Context manager, in a graph: products with the given matrices in the block are in int8.

    Args:
        matrices: list of (variable, `Int8Matrix` of variables), whose rows are outputs: the
            transpose of a kernel [width, columns] that `matmul` gets, a matrix [vocab, width] that
            `logits`, `partial_logits` and `lookup` get as it is. With LoRA, of kernel + A B.
    """

    def form(function, plain):
        by_id = {id(variable): functools.partial(function, matrix=m) for variable, m in matrices}
        return _by_matrix(by_id, plain)

    products = PLAIN._replace(
        matmul=form(int8.product, _matmul),
        logits=form(int8.product, _logits),
        partial_logits=form(int8.partial_logits, _partial_logits),
        lookup=form(int8.lookup, _lookup),
    )
    held = {id(variable): matrix for variable, matrix in matrices}
    return traced_with(dataclasses.replace(options(), products=products, int8=held))
