"""The loss: its sum over target tokens, and the mean over the global batch (paper, section 5.4)."""

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError, require_rate
from t2t_keras.layers.basic import HasFastForms
from t2t_keras.layers.value_checks import Limit, require_dense
from t2t_keras.types import Array


@keras.saving.register_keras_serializable(package="t2t_keras")
class LabelSmoothedCrossEntropy(HasFastForms, keras.losses.Loss):
    """Cross-entropy against labels smoothed with the uniform distribution (section 5.4).

    A training step of our models uses `sum_and_tokens` or `from_hidden` and divides once,
    by the tokens of the global batch. A call, for other Keras models, divides by them as well. One
    device and several therefore take the same step, whatever tokens their parts contain.

    Args:
        smoothing: ε, the probability taken from the label and spread over the vocabulary.
        name, **kwargs: as for a Keras loss.

    Call arguments:
        labels: integers [batch, target], 0 on padding; or classes from 0, [batch] or [batch, 1].
        logits: [batch, target, vocab] or [batch, classes], any floating type; the loss is
            computed in float32.
        sample_weight: [batch, target], 0 on padding; or [batch], the weight of each sentence's
            tokens; None: 1 for each label that is not 0.

    Returns:
        float32 scalar. Under a `tf.distribute` strategy, as Keras expects it, the mean over this
        replica's tokens divided by the number of replicas; its gradient is that of the replica's
        part of the global mean.

    Raises:
        InputError: if smoothing is not in [0, 1) or the reduction is not the mean; in a call, if
            labels are not integers, outside of a graph not in the vocabulary, or weights have
            another shape.

    Example:
        >>> labels, logits = np.array([[2, 1, 0]]), np.zeros([1, 3, 4])  # 0 is padding
        >>> float(t2t.LabelSmoothedCrossEntropy(0.1)(labels, logits))  # log 4
        1.386294...
    """

    fast_forms = {  # noqa: RUF012
        "sum_and_tokens": ("__call__",),
        "from_hidden": ("__call__", "sum_and_tokens", "call"),
    }

    def __init__(
        self, smoothing: float = 0.1, name: str = "label_smoothed_cross_entropy", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        require_rate("smoothing", smoothing)
        if self.reduction not in ("sum_over_batch_size", "mean", "mean_with_sample_weight"):
            raise InputError(
                f"reduction is {self.reduction!r}, but this loss is the mean over target tokens: "
                "leave it out."
            )
        self.smoothing = smoothing

    def __call__(
        self, labels: Array, logits: Array, sample_weight: Array | None = None
    ) -> tf.Tensor:
        if tf.executing_eagerly():
            logits = tf.convert_to_tensor(logits)
            limit = Limit.of_labels(logits.shape[-1])
            limit.make_check("labels", token_ids(labels, logits.shape[:-1])).require()
        total, tokens = self.sum_and_tokens(labels, logits, sample_weight)
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return tf.math.divide_no_nan(total, tokens)
        # Keras reports the values times their number, and adds up the gradients.
        mean = tf.math.divide_no_nan(total, tokens) / replica.num_replicas_in_sync
        return _with_gradient(mean, total, tokens)

    def sum_and_tokens(
        self, labels: Array, logits: Array, sample_weight: Array | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns Σ weight · loss over the tokens, and Σ weight: float32 scalars of this replica.

        The arguments are the same as in a call.
        """
        logits = tf.convert_to_tensor(logits)
        labels = token_ids(labels, logits.shape[:-1])
        weights = token_weights(labels, sample_weight)
        losses = self.call(labels, logits)
        return tf.reduce_sum(losses * weights), tf.reduce_sum(weights)

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each token, float32 [batch, target]."""
        return ops.smoothed_cross_entropy(labels, logits, self.smoothing)

    def from_hidden(
        self,
        labels: tf.Tensor,
        hidden: tf.Tensor,
        matrix: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        compute_argmax: bool = True,
        bias: tf.Tensor | None = None,
    ) -> ops.LossTerms:
        """Returns `sum_and_tokens` of the logits hidden · matrixᵀ + bias, and values for metrics.

        Labels and weights are as for a call.

        Args:
            hidden: [batch, target, model_dim].
            matrix: [vocab, model_dim], the output projection.
            compute_argmax: whether to compute the most probable tokens, for an accuracy.
            bias: float32 [vocab].

        Raises:
            InputError: if labels are not integers, or labels or weights have another shape.
        """
        labels = token_ids(labels, hidden.shape[:-1])
        weights = token_weights(labels, sample_weight)
        return ops.linear_cross_entropy(
            hidden, matrix, labels, weights, self.smoothing, compute_argmax, bias=bias
        )

    def get_config(self) -> dict:
        return super().get_config() | {"smoothing": self.smoothing}


def token_ids(labels, positions):
    """Returns labels, integers of any type, as a tensor of `ops.index_dtype`.

    Args:
        labels: [batch, target]; or of a classifier [batch] or, as Keras takes them, [batch, 1].
        positions: the axes of the predictions, `tf.TensorShape`, without their last one.

    Raises:
        InputError: if labels are missing, ragged, not integers, or not those of the positions.
    """
    if labels is None:
        raise InputError("labels are missing: give the ids of the target tokens, [batch, target].")
    require_dense("labels", labels)
    labels = tf.convert_to_tensor(labels)
    # Under several replicas Keras builds metrics by the float64 mean of the replicas' labels.
    if not (labels.dtype.is_integer or labels.dtype == tf.float64):
        raise InputError(f"labels are {labels.dtype.name}: give the ids of tokens, integers.")
    labels = _without_column(labels, positions) if positions.rank == 1 else labels
    if not labels.shape.is_compatible_with(positions):
        raise InputError(
            f"labels have shape {labels.shape}, but the predictions are of {positions}: give the "
            "id of the next token at each position, [batch, target], or a class for each row, "
            "[batch]."
        )
    return ops.to_index(labels)


def _without_column(x, positions):
    """Returns a tensor without its last axis if that has size 1 beyond the positions' axes."""
    ranks = x.shape.rank, positions.rank
    is_column = None not in ranks and ranks[0] == ranks[1] + 1 and x.shape[-1] in (1, None)
    return tf.squeeze(x, axis=-1) if is_column else x


def token_weights(labels, sample_weight=None):
    """Returns the weight of each target token, float32 [batch, target].

    Labels are [batch, target], 0 on padding, which always has weight 0; or [batch], classes from 0.
    Weights are [batch, target]; or [batch] or [batch, 1], of each sentence's tokens; or a column of
    the labels' shape; or None: 1.

    Raises:
        InputError: if sample_weight has another shape.
    """
    real = tf.cast(ops.is_token(labels), tf.float32)
    if labels.shape.rank == 1:
        real = tf.ones_like(real)
    if sample_weight is None:
        return real
    weights = tf.cast(tf.convert_to_tensor(sample_weight), tf.float32)
    if weights.shape.rank is None:  # TensorFlow merged the traces of both kinds of weights
        weights = tf.reshape(weights, tf.concat([tf.shape(labels)[:-1], [-1]], axis=0))
    weights = _without_column(weights, labels.shape)
    if weights.shape.rank == labels.shape.rank - 1:
        weights = weights[..., tf.newaxis]
    of_sentences = weights.shape[-1] == 1 if weights.shape.rank else False
    shape = labels.shape[:-1] + weights.shape[-1:] if of_sentences else labels.shape
    if not weights.shape.is_compatible_with(shape):
        raise InputError(
            f"Sample weights have shape {weights.shape}, but labels {labels.shape}: "
            "give one weight for each token, 0 on padding, or one for each sentence."
        )
    return weights * real  # in a graph the shape may not tell which of both they are


@ops.define_gradient("GlobalMean")
def _with_gradient(upstream, _total, tokens):
    """Divides by the tokens of all replicas.

    They are added up here, after the forward pass: while a replica waits for the others, Keras
    would mix the replicas' losses from `add_loss`.
    """
    return [tf.math.divide_no_nan(upstream, *keras_compat.sum_over_replicas([tokens]))]
