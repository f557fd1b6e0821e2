"""Metrics of training: means over target tokens, never over batches."""

from typing import Any

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.layers.basic import HasFastForms
from t2t_keras.training.losses import token_ids, token_weights
from t2t_keras.types import Array


class TokenMean(HasFastForms, keras.metrics.Metric):
    """The mean of a value of each target token, over all batches since the last reset.

    Padding does not count. Keras passes sample weights only to `weighted_metrics`; without them, as
    in `metrics`, a token counts 1 if its label is not 0.

    Subclasses define `values`, and may define `values_from_terms`, the same from `ops.LossTerms`:
    then a training step need not compute logits for them.

    Attributes:
        needs_argmax: whether `values_from_terms` reads `LossTerms.argmax`.
        tokens: weight of all tokens since the last reset.
        counted: number of positions whose weight is not 0.
        positions: number of positions of the batches, padding included.
    """

    fast_forms = {"values_from_terms": ("values", "update_state")}  # noqa: RUF012
    needs_argmax = False

    def __init__(self, name: str, dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)
        names = "total", "tokens", "counted", "positions"
        self.total, self.tokens, self.counted, self.positions = (
            self.add_variable((), "zeros", name=name) for name in names
        )

    def values(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Returns the value of each token, float32 [batch, target].

        `labels` are int [batch, target], 0 on padding, `logits` [batch, target, vocab].
        """
        raise NotImplementedError

    def update_state(self, y_true: Array, y_pred: Any, sample_weight: Array | None = None) -> None:
        """Adds a batch.

        Args:
            y_true: labels, integers [batch, target]; classes are [batch] or [batch, 1].
            y_pred: logits [batch, target, vocab], or the `ops.LossTerms` that a fused loss computed
                from them.
            sample_weight: as for `LabelSmoothedCrossEntropy`.

        Raises:
            InputError: if labels or weights have another shape; a graph that learns the shapes only
                when it runs fails.
        """
        from_terms = isinstance(y_pred, ops.LossTerms)
        y_pred = y_pred if from_terms else tf.convert_to_tensor(y_pred)
        predictions = y_pred.log_probability if from_terms else y_pred
        rank = predictions.shape.rank if from_terms else -1  # logits have one axis more
        labels = token_ids(y_true, predictions.shape[:rank])
        weights = token_weights(labels, sample_weight)
        if not labels.shape.is_fully_defined():
            with ops.on_host():
                same = tf.reduce_all(tf.shape(labels) == tf.shape(predictions)[:rank])
                same = tf.debugging.Assert(same, ["labels and predictions have different shapes"])
            with tf.control_dependencies([same]):
                labels = tf.identity(labels)
        values = (self.values_from_terms if from_terms else self.values)(labels, y_pred)
        self.total.assign_add(tf.reduce_sum(values * weights))
        self.tokens.assign_add(tf.reduce_sum(weights))
        self.counted.assign_add(tf.cast(tf.math.count_nonzero(weights), tf.float32))
        self.positions.assign_add(tf.cast(tf.size(labels), tf.float32))

    def result(self) -> tf.Tensor:
        return tf.math.divide_no_nan(*map(tf.convert_to_tensor, (self.total, self.tokens)))


@keras.saving.register_keras_serializable(package="t2t_keras")
class TokenAccuracy(TokenMean):
    """The fraction of target tokens that the model finds most probable.

    `name` and `dtype` are as for a Keras metric, call arguments see `TokenMean.update_state`.

    Example:
        >>> accuracy = t2t.TokenAccuracy()
        >>> accuracy.update_state(np.array([[2, 1, 0]]), np.eye(4)[[[2, 3, 3]]])
        >>> float(accuracy.result())  # 0 is padding
        0.5
    """

    needs_argmax = True

    def __init__(self, name: str = "accuracy", dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "up"  # what Keras's EarlyStopping and ModelCheckpoint read

    def values(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return _equal(tf.argmax(logits, axis=-1, output_type=labels.dtype), labels)

    def values_from_terms(self, labels: tf.Tensor, terms: ops.LossTerms) -> tf.Tensor:
        return _equal(terms.argmax, labels)


@keras.saving.register_keras_serializable(package="t2t_keras")
class Perplexity(TokenMean):
    """exp of the mean cross-entropy of a target token, without label smoothing.

    Section 5.4: smoothing "hurts perplexity", so it is measured on the model's own distribution.
    `name` and `dtype` are as for a Keras metric, call arguments see `TokenMean.update_state`.

    Example:
        >>> perplexity = t2t.Perplexity()
        >>> perplexity.update_state(np.array([[2, 1, 0]]), np.zeros([1, 3, 4]))
        >>> round(float(perplexity.result()), 3)
        4.0
    """

    def __init__(self, name: str = "perplexity", dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"

    def values(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return -ops.log_probability(labels, logits)

    def values_from_terms(self, labels: tf.Tensor, terms: ops.LossTerms) -> tf.Tensor:
        return -terms.log_probability

    def result(self):
        return tf.exp(super().result())


def _equal(ids, labels):
    return tf.cast(tf.equal(ops.to_index(ids), ops.to_index(labels)), tf.float32)
