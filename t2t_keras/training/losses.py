"""The loss, as the mean over the target tokens of the global batch (paper, section 5.4)."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.logit_factors import factors_of
from t2t_keras.training.cross_entropy import smoothed_cross_entropy, token_weights
from t2t_keras.training.fused_cross_entropy import fused_cross_entropy


@keras.saving.register_keras_serializable(package="t2t_keras")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against labels smoothed with the uniform distribution (section 5.4).

    The sum over tokens is divided by the weight of all tokens of the global batch, so that one
    device and several take the same step even when their shares hold unequal token counts.

    Args:
        smoothing: ε, the probability taken from the label and spread over the vocabulary.

    Call arguments:
        labels: int [batch, target], 0 on padding.
        logits: [batch, target, vocab], of any floating type; the loss is computed in float32.
        sample_weight: [batch, target], 0 on padding; None weighs each label that is not 0 with 1.

    Returns:
        float32 scalar. Under a `tf.distribute` strategy, as Keras wants it: divided by the number
        of replicas, with the gradient of this replica's part of the global mean.

    Raises:
        InputError: if smoothing is not in [0, 1).

    Example:
        >>> model.compile(optimizer="adam", loss=LabelSmoothedCrossEntropy(0.1))
    """

    def __init__(self, smoothing=0.1, name="label_smoothed_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= smoothing < 1:
            raise InputError(f"Label smoothing is {smoothing}: give 0 or more and less than 1.")
        self.smoothing = smoothing

    def __call__(self, labels, logits, sample_weight=None):
        labels = tf.convert_to_tensor(labels)
        weights = token_weights(labels, sample_weight)
        factors = factors_of(logits)
        if factors:
            loss_sum = fused_cross_entropy(labels, factors, weights, self.smoothing)
        else:
            losses = self.call(labels, tf.convert_to_tensor(logits))
            loss_sum = tf.reduce_sum(losses * weights)
        return global_mean(loss_sum, weights)

    def batch_weight(self, labels, sample_weight=None):
        """Returns the weight of a batch's tokens, by which their sum is divided: float32 scalar."""
        return tf.reduce_sum(token_weights(tf.convert_to_tensor(labels), sample_weight))

    def call(self, labels, logits):
        """Returns the loss of each token, float32 [batch, target]."""
        return smoothed_cross_entropy(labels, logits, self.smoothing)

    def get_config(self):
        return super().get_config() | {"smoothing": self.smoothing}


def global_mean(loss_sum, weights):
    """Divides this replica's sum by the weight of the global batch.

    Keras adds up the replicas' gradients, so each must be that of loss_sum / global weight. And it
    reports the mean, over the rows of all replicas, of value × replicas: so each value must be
    the global mean / replicas, whatever the replica's own share of rows.
    """
    weight = tf.reduce_sum(weights)
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return tf.math.divide_no_nan(loss_sum, weight)
    global_sum, global_weight = replica.all_reduce(
        tf.distribute.ReduceOp.SUM, [tf.stop_gradient(loss_sum), weight]
    )
    mine = tf.math.divide_no_nan(loss_sum, global_weight)
    reported = tf.math.divide_no_nan(global_sum, global_weight) / replica.num_replicas_in_sync
    return reported + (mine - tf.stop_gradient(mine))
