"""Of what two factors logits are the product, so that a loss can multiply its own way."""

from typing import NamedTuple

import tensorflow as tf


class SoftmaxTerms(NamedTuple):
    """What a loss found out of each token on its way; no gradient flows through it.

    Attributes:
        cross_entropy: -log p(label), float32 [...].
        best: the likeliest class, int32 [...]; None where it was not sought.
    """

    cross_entropy: tf.Tensor
    best: tf.Tensor | None = None


class LogitFactors:
    """The factors of logits = hidden · matrixᵀ.

    The product with the vocabulary is half of a small model's training step, and by far the most
    of its memory. A loss that knows the factors takes it in parts, and the gradient with it; the
    logits themselves are then needed by nobody, and TensorFlow leaves them out of the graph.

    Args:
        hidden: [..., model_dim], in the dtype of the product.
        matrix: float32 [vocab, model_dim].
        seek_best: whether a loss shall find out the likeliest classes on its way, for a metric.
            It takes one more pass over all logits.

    Attributes:
        terms: `SoftmaxTerms` for metrics of the same labels, once a loss has set them; else None.
    """

    def __init__(self, hidden, matrix, seek_best=True):
        self.hidden = hidden
        self.matrix = matrix
        self.seek_best = seek_best
        self.terms = None

    def multiply(self):
        """Returns the logits, float32 [..., vocab]."""
        vocab_size, model_dim = self.matrix.shape
        dtype = self.hidden.dtype
        rows = tf.reshape(self.hidden, [-1, model_dim])
        logits = tf.matmul(rows, tf.cast(self.matrix, dtype), transpose_b=True)
        shape = tf.concat([tf.shape(self.hidden)[:-1], [vocab_size]], axis=0)
        logits = tf.cast(tf.reshape(logits, shape), tf.float32)
        return tf.ensure_shape(logits, [*self.hidden.shape[:-1], vocab_size])


def remember_factors(logits, factors):
    """Notes on a tensor that it is the product of `LogitFactors`.

    Not on one whose numbers are there already, outside of a `tf.function`: nothing is to be saved.
    """
    if not tf.executing_eagerly():
        logits._t2t_keras_factors = factors


def factors_of(logits):
    """Returns the `LogitFactors` of a tensor that remembers them, else None."""
    return getattr(logits, "_t2t_keras_factors", None)
