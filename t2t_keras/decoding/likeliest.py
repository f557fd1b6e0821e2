"""The likeliest tokens of a large vocabulary, in few passes over its logits."""

import math

import tensorflow as tf

from t2t_keras.ops.top_k import top_k as largest


def likeliest(logits, count):
    """Finds the best tokens and what makes logits logarithms of probabilities.

    Tokens of equal logits stand in the order of their ids.

    Args:
        logits: float32 [rows, vocab]; vocab must be known statically.
        count: int up to vocab, tokens wanted of each row.

    Returns:
        Logits float32 [rows, count] of the best tokens, best first; the tokens int32 [rows,
        count]; the logarithm of Σ exp(logits), float32 [rows, 1].
    """
    values, tokens = largest(logits, count)
    return values, tokens, _log_sum_exp(logits, values, tokens)


def _log_sum_exp(logits, values, tokens):
    """Returns log Σ exp(logits), float32 [rows, 1], by the best tokens' logits and themselves.

    It is logit - log p of any token, and of the best one p is never 0. TensorFlow's softmax is one
    pass over the logits, where a sum of exponentials is three.
    """
    best = tf.gather(tf.nn.softmax(logits), tokens[:, :1], batch_dims=1)
    # Where nothing is allowed, all logits are -inf, and the softmax is NaN.
    return tf.where(tf.math.is_finite(values[:, :1]), values[:, :1] - tf.math.log(best), -math.inf)
