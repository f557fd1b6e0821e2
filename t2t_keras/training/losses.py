"""The loss, as the mean over the target tokens of the global batch (paper, section 5.4)."""

import dataclasses

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError, require_rate
from t2t_keras.layers.value_checks import Limit


@keras.saving.register_keras_serializable(package="t2t_keras")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against labels smoothed with the uniform distribution (section 5.4).

    The sum over tokens is divided by the weight of all tokens of the global batch, so that one
    device and several take the same step even when their parts hold unequal token counts.

    Args:
        smoothing: ε, the probability taken from the label and spread over the vocabulary.
        name, **kwargs: those of a Keras loss.

    Call arguments:
        labels: integers [batch, target], 0 on padding.
        logits: [batch, target, vocab], any floating type; the loss is computed in float32.
        sample_weight: [batch, target], 0 on padding; or [batch], the weight of each sentence's
            tokens; None: 1 for each label that is not 0.

    Returns:
        float32 scalar. Under a `tf.distribute` strategy, as Keras expects it: divided by the number
        of replicas, with the gradient of this replica's part of the global mean.

    Raises:
        InputError: if smoothing is not in [0, 1), for another reduction than the mean, and in a
            call for labels that are not integers or are outside of the vocabulary, or weights of
            another shape.

    Example:
        >>> labels, logits = np.array([[2, 1, 0]]), np.zeros([1, 3, 4])  # 0 is padding
        >>> float(t2t.LabelSmoothedCrossEntropy(0.1)(labels, logits))  # log 4
        1.386294...
    """

    def __init__(self, smoothing=0.1, name="label_smoothed_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)
        require_rate("smoothing", smoothing)
        if self.reduction not in ("sum_over_batch_size", "mean", "mean_with_sample_weight"):
            raise InputError(
                f"reduction is {self.reduction!r}, but this loss is the mean over target tokens: "
                "leave it out."
            )
        self.smoothing = smoothing

    def __call__(self, labels, logits, sample_weight=None):
        labels = token_ids(labels)
        weights = token_weights(labels, sample_weight)
        logits = tf.convert_to_tensor(logits)
        if tf.executing_eagerly():
            Limit.of_labels(logits.shape[-1]).check("labels", labels).require()
        losses = self.call(labels, logits)
        return global_batch_mean(tf.reduce_sum(losses * weights), weights)

    def call(self, labels, logits):
        """Returns the loss of each token, float32 [batch, target]."""
        return ops.smoothed_cross_entropy(labels, logits, self.smoothing)

    def from_hidden(
        self,
        labels,
        hidden,
        matrix,
        sample_weight=None,
        compute_argmax=True,
        bias=None,
        factor=None,
    ):
        """Returns the loss of the logits hidden · matrixᵀ + bias, and the terms that metrics need.

        Args:
            labels: int [batch, target], 0 on padding.
            hidden: [batch, target, model_dim].
            matrix: [vocab, model_dim], the output projection.
            sample_weight: as for a call.
            compute_argmax: whether to compute the most probable tokens, for an accuracy.
            bias: float32 [vocab], or None.
            factor: float32 scalar by which the sum over the tokens is multiplied; None: 1 / the
                weight of the global batch, as in a call.

        Returns:
            `ops.LossTerms` with the loss of a call, or factor · Σ.

        Raises:
            InputError: if labels are not integers, or labels or weights have another shape.
        """
        labels = token_ids(labels)
        if not labels.shape.is_compatible_with(hidden.shape[:-1]):
            raise InputError(
                f"Labels of shape {labels.shape} beside {hidden.shape[:-1]} positions of the "
                "target: give the id of the next token of each, [batch, target]."
            )
        weights = token_weights(labels, sample_weight)
        if factor is not None:
            weights *= factor
        terms = ops.linear_cross_entropy(
            hidden, matrix, labels, weights, self.smoothing, compute_argmax, bias=bias
        )
        if factor is not None:
            return terms
        return dataclasses.replace(terms, loss=global_batch_mean(terms.loss, weights))

    def num_target_tokens(self, labels, sample_weight=None):
        """Returns the weight of a batch's tokens, which divides their sum: float32 scalar."""
        return tf.reduce_sum(token_weights(token_ids(labels), sample_weight))

    def get_config(self):
        return super().get_config() | {"smoothing": self.smoothing}


def token_ids(labels):
    """Returns labels, integers of any type, as a tensor of `ops.index_dtype`.

    Raises:
        InputError: if labels are missing or not integers.
    """
    if labels is None:
        raise InputError("labels are missing: give the ids of the target tokens, [batch, target].")
    labels = tf.convert_to_tensor(labels)
    # Under several replicas Keras builds metrics by the float64 mean of the replicas' labels.
    if not (labels.dtype.is_integer or labels.dtype == tf.float64):
        raise InputError(f"labels are {labels.dtype.name}: give the ids of tokens, integers.")
    return ops.to_index(labels)


def token_weights(labels, weights=None):
    """Returns the weight of each target token, float32 [batch, target].

    Args:
        labels: integers [batch, target], 0 on padding; or [batch], classes from 0.
        weights: [batch, target]; or [batch] or [batch, 1], the weight of each sentence's tokens; or
            None: 1. Padding has none in any case.

    Raises:
        InputError: if weights has another shape.
    """
    real = tf.cast(ops.is_token(labels), tf.float32)
    if labels.shape.rank == 1:
        real = tf.ones_like(real)
    if weights is None:
        return real
    weights = tf.cast(tf.convert_to_tensor(weights), tf.float32)
    if weights.shape.rank is None:  # TensorFlow merged the traces of both kinds of weights
        weights = tf.reshape(weights, tf.concat([tf.shape(labels)[:-1], [-1]], axis=0))
    if weights.shape.rank == labels.shape.rank - 1:
        weights = weights[..., tf.newaxis]
    of_sentences = weights.shape[-1] == 1 if weights.shape.rank else False
    shape = labels.shape[:-1] + weights.shape[-1:] if of_sentences else labels.shape
    if not weights.shape.is_compatible_with(shape):
        raise InputError(
            f"Sample weights of shape {weights.shape} beside labels of shape {labels.shape}: "
            "give one weight for each token, 0 on padding, or one for each sentence."
        )
    return weights * real  # in a graph the shape may not tell which of both they are


def global_batch_mean(loss_sum, weights):
    """Divides this replica's sum by the weight of the global batch.

    Keras adds up the replicas' gradients, so each must be that of loss_sum / global weight. It
    multiplies each replica's value by their number and takes the mean weighted by rows: so all
    report the global mean / replicas.
    """
    weight = tf.reduce_sum(weights)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return tf.math.divide_no_nan(loss_sum, weight)
    global_sum, global_weight = keras_compat.sum_over_replicas([tf.stop_gradient(loss_sum), weight])
    part = tf.math.divide_no_nan(loss_sum, global_weight)
    reported = tf.math.divide_no_nan(global_sum, global_weight) / replica.num_replicas_in_sync
    return reported + (part - tf.stop_gradient(part))
