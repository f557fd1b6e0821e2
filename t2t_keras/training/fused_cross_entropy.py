"""The product with the vocabulary, the smoothed cross-entropy and both gradients in one pass.

The plain formula writes logits, exponentials and the gradient by the logits, [tokens, vocab] each,
and reads them many times. Here a few thousand rows at a time become logits, probabilities, and at
once the gradients by both factors, so that memory is bounded whatever the batch and the vocabulary.
"""

import tensorflow as tf

from t2t_keras.layers.logit_factors import SoftmaxTerms

LARGEST_PART = 2**26  # logits that are in memory at a time; float32: 256 MiB


def fused_cross_entropy(labels, factors, weights, smoothing, largest_part=LARGEST_PART):
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
        largest_part: how many logits may be in memory at a time; never less than a row.

    Returns:
        float32 scalar.
    """
    hidden, matrix = factors.hidden, factors.matrix
    model_dim = matrix.shape[1]
    flat_labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
    flat_weights = tf.reshape(weights, [-1])

    @tf.custom_gradient
    def loss_of(rows, matrix):
        parts = _Parts(rows, matrix, flat_labels, flat_weights, smoothing)
        loss, d_rows, d_matrix, terms = parts.add_up(max(largest_part // matrix.shape[0], 1))

        def gradient(upstream, *_):  # a scalar
            return tf.cast(d_rows * upstream, rows.dtype), d_matrix * upstream

        return (loss, *terms), gradient

    loss, *terms = loss_of(tf.reshape(hidden, [-1, model_dim]), tf.convert_to_tensor(matrix))
    shape = tf.shape(labels)
    factors.terms = SoftmaxTerms(*(tf.reshape(tf.stop_gradient(term), shape) for term in terms))
    return loss


class _Parts:
    """The rows of a batch, [rows, model_dim], taken a part at a time."""

    def __init__(self, rows, matrix, labels, weights, smoothing):
        self.rows, self.labels, self.weights = rows, labels, weights
        self.matrix = tf.cast(matrix, rows.dtype)
        self.matrix_sum = tf.reduce_sum(tf.cast(self.matrix, tf.float32), axis=0)  # [model_dim]
        self.on, self.off = 1.0 - smoothing, smoothing / matrix.shape[0]

    def add_up(self, size):
        """Returns loss, d_rows [rows, model_dim], d_matrix and terms of [rows].

        Args:
            size: rows of a part.
        """
        count = tf.shape(self.rows)[0]
        vocab_size, model_dim = self.matrix.shape

        def step(begin, loss, d_matrix, arrays):
            part = slice(begin, begin + size)
            part_loss, part_matrix, results = self._part(part)
            arrays = [a.write(begin // size, r) for a, r in zip(arrays, results, strict=True)]
            return begin + size, loss + part_loss, d_matrix + part_matrix, arrays

        arrays = [
            tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False, element_shape=shape)
            for dtype, shape in (
                (tf.float32, [None, model_dim]),
                (tf.float32, [None]),
                (tf.int32, [None]),
            )
        ]
        start = tf.constant(0), tf.constant(0.0), tf.zeros([vocab_size, model_dim]), arrays
        _, loss, d_matrix, arrays = tf.while_loop(
            lambda begin, *_: begin < count, step, start, parallel_iterations=1
        )
        d_rows, *terms = (array.concat() for array in arrays)
        wide_rows = tf.cast(self.rows, tf.float32)
        d_matrix -= self.off * tf.linalg.matvec(wide_rows, self.weights, transpose_a=True)
        return loss, d_rows, d_matrix, terms

    def _part(self, part):
        """Returns what `add_up` does of some rows: loss, d_matrix, (d_rows, *terms).

        Args:
            part: slice of the rows.
        """
        rows, labels, weights = self.rows[part], self.labels[part], self.weights[part]
        logits = tf.cast(tf.matmul(rows, self.matrix, transpose_b=True), tf.float32)
        probabilities = tf.nn.softmax(logits)  # [rows, vocab]
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        at_best = tf.math.log(_pick(probabilities, best))  # log p ≥ -log V: never of 0
        log_normalizer = _pick(logits, best) - at_best  # [rows]
        at_label = _pick(probabilities, labels)
        wide_rows = tf.cast(rows, tf.float32)
        label_logits = _pick(logits, labels)
        logit_sums = tf.linalg.matvec(wide_rows, self.matrix_sum)
        losses = log_normalizer - self.on * label_logits - self.off * logit_sums

        with tf.control_dependencies([losses]):  # all that reads the probabilities
            difference = _with_label_column(
                tf.cast(probabilities, rows.dtype), labels, at_label - self.on
            )
        d_rows = tf.cast(tf.matmul(difference, self.matrix), tf.float32)
        d_rows = (d_rows - self.off * self.matrix_sum) * weights[:, tf.newaxis]
        weighted = tf.cast(wide_rows * weights[:, tf.newaxis], rows.dtype)
        d_matrix = tf.cast(tf.matmul(difference, weighted, transpose_a=True), tf.float32)
        terms = log_normalizer - label_logits, best
        return tf.reduce_sum(losses * weights), d_matrix, (d_rows, *terms)


def _pick(values, columns):
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
