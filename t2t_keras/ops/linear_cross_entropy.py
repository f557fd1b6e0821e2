"""Cross-entropy with smoothed labels (paper, section 5.4), and fused with the output projection.

`smoothed_cross_entropy` is the definition, on logits. `linear_cross_entropy` has logits,
probabilities and gradients of a chunk of rows at a time: a training step with 25,000 tokens and
37,000 words needs 1.1 GB instead of 7.7 GB (one layer).
"""

import dataclasses

import tensorflow as tf

from t2t_keras.ops.dense import sum_rows
from t2t_keras.ops.gradients import define_gradient
from t2t_keras.ops.indices import index_dtype, pad_end, to_index
from t2t_keras.ops.top_k import argmax
from t2t_keras.ops.trace import device, fast_forms, xla_forms

_MAX_CHUNK = {"cpu": 2**26, "gpu": 2**28, "xla": 2**28}  # logits in memory; 2²⁸ float32: 1 GiB
_CACHED_CHUNK = 3 * 2**20  # logits that stay in the caches from one operation to the next
_MIN_PROBABILITY = 1e-30  # smallest label probability whose logarithm is used directly


@dataclasses.dataclass(frozen=True)
class LossTerms:
    """A loss, and softmax values for the metrics; no gradient flows through the latter."""

    loss: tf.Tensor  # Σ weight · loss, float32 scalar
    tokens: tf.Tensor  # Σ weight, float32 scalar
    log_probability: tf.Tensor  # log p(label), float32 [...]
    # the most probable class, `ops.index_dtype` [...]; None if it was not computed
    argmax: tf.Tensor | None


def log_probability(labels, logits):
    """Returns log p(label), float32 [...], of int labels [...] and logits [..., classes]."""
    logits = tf.cast(logits, tf.float32)
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(to_index(labels), logits)


