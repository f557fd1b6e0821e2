"""Cross-entropy with smoothed labels (paper, section 5.4), and fused with the output projection.

`smoothed_cross_entropy` is the definition, on logits. `linear_cross_entropy` multiplies with the
vocabulary itself: on CPUs logits, probabilities and both gradients exist for a chunk of rows at a
time, so that memory is bounded whatever the batch; the plain form holds all logits. A training step
with 25,000 tokens and 37,000 words needs 1.1 GB instead of 7.7 GB (one layer).
"""

import dataclasses

import tensorflow as tf

from t2t_keras.ops.dense import sum_rows
from t2t_keras.ops.switch import fast_forms
from t2t_keras.ops.top_k import argmax

_MAX_CHUNK = 2**26  # logits in memory; float32: 256 MiB
_CACHED_CHUNK = 3 * 2**20  # logits that stay in the caches from one operation to the next
_MIN_PROBABILITY = 1e-30  # smallest label probability whose logarithm is used directly


@dataclasses.dataclass(frozen=True)
class LossTerms:
    """A loss, and softmax values for the metrics; no gradient flows through the latter.

    Attributes:
        loss: float32 scalar.
        log_probability: log p(label), float32 [...].
        argmax: the most probable class, int32 [...]; None where it was not computed.
    """

    loss: tf.Tensor
    log_probability: tf.Tensor
    argmax: tf.Tensor | None


def log_probability(labels, logits):
    """Returns log p(label), float32 [...], of int labels [...] and logits [..., classes]."""
    logits = tf.cast(logits, tf.float32)
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), logits)


def smoothed_cross_entropy(labels, logits, smoothing):
    """Cross-entropy against (1 - ε) of the label and ε of the uniform distribution (section 5.4).

    With V classes it is (1 - ε) · -log p(label) - ε / V · Σ log p.

    Args:
        labels: int [...].
        logits: [..., classes], any floating type; the computation is in float32.
        smoothing: ε, 0 to 1.

    Returns:
        float32 [...].
    """
    logits = tf.cast(logits, tf.float32)  # once, so that gradients add up in float32
    cross_entropy = -log_probability(labels, logits)
    if not smoothing:
        return cross_entropy
    uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
    return (1.0 - smoothing) * cross_entropy + smoothing * uniform


def linear_cross_entropy(
    hidden, matrix, labels, weights, smoothing, compute_argmax=True, max_logits=None, bias=None
):
    """Returns Σ weight · smoothed cross-entropy of the logits hidden · matrixᵀ + bias.

    With p = softmax(logits), on = 1 - ε and off = ε / V, the gradient by a row's logits is
    p - on · onehot - off, and by the two factors h and E of the product

        (p - on · onehot) E - off · Σ_v E_v   and   (p - on · onehot)ᵀ h - off · Σ h;

    by the bias it is the second with h = 1.

    The fast form computes both on the forward pass, chunk by chunk, and scales them on the backward
    pass; the constant `off` never enters the large matrix. In bfloat16 the logits are as exact as
    the product.

    Args:
        hidden: [..., model_dim].
        matrix: [classes, model_dim], multiplied in the dtype of hidden.
        labels: int [...].
        weights: float32 [...].
        smoothing: ε, 0 to 1.
        compute_argmax: whether to compute the most probable classes, for a metric.
        max_logits: logits of a chunk, at least those of one row; None: the fastest number.
        bias: float32 [classes], or None.

    Returns:
        `LossTerms` with a loss that has gradients by hidden, matrix and bias.
    """
    labels = tf.cast(labels, tf.int32)
    biases = [] if bias is None else [tf.convert_to_tensor(bias)]
    if not fast_forms():
        logits = tf.matmul(hidden, tf.cast(matrix, hidden.dtype), transpose_b=True)
        logits = sum(biases, tf.cast(logits, tf.float32))
        loss = tf.reduce_sum(smoothed_cross_entropy(labels, logits, smoothing) * weights)
        found = tf.stop_gradient(log_probability(labels, logits))
        best = tf.argmax(logits, axis=-1, output_type=tf.int32) if compute_argmax else None
        return LossTerms(loss, found, best)
    vocab, model_dim = matrix.shape
    if max_logits is None:
        # Each chunk adds to a gradient [vocab, model_dim]: small chunks pay where that is small.
        max_logits = _CACHED_CHUNK if vocab * model_dim <= _CACHED_CHUNK else _MAX_CHUNK
    chunk_rows = max(max_logits // vocab, 1)
    flat_labels, flat_weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])

    @tf.custom_gradient
    def loss_of(rows, matrix, *biases):  # one or none
        chunks = _Chunks(rows, matrix, biases, flat_labels, flat_weights, smoothing, compute_argmax)
        loss, d_rows, d_matrix, d_bias, found, best = chunks.add_up(chunk_rows)

        def gradient(upstream, *_):  # scalar
            d_rows_up = tf.cast(d_rows * upstream, rows.dtype)
            d_biases_up = [d_bias * upstream for _ in biases]
            return d_rows_up, tf.cast(d_matrix * upstream, matrix.dtype), *d_biases_up

        return (loss, found, best), gradient

    loss, found, best = loss_of(tf.reshape(hidden, [-1, model_dim]), matrix, *biases)
    found, best = (tf.reshape(tf.stop_gradient(term), tf.shape(labels)) for term in (found, best))
    return LossTerms(loss, found, best if compute_argmax else None)


