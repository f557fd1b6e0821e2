"""The largest elements of rows: `top_k`, `argmax`, and `top_k_log_softmax` for beam search.

TensorFlow's CPU kernels read a row element by element. The fast forms compute the maximum of each
block of a row with vector instructions, and search only blocks that can hold the largest elements.
"""

import functools
import math

import tensorflow as tf

from t2t_keras.ops.trace import fast_forms

TOP_K_BLOCK = 128
"""Rows of a width known only at run time are searched faster if it is a multiple of this."""

_MIN_BLOCK = 32


def top_k(values, k):
    """Returns the k largest elements of each row and their indices; ties: the lowest index first.

    They are float32 [rows, k], largest first, and int32 [rows, k], of float32 [rows, width]; k, at
    most width, is an int or an int32 [].
    """
    plain, width = functools.partial(tf.math.top_k, values, k), values.shape[-1]
    block = TOP_K_BLOCK if width is None else block_size(width, 16 if tf.is_tensor(k) else k)
    if block is None or not fast_forms():
        return tuple(plain())
    if width is not None and not tf.is_tensor(k):
        return _top_k_by_blocks(values, k, block)
    width = tf.shape(values)[-1]
    return tf.cond(
        (width % block == 0) & (width >= 4 * k * block),
        lambda: _top_k_by_blocks(values, k, block),
        lambda: tuple(plain()),
    )


def _top_k_by_blocks(values, k, block):
    """The fast form of `top_k`: 2.9 instead of 11.3 ms for 256 × 10,000, k = 8, on one thread."""
    width = values.shape[-1] or tf.shape(values)[-1]
    blocks = tf.reshape(values, [-1, width // block, block])
    # The k largest elements are in the k blocks of the largest maxima, or equal ones are.
    chosen = tf.math.top_k(tf.reduce_max(blocks, axis=2), k).indices  # [rows, k]
    chosen = tf.sort(chosen, axis=1)  # so that equal elements keep the order of their indices
    candidates = tf.gather(blocks, chosen, batch_dims=1)  # [rows, k, block]
    top, index = tf.math.top_k(tf.reshape(candidates, [-1, k * block]), k)
    return top, tf.gather(chosen, index // block, batch_dims=1) * block + index % block


def argmax(values):
    """Returns the index of the largest element of each row, int32 [rows]; ties: the lowest index.

    Args:
        values: float32 [rows, width]; the fast form needs a static width.
    """
    block = block_size(values.shape[-1], 1)
    if block is None or not fast_forms():
        return _argmax(values)
    return _argmax_by_blocks(values, block)


def _argmax(values):
    return tf.argmax(values, axis=-1, output_type=tf.int32)


def _argmax_by_blocks(values, block):
    """The fast form of `argmax`: 3.4 instead of 8.6 ms for 1,950 × 10,000 on one thread."""
    blocks = tf.reshape(values, [-1, values.shape[-1] // block, block])
    chosen = _argmax(tf.reduce_max(blocks, axis=2))  # [rows]
    return chosen * block + _argmax(tf.gather(blocks, chosen, batch_dims=1))


def top_k_log_softmax(logits, k):
    """Returns the k most likely ids of each row, their logits, and the log normalizer.

    log P of an id is its logit less the log normalizer: no softmax of the vocabulary is needed.

    Args:
        logits: float32 [rows, vocab].
        k: int up to vocab.

    Returns:
        The largest logits, float32 [rows, k], largest first, ties by the lowest id;
        their ids, int32 [rows, k]; log Σ exp(logits), float32 [rows, 1].
    """
    values, ids = top_k(logits, k)
    if not fast_forms():
        return values, ids, tf.reduce_logsumexp(logits, axis=1, keepdims=True)
    return values, ids, _log_normalizer(logits, values[:, :1], ids[:, :1])


def _log_normalizer(logits, value, index):
    """The fast form of `tf.reduce_logsumexp`: 4.7 instead of 4.9 ms for 256 × 10,000, two threads.

    It is logit - log p of the most likely id, whose p is never 0: value and index, [rows, 1], of
    logits float32 [rows, vocab]. `tf.nn.softmax` takes one pass, `tf.reduce_logsumexp` three.
    """
    probability = tf.gather(tf.nn.softmax(logits), index, batch_dims=1)  # [rows, 1]
    # The softmax of a row of -inf is NaN.
    return tf.where(tf.math.is_finite(value), value - tf.math.log(probability), -math.inf)


def block_size(width, k):
    """Returns the best size of the blocks in which to find the k largest elements of a row.

    It divides the width, an int or None if unknown; None if there is none, or blocks are not
    faster.
    """
    if width is None:
        return None
    sizes = range(TOP_K_BLOCK, _MIN_BLOCK - 1, -1)
    return next((size for size in sizes if width % size == 0 and width >= 4 * k * size), None)