def smoothed_cross_entropy(labels, logits, smoothing):
    """Cross-entropy against (1 - ε) of the label and ε of the uniform distribution (section 5.4).

    With V classes it is (1 - ε) · -log p(label) - ε / V · Σ log p, float32 [...], of int labels
    [...], logits [..., classes] of any floating type and ε, `smoothing`.
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

    With p = softmax(logits), on = 1 - ε and off = ε / V, the gradient with respect to a row's
    logits is p - on · onehot - off, and with respect to the two factors h and E of the product

        (p - on · onehot) E - off · Σ_v E_v   and   (p - on · onehot)ᵀ h - off · Σ h;

    with respect to the bias it is the second with h = 1.

    Both are computed in the forward pass, chunk by chunk, and scaled in the backward pass. The
    plain form differentiates the definition for each chunk. The fast form does not add the
    constant `off` to the large matrix, and in bfloat16 its logits are as exact as the product. The
    form for XLA computes the same gradient of the logits, p - on · onehot - off.
    Gradients of logits are rounded to the dtype of hidden, before the factor of loss scaling.

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
        `LossTerms` with a loss that has gradients with respect to hidden, matrix and bias.
    """
    labels = to_index(labels)
    vocab, model_dim = matrix.shape
    if max_logits is None:
        max_logits = _MAX_CHUNK[device()]
        # Each chunk adds to a gradient [vocab, model_dim]: small chunks pay where that is small.
        if fast_forms() and vocab * model_dim <= _CACHED_CHUNK:
            max_logits = _CACHED_CHUNK
    kind = _FastChunks if fast_forms() else _XlaChunks if xla_forms() else _PlainChunks
    flat_labels, flat_weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])

    rows, matrix = tf.reshape(hidden, [-1, model_dim]), tf.convert_to_tensor(matrix)
    biases = [] if bias is None else [tf.convert_to_tensor(bias)]
    chunks = kind(matrix, biases, rows.dtype, smoothing, compute_argmax)
    (loss, d_matrix, *d_bias), (d_rows, *for_metrics) = chunks.add_up(
        (rows, flat_labels, flat_weights), max(max_logits // vocab, 1)
    )
    loss = _with_gradient(loss, rows, matrix, *biases, d_rows, d_matrix, *d_bias)
    of_labels, classes = (
        tf.reshape(tf.stop_gradient(term), tf.shape(labels)) for term in for_metrics
    )
    tokens = tf.reduce_sum(flat_weights)
    return LossTerms(loss, tokens, of_labels, classes if compute_argmax else None)


@define_gradient("LinearCrossEntropy")
def _with_gradient(upstream, *tensors):  # scalar; factors of the logits, their gradients
    count = len(tensors) // 2
    pairs = zip(tensors[:count], tensors[count:], strict=True)
    return [tf.cast(d_factor * upstream, factor.dtype) for factor, d_factor in pairs]


class _PlainChunks:
    """Loss and gradients of the rows of a batch, a chunk at a time; see `linear_cross_entropy`.

    `biases` is a list of the bias, or empty; products are in `dtype`.
    """

    def __init__(self, matrix, biases, dtype, smoothing, compute_argmax):
        self.matrix, self.biases = tf.cast(matrix, dtype), list(biases)
        self.smoothing = smoothing
        self.compute_argmax = compute_argmax

    def add_up(self, rows, max_rows):
        """Returns [loss, d_matrix, d_bias if any], and (d_rows, log p(label), classes) of all rows.

        `rows` are the arguments of `chunk`. All chunks have one size, the last of them with rows of
        weight 0, for XLA.
        """
        count = tf.shape(rows[0])[0]
        chunks = tf.maximum(-(-count // max_rows), 1)
        size = -(-count // chunks)
        rows = [_split_rows(x, chunks, size) for x in rows]

        def step(i, sums, arrays):
            parts, results = self.chunk(*(x[i] for x in rows))
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
            return i + 1, sums, [a.write(i, r) for a, r in zip(arrays, results, strict=True)]

        arrays = [
            tf.TensorArray(dtype, chunks, element_shape=[None, *shape])
            for dtype, shape in (
                (tf.float32, [self.matrix.shape[1]]),
                (tf.float32, []),
                (index_dtype(), []),
            )
        ]
        sums = [tf.zeros([]), tf.zeros(self.matrix.shape)]
        sums += [tf.zeros(bias.shape) for bias in self.biases]
        _, sums, arrays = tf.while_loop(
            lambda i, *_: i < chunks, step, (tf.constant(0), sums, arrays), parallel_iterations=1
        )
        results = [array.stack() for array in arrays]  # [chunks, size, …]
        return sums, [tf.reshape(x, [-1, *x.shape[2:]])[:count] for x in results]

    def chunk(self, rows, labels, weights):
        """Returns [loss, d_matrix, d_bias if any] and (d_rows, log p(label), classes) of rows."""
        with tf.GradientTape() as tape:
            tape.watch([rows, self.matrix, *self.biases])
            logits = tf.cast(tf.matmul(rows, self.matrix, transpose_b=True), tf.float32)
            logits = sum(self.biases, logits)  # [rows, classes]
            losses = smoothed_cross_entropy(labels, logits, self.smoothing)  # [rows]
            loss = tf.reduce_sum(losses * weights)
        gradients = tape.gradient(loss, [rows, self.matrix, *self.biases])
        # [rows, model_dim]; [classes, model_dim], [classes]
        d_rows, *others = (tf.cast(gradient, tf.float32) for gradient in gradients)
        classes = labels
        if self.compute_argmax:
            classes = tf.argmax(logits, axis=-1, output_type=labels.dtype)
        return [loss, *others], (d_rows, log_probability(labels, logits), classes)


class _XlaChunks(_PlainChunks):
    """The form for XLA: three passes over the logits, and a fourth with a bias.

    XLA stores what two of its kernels need. So that no matrix in float32 is stored in bfloat16,
    normalizer and gradient each compute their exp, and the maximum, another pass, is the logit of
    the most probable class.
    """

    def chunk(self, rows, labels, weights):
        vocab = self.matrix.shape[0]
        on, off = 1.0 - self.smoothing, self.smoothing / vocab
        logits = tf.cast(tf.matmul(rows, self.matrix, transpose_b=True), tf.float32)
        logits = sum(self.biases, logits)  # [rows, classes]
        classes, label_logits = labels, _at(logits, labels)  # [rows]
        if self.compute_argmax:
            classes = tf.argmax(logits, axis=-1, output_type=labels.dtype)
            largest = _at(logits, classes)  # [rows]
        else:
            largest = tf.reduce_max(logits, axis=-1)
        exponentials = tf.exp(logits - largest[:, tf.newaxis])  # [rows, classes]
        log_normalizer = largest + tf.math.log(tf.reduce_sum(exponentials, axis=-1))  # [rows]
        losses = log_normalizer - on * label_logits - off * tf.reduce_sum(logits, axis=-1)

        is_label = tf.range(vocab, dtype=labels.dtype) == labels[:, tf.newaxis]  # [rows, classes]
        difference = tf.exp(logits - log_normalizer[:, tf.newaxis]) - off
        difference = (difference - tf.where(is_label, on, 0.0)) * weights[:, tf.newaxis]
        d_biases = [tf.reduce_sum(difference, axis=0) for _ in self.biases]  # [classes]
        difference = tf.cast(difference, rows.dtype)
        d_rows = tf.matmul(difference, self.matrix)  # [rows, model_dim]
        d_matrix = tf.matmul(difference, rows, transpose_a=True)  # [classes, model_dim]
        sums = [tf.reduce_sum(losses * weights), tf.cast(d_matrix, tf.float32), *d_biases]
        return sums, (tf.cast(d_rows, tf.float32), label_logits - log_normalizer, classes)


def _split_rows(x, chunks, size):
    """Returns x [rows, …] as [chunks, size, …], filled up with zeros."""
    missing = chunks * size - tf.shape(x)[0]
    if x.dtype.is_integer:
        x = pad_end(x, missing)
    else:
        x = tf.pad(x, [[0, missing]] + [[0, 0]] * (x.shape.rank - 1))
    return tf.reshape(x, [chunks, size, *x.shape[1:]])


class _FastChunks(_PlainChunks):
    """The fast form: both gradients from one softmax, whose memory the label's column reuses."""

    def __init__(self, matrix, biases, dtype, smoothing, compute_argmax):
        super().__init__(matrix, biases, dtype, smoothing, compute_argmax)
        self.matrix_sum = sum_rows(tf.cast(matrix, tf.float32))  # [model_dim]
        self.on, self.off = 1.0 - smoothing, smoothing / matrix.shape[0]

    def add_up(self, rows, max_rows):
        (loss, d_matrix, *d_bias), results = super().add_up(rows, max_rows)
        hidden, _, weights = rows
        hidden = tf.cast(hidden, tf.float32)
        weighted_sum = tf.linalg.matvec(hidden, weights, transpose_a=True)  # [model_dim]
        d_bias = [d - self.off * tf.reduce_sum(weights) for d in d_bias]
        return [loss, d_matrix - self.off * weighted_sum, *d_bias], results

    def chunk(self, rows, labels, weights):
        logits = tf.cast(tf.matmul(rows, self.matrix, transpose_b=True), tf.float32)
        # Else TensorFlow moves the cast behind a reshape inside `argmax`, and casts twice.
        logits = tf.ensure_shape(logits, [None, self.matrix.shape[0]])
        logits = sum(self.biases, logits)  # [rows, classes]
        probabilities = tf.nn.softmax(logits)  # [rows, classes]
        label_logits, at_label = _at(logits, labels), _at(probabilities, labels)  # [rows]
        # log Σ exp(logits) is logit - log p of any class whose p is above 0.
        if self.compute_argmax:
            classes = argmax(logits)
        else:
            classes = tf.cond(
                tf.reduce_min(at_label) > _MIN_PROBABILITY, lambda: labels, lambda: argmax(logits)
            )
        # [rows]
        log_normalizer = _at(logits, classes) - tf.math.log(_at(probabilities, classes))

        float_rows = tf.cast(rows, tf.float32)  # [rows, model_dim]
        logit_sums = tf.linalg.matvec(float_rows, self.matrix_sum)  # [rows]
        logit_sums += sum(tf.reduce_sum(bias) for bias in self.biases)
        losses = log_normalizer - self.on * label_logits - self.off * logit_sums
        with tf.control_dependencies([losses]):  # the next line overwrites the probabilities
            difference = _with_label_column(  # p - on · onehot, [rows, classes]
                tf.cast(probabilities, rows.dtype), labels, at_label - self.on
            )
        d_rows = tf.cast(tf.matmul(difference, self.matrix), tf.float32)  # [rows, model_dim]
        d_rows = (d_rows - self.off * self.matrix_sum) * weights[:, tf.newaxis]
        weighted = tf.cast(float_rows * weights[:, tf.newaxis], rows.dtype)  # [rows, model_dim]
        # [classes, model_dim]
        d_matrix = tf.cast(tf.matmul(difference, weighted, transpose_a=True), tf.float32)
        sums = [tf.reduce_sum(losses * weights), d_matrix]
        for _ in self.biases:
            columns = tf.cast(weights, difference.dtype)  # [rows]
            sums.append(  # [classes]
                tf.cast(tf.linalg.matvec(difference, columns, transpose_a=True), tf.float32)
            )
        return sums, (d_rows, label_logits - log_normalizer, classes)


def _at(values, columns):
    """Returns values[row, columns[row]] of each row."""
    return tf.gather_nd(values, tf.stack([tf.range(tf.size(columns)), columns], axis=1))


def _with_label_column(values, columns, new):
    """Returns values with values[row, columns[row]] = new[row], in the same memory if possible.

    `tf.tensor_scatter_nd_update` copies the whole matrix.
    """
    rows, width = tf.unstack(tf.shape(values))
    updated = tf.raw_ops.InplaceUpdate(
        x=tf.reshape(values, [-1, 1]),
        i=tf.range(rows) * width + columns,
        v=tf.cast(new, values.dtype)[:, tf.newaxis],
    )
    return tf.reshape(updated, [rows, width])
