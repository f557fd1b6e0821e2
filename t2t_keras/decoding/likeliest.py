"""The likeliest tokens of a large vocabulary, in few passes over its logits."""

import math

import tensorflow as tf

from t2t_keras.layers.largest import block_size


def likeliest(logits, count):
    """Finds the best tokens and what makes logits logarithms of probabilities.

    `tf.math.top_k` walks through all logits of a row. Here each row is cut into blocks and their
    maxima are found first: the best tokens stand in the `count` blocks of the greatest maxima, so
    that only those need a walk. Tokens of equal logits stand in the order of their ids, as in
    `tf.math.top_k`.

    Args:
        logits: float32 [rows, vocab]; vocab must be known statically.
        count: int up to vocab, tokens wanted of each row.

    Returns:
        Logits float32 [rows, count] of the best tokens, best first; the tokens int32 [rows,
        count]; the logarithm of Σ exp(logits), float32 [rows, 1].
    """
    vocab = logits.shape[-1]
    block = block_size(vocab, count)
    if block is None:
        values, tokens = tf.math.top_k(logits, count)
        return values, tokens, _log_sum_exp(logits, values, tokens)
    blocks = tf.reshape(logits, [-1, vocab // block, block])
    maxima = tf.reduce_max(blocks, axis=2)  # [rows, blocks]
    chosen = tf.math.top_k(maxima, count).indices
    chosen = tf.sort(chosen, axis=1)  # so that ids rise from block to block
    candidates = tf.gather(blocks, chosen, batch_dims=1)  # [rows, count, block]
    values, places = tf.math.top_k(tf.reshape(candidates, [-1, count * block]), count)
    tokens = tf.gather(chosen, places // block, batch_dims=1) * block + places % block
    return values, tokens, _log_sum_exp(logits, values, tokens)


def _log_sum_exp(logits, values, tokens):
    """Returns log Σ exp(logits), float32 [rows, 1], by the best tokens' logits and themselves.

    It is logit - log p of any token, and of the best one p is never 0. TensorFlow's softmax is one
    pass over the logits, where a sum of exponentials is three.
    """
    best = tf.gather(tf.nn.softmax(logits), tokens[:, :1], batch_dims=1)
    # Where nothing is allowed, all logits are -inf, and the softmax is NaN.
    return tf.where(tf.math.is_finite(values[:, :1]), values[:, :1] - tf.math.log(best), -math.inf)
