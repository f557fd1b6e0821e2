"""What is watched in training: means over target tokens, never over batches."""

import keras
import tensorflow as tf

from t2t_keras.training.cross_entropy import cross_entropy, likeliest_class, token_weights


class TokenMean(keras.metrics.Metric):
    """The mean of a value of each target token, over all batches since the last reset.

    Padding does not count: Keras hands sample weights to `weighted_metrics` only, so where none
    come, as under `metrics`, a token counts 1 if its label is not 0.

    Subclasses define `values`.

    Attributes:
        tokens: variable, the weight of all tokens since the last reset.
        positions: variable, the number of places that the batches had for them.
    """

    def __init__(self, name, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), "zeros", name="total")
        self.tokens = self.add_variable((), "zeros", name="tokens")
        self.positions = self.add_variable((), "zeros", name="positions")

    def values(self, labels, logits):
        """Returns the value of each token, float32 [batch, target].

        Args:
            labels: int [batch, target], 0 on padding.
            logits: [batch, target, vocab].
        """
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = tf.convert_to_tensor(y_true)
        weights = token_weights(labels, sample_weight)
        self.total.assign_add(tf.reduce_sum(self.values(labels, y_pred) * weights))
        self.tokens.assign_add(tf.reduce_sum(weights))
        self.positions.assign_add(tf.cast(tf.size(labels), tf.float32))

    def result(self):
        return tf.math.divide_no_nan(
            tf.convert_to_tensor(self.total), tf.convert_to_tensor(self.tokens)
        )


@keras.saving.register_keras_serializable(package="t2t_keras")
class TokenAccuracy(TokenMean):
    """The share of target tokens that the model thinks most likely.

    Example:
        >>> model.compile(optimizer, loss, metrics=[TokenAccuracy(), Perplexity()])
    """

    def __init__(self, name="accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "up"  # what Keras's EarlyStopping and ModelCheckpoint go by

    def values(self, labels, logits):
        return tf.cast(likeliest_class(logits) == tf.cast(labels, tf.int32), tf.float32)


@keras.saving.register_keras_serializable(package="t2t_keras")
class Perplexity(TokenMean):
    """exp of the mean cross-entropy of a target token, unsmoothed whatever the loss is.

    Section 5.4: smoothing "hurts perplexity", so it is measured on the model's own distribution.
    """

    def __init__(self, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"

    def values(self, labels, logits):
        return cross_entropy(labels, logits)

    def result(self):
        return tf.exp(super().result())
