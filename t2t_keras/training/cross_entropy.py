"""Cross-entropy of each target token, smoothed (paper, section 5.4) or not, and never one-hot.

Both need log Σ exp(logits), the costliest part beside the softmax product itself. They take it
from one function on the same tensor, so that in one graph it is computed once.
"""

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.logit_factors import factors_of


def token_weights(labels, weights=None):
    """Returns what each target token counts, float32 [batch, target].

    Args:
        labels: int [batch, target], 0 on padding.
        weights: [batch, target], or None: 1 for each token that is not padding.

    Raises:
        InputError: if weights has another rank than labels.
    """
    if weights is None:
        return tf.cast(tf.not_equal(labels, 0), tf.float32)
    weights = tf.convert_to_tensor(weights)
    if weights.shape.rank != labels.shape.rank:
        raise InputError(
            f"Sample weights of shape {weights.shape} beside labels of shape {labels.shape}: "
            "give one weight for each token, 0 on padding."
        )
    return tf.cast(weights, tf.float32)


def cross_entropy(labels, logits):
    """Returns -log p(label), float32 [...].

    Args:
        labels: int [...].
        logits: [..., vocab], of any floating type. Has a loss gone through their factors, it was
            with the same labels.
    """
    factors = factors_of(logits)
    if factors and factors.terms:
        return factors.terms.cross_entropy
    _, _, log_normalizer = softmax_terms(logits)
    return log_normalizer - _pick(labels, logits)


def likeliest_class(logits):
    """Returns the class of the largest logit, int32 [...].

    Args:
        logits: [..., vocab].
    """
    factors = factors_of(logits)
    if factors and factors.terms and factors.terms.best is not None:
        return factors.terms.best
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def smoothed_cross_entropy(labels, logits, smoothing):
    """Cross-entropy against (1 - ε) of the label and ε of the uniform distribution.

    With V classes and off = ε / V the target distribution has 1 - ε + off on the label and off on
    every other class, and the loss is logsumexp - (1 - ε) · logit[label] - off · Σ logits. Its
    gradient, softmax - off - (1 - ε) · onehot, takes one product and one scatter.

    Args:
        labels: int [...].
        logits: [..., vocab], of any floating type; the computation is in float32.
        smoothing: ε, 0 to 1.

    Returns:
        float32 [...].
    """
    exponentials, total, log_normalizer = softmax_terms(logits)
    vocab_size = tf.shape(logits)[-1]
    on, off = 1.0 - smoothing, smoothing / tf.cast(vocab_size, tf.float32)

    @tf.custom_gradient
    def loss_of(logits):
        logits_sum = tf.reduce_sum(tf.cast(logits, tf.float32), axis=-1)
        losses = log_normalizer - on * _pick(labels, logits) - off * logits_sum

        def gradient(upstream):  # [...]
            # The forward pass's exponentials become the softmax: none is computed again.
            softmax_part = exponentials * (upstream / total)[..., tf.newaxis]
            result = softmax_part - (off * upstream)[..., tf.newaxis]
            flat_labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
            indices = tf.stack([tf.range(tf.size(flat_labels)), flat_labels], axis=1)
            result = tf.tensor_scatter_nd_sub(
                tf.reshape(result, [-1, vocab_size]), indices, tf.reshape(on * upstream, [-1])
            )
            return tf.cast(tf.reshape(result, tf.shape(logits)), logits.dtype)

        return losses, gradient

    return loss_of(logits)


def softmax_terms(logits):
    """Returns exp(logits - max) [..., vocab], its sum [...] and log Σ exp(logits) [...]."""
    logits = tf.stop_gradient(tf.cast(logits, tf.float32))
    peak = tf.reduce_max(logits, axis=-1, keepdims=True)
    exponentials = tf.exp(logits - peak)
    total = tf.reduce_sum(exponentials, axis=-1)
    return exponentials, total, tf.math.log(total) + tf.squeeze(peak, axis=-1)


def _pick(labels, logits):
    """Returns logits[label], float32 [...]."""
    picked = tf.gather(logits, tf.cast(labels, tf.int32), batch_dims=labels.shape.rank)
    return tf.cast(picked, tf.float32)
