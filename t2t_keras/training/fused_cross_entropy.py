"""The product with the vocabulary, the smoothed cross-entropy and both gradients in one pass.

The plain formula writes logits, exponentials and the gradient by the logits, [tokens, vocab] each,
and reads them many times. Here some rows at a time become logits, probabilities, and at
once the gradients by both factors, so that memory is bounded whatever the batch and the vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.layers.logit_factors import SoftmaxTerms
from t2t_keras.layers.product_sums import column_sums
from t2t_keras.ops.top_k import argmax

_LARGEST_PART = 2**26  # logits that are in memory at a time; float32: 256 MiB
_CACHED_PART = 3 * 2**20  # logits that stay in the caches from one operation to the next
_SURE = 1e-30  # a probability that float32 knows as exactly as any greater one


def fused_cross_entropy(labels, factors, weights, smoothing, largest_part=None):
    """Returns Σ weight · smoothed cross-entropy, as `smoothed_cross_entropy` defines it.

    With p = softmax(logits), a label's share `on` = 1 - ε and every class's `off` = ε / V, the
    gradient by a token's logits is p - on · onehot - off, and by the factors h and E of the product

        (p - on · onehot) E - off · Σ_v E_v   and   (p - on · onehot)ᵀ h - off · Σ h.

    The constant `off` never enters the large matrix. The gradients are computed on the way forward
    and only scaled on the way back. In bfloat16 the loss knows the logits as well as the product
    gives them.

    Args:
        labels: int [...].
        factors: `LogitFactors` of logits [..., vocab]; its `terms` are set.
        weights: float32 [...].
        smoothing: ε, 0 to 1.
        largest_part: how many logits may be in memory at a time; never less than a row. None: as
            many as are soonest done.

    Returns:
        float32 scalar.
    """
    if largest_part is None:
        largest_part = _quickest_part(*factors.matrix.shape)
    return fused_loss(labels, [factors], weights, smoothing, _no_penalty, largest_part)


def _quickest_part(vocab, model_dim):
    """Returns how many logits are best taken at a time.

    Each part adds a gradient [vocab, model_dim] to that of the parts before: parts that fit in the
    caches pay only where their logits are no fewer numbers than that.
    """
    return _CACHED_PART if vocab * model_dim <= _CACHED_PART else _LARGEST_PART


def fused_loss(labels, passes, weights, smoothing, penalize, largest_part):
    """Returns Σ weight · the mean over passes of smoothed cross-entropy and a penalty.

    Args:
        labels: int [...].
        passes: `LogitFactors` of each pass, of logits [..., vocab] by one matrix; the `terms` of
            the first are set.
        weights: float32 [...].
        smoothing: ε, 0 to 1.
        penalize: function of the `SoftmaxRows` of all passes, one pass after the other, that
            returns each row's penalty, float32 [rows] or 0, and the probabilities plus the gradient
            by the logits of all rows' penalties together: float32 [rows, vocab], and what stands
            there at the labels, float32 [rows].
        largest_part: how many logits may be in memory at a time; never less than a row of each.

    Returns:
        float32 scalar.
    """
    first = passes[0]
    model_dim = first.matrix.shape[1]
    flat_labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
    flat_weights = tf.reshape(weights, [-1]) / len(passes)
    hidden = [tf.reshape(factors.hidden, [-1, model_dim]) for factors in passes]

    @tf.custom_gradient
    def loss_of(rows, matrix):
        parts = _Parts(
            rows, matrix, flat_labels, flat_weights, smoothing, penalize, first.seek_best
        )
        size = largest_part // (len(passes) * matrix.shape[0])
        loss, d_rows, d_matrix, terms = parts.add_up(max(size, 1))

        def gradient(upstream, *_):  # a scalar
            return tf.cast(d_rows * upstream, rows.dtype), tf.cast(d_matrix * upstream, dtype)

        return (loss, *terms), gradient

    matrix = tf.convert_to_tensor(first.matrix)
    dtype = matrix.dtype
    loss, *terms = loss_of(tf.concat(hidden, axis=1), matrix)
    shape = tf.shape(labels)
    entropies, classes = (tf.reshape(tf.stop_gradient(term), shape) for term in terms)
    first.terms = SoftmaxTerms(entropies, classes if first.seek_best else None)
    return loss


class SoftmaxRows(NamedTuple):
    """The softmax of some rows of logits, and what it says of their labels.

    Attributes:
        logits: float32 [rows, vocab].
        probabilities: float32 [rows, vocab].
        log_normalizer: log Σ exp(logits), float32 [rows].
        labels: int32 [rows].
        label_logits: float32 [rows].
        at_label: probability of the label, float32 [rows].
    """

    logits: tf.Tensor
    probabilities: tf.Tensor
    log_normalizer: tf.Tensor
    labels: tf.Tensor
    label_logits: tf.Tensor
    at_label: tf.Tensor


def _no_penalty(softmax):
    return 0.0, softmax.probabilities, softmax.at_label


class _Parts:
    """The rows of a batch, [rows, passes · model_dim], taken a part at a time."""

    def __init__(self, rows, matrix, labels, weights, smoothing, penalize, seek_best):
        self.rows, self.labels, self.weights = rows, labels, weights
        self.penalize, self.seek_best = penalize, seek_best
        self.passes = rows.shape[1] // matrix.shape[1]
        self.matrix = tf.cast(matrix, rows.dtype)
        self.matrix_sum = column_sums(tf.cast(matrix, tf.float32))  # [model_dim]
        self.on, self.off = 1.0 - smoothing, smoothing / matrix.shape[0]

    def add_up(self, size):
        """Returns loss, d_rows [rows, passes · model_dim], d_matrix and terms of [rows].

        Args:
            size: rows of a part.
        """
        count, width = tf.shape(self.rows)[0], self.rows.shape[1]

        def step(begin, loss, d_matrix, arrays):
            part = slice(begin, begin + size)
            part_loss, part_matrix, results = self._part(part)
            arrays = [a.write(begin // size, r) for a, r in zip(arrays, results, strict=True)]
            return begin + size, loss + part_loss, d_matrix + part_matrix, arrays

        arrays = [
            tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False, element_shape=shape)
            for dtype, shape in (
                (tf.float32, [None, width]),
                (tf.float32, [None]),
                (tf.int32, [None]),
            )
        ]
        start = tf.constant(0), tf.constant(0.0), tf.zeros(self.matrix.shape), arrays
        _, loss, d_matrix, arrays = tf.while_loop(
            lambda begin, *_: begin < count, step, start, parallel_iterations=1
        )
        d_rows, *terms = (array.concat() for array in arrays)
        wide_rows = tf.cast(self.rows, tf.float32)
        hidden_sums = tf.linalg.matvec(wide_rows, self.weights, transpose_a=True)
        hidden_sum = tf.add_n(tf.split(hidden_sums, self.passes))  # [model_dim]
        return loss, d_rows, d_matrix - self.off * hidden_sum, terms

    def _part(self, part):
        """Returns what `add_up` does of some rows: loss, d_matrix, (d_rows, *terms).

        Args:
            part: slice of the rows.
        """
        rows = tf.concat(tf.split(self.rows[part], self.passes, axis=1), axis=0)
        labels, weights = (
            tf.tile(of_all[part], [self.passes]) for of_all in (self.labels, self.weights)
        )
        softmax, classes = self._softmax(rows, labels)
        penalties, probabilities, at_label = self.penalize(softmax)
        wide_rows = tf.cast(rows, tf.float32)
        logit_sums = tf.linalg.matvec(wide_rows, self.matrix_sum)
        losses = softmax.log_normalizer - self.on * softmax.label_logits - self.off * logit_sums
        losses += penalties

        with tf.control_dependencies([losses]):  # all that reads the probabilities
            difference = _with_label_column(
                tf.cast(probabilities, rows.dtype), labels, at_label - self.on
            )
        d_rows = tf.cast(tf.matmul(difference, self.matrix), tf.float32)
        d_rows = (d_rows - self.off * self.matrix_sum) * weights[:, tf.newaxis]
        d_rows = tf.concat(tf.split(d_rows, self.passes, axis=0), axis=1)
        weighted = tf.cast(wide_rows * weights[:, tf.newaxis], rows.dtype)
        d_matrix = tf.cast(tf.matmul(difference, weighted, transpose_a=True), tf.float32)
        cross_entropies = softmax.log_normalizer - softmax.label_logits
        terms = (tf.split(term, self.passes)[0] for term in (cross_entropies, classes))
        return tf.reduce_sum(losses * weights), d_matrix, (d_rows, *terms)

    def _softmax(self, rows, labels):
        """Returns `SoftmaxRows` and classes, int32 [rows]: the likeliest ones if sought."""
        logits = tf.cast(tf.matmul(rows, self.matrix, transpose_b=True), tf.float32)
        # Else TensorFlow moves the cast behind the reshape in `argmax`, and casts twice.
        logits = tf.ensure_shape(logits, [None, self.matrix.shape[0]])
        probabilities = tf.nn.softmax(logits)  # [rows, vocab]
        label_logits, at_label = pick(logits, labels), pick(probabilities, labels)
        # Of any class with a probability above 0 it is logit - log p, of the likeliest one always.
        if self.seek_best:
            classes = argmax(logits)
        else:
            classes = tf.cond(
                tf.reduce_min(at_label) > _SURE, lambda: labels, lambda: argmax(logits)
            )
        log_normalizer = pick(logits, classes) - tf.math.log(pick(probabilities, classes))
        softmax = SoftmaxRows(logits, probabilities, log_normalizer, labels, label_logits, at_label)
        return softmax, classes


def pick(values, columns):
    """Returns values[row, columns[row]] of each row."""
    return tf.gather_nd(values, _places(columns))


def _places(columns):
    """Returns (row, column) of each row, int32 [rows, 2]."""
    return tf.stack([tf.range(tf.size(columns)), columns], axis=1)


def _with_label_column(values, columns, new):
    """Returns values with values[row, columns[row]] = new[row], in the same memory if it may.

    `tf.tensor_scatter_nd_update` copies the whole matrix for it.
    """
    rows, width = tf.unstack(tf.shape(values))
    updated = tf.raw_ops.InplaceUpdate(
        x=tf.reshape(values, [-1, 1]),
        i=tf.range(rows) * width + columns,
        v=tf.cast(new, values.dtype)[:, tf.newaxis],
    )
    return tf.reshape(updated, [rows, width])