class _Chunks:
    """The fast form: rows [rows, model_dim] of a batch, a chunk at a time."""

    def __init__(self, rows, matrix, biases, labels, weights, smoothing, compute_argmax):
        self.rows, self.labels, self.weights = rows, labels, weights
        self.matrix = tf.cast(matrix, rows.dtype)
        self.matrix_sum = sum_rows(tf.cast(matrix, tf.float32))  # [model_dim]
        self.biases = biases
        self.on, self.off = 1.0 - smoothing, smoothing / matrix.shape[0]
        self.compute_argmax = compute_argmax

    def add_up(self, size):
        """Returns loss, d_rows, d_matrix, d_bias, log p(label) and classes, the last two [rows].

        Args:
            size: int, rows of a chunk.
        """
        count = tf.shape(self.rows)[0]

        def step(i, sums, arrays):
            parts, results = self.chunk(slice(i * size, (i + 1) * size))
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
            return i + 1, sums, [a.write(i, r) for a, r in zip(arrays, results, strict=True)]

        chunks = tf.maximum(-(-count // size), 1)  # of no rows: eagerly, arrays cannot be empty
        arrays = [
            tf.TensorArray(dtype, chunks, infer_shape=False, element_shape=shape)
            for dtype, shape in (
                (tf.float32, [None, self.matrix.shape[1]]),
                (tf.float32, [None]),
                (tf.int32, [None]),
            )
        ]
        sums = [tf.constant(0.0), tf.zeros(self.matrix.shape)]
        sums += [tf.zeros(bias.shape) for bias in self.biases]
        _, (loss, d_matrix, *d_bias), arrays = tf.while_loop(
            lambda i, *_: i < chunks, step, (tf.constant(0), sums, arrays), parallel_iterations=1
        )
        d_bias = d_bias[0] - self.off * tf.reduce_sum(self.weights) if d_bias else None
        weighted_sum = tf.linalg.matvec(
            tf.cast(self.rows, tf.float32), self.weights, transpose_a=True
        )  # [model_dim]
        d_rows, found, best = (array.concat() for array in arrays)
        return loss, d_rows, d_matrix - self.off * weighted_sum, d_bias, found, best

    def chunk(self, chunk):
        """Returns [loss, d_matrix, d_bias if any] and (d_rows, log p(label), classes) of rows."""
        rows, labels, weights = self.rows[chunk], self.labels[chunk], self.weights[chunk]
        logits = tf.cast(tf.matmul(rows, self.matrix, transpose_b=True), tf.float32)
        # Else TensorFlow moves the cast behind a reshape inside `argmax`, and casts twice.
        logits = tf.ensure_shape(logits, [None, self.matrix.shape[0]])
        logits = sum(self.biases, logits)
        probabilities = tf.nn.softmax(logits)  # [rows, vocab]
        label_logits, at_label = _at(logits, labels), _at(probabilities, labels)
        # log Σ exp(logits) is logit - log p of any class whose p is above 0.
        if self.compute_argmax:
            classes = argmax(logits)
        else:
            classes = tf.cond(
                tf.reduce_min(at_label) > _MIN_PROBABILITY, lambda: labels, lambda: argmax(logits)
            )
        log_normalizer = _at(logits, classes) - tf.math.log(_at(probabilities, classes))

        float_rows = tf.cast(rows, tf.float32)
        logit_sums = tf.linalg.matvec(float_rows, self.matrix_sum)
        logit_sums += sum(tf.reduce_sum(bias) for bias in self.biases)
        losses = log_normalizer - self.on * label_logits - self.off * logit_sums
        with tf.control_dependencies([losses]):  # the next line overwrites the probabilities
            difference = _with_label_column(
                tf.cast(probabilities, rows.dtype), labels, at_label - self.on
            )
        d_rows = tf.cast(tf.matmul(difference, self.matrix), tf.float32)
        d_rows = (d_rows - self.off * self.matrix_sum) * weights[:, tf.newaxis]
        weighted = tf.cast(float_rows * weights[:, tf.newaxis], rows.dtype)
        d_matrix = tf.cast(tf.matmul(difference, weighted, transpose_a=True), tf.float32)
        sums = [tf.reduce_sum(losses * weights), d_matrix]
        for _ in self.biases:
            columns = tf.cast(weights, difference.dtype)
            sums.append(
                tf.cast(tf.linalg.matvec(difference, columns, transpose_a=True), tf.float32)
            )
        return sums, (d_rows, label_logits - log_normalizer, classes)


def _at(values, columns):
    """Returns values[row, columns[row]] of each row."""
    return tf.gather_nd(values, tf.stack([tf.range(tf.size(columns)), columns], axis=1))


def _with_label_column(values, columns, new):
    """Returns values with values[row, columns[row]] = new[row], in the same memory where allowed.

    `tf.tensor_scatter_nd_update` copies the whole matrix.
    """
    rows, width = tf.unstack(tf.shape(values))
    updated = tf.raw_ops.InplaceUpdate(
        x=tf.reshape(values, [-1, 1]),
        i=tf.range(rows) * width + columns,
        v=tf.cast(new, values.dtype)[:, tf.newaxis],
    )
    return tf.reshape(updated, [rows, width])
