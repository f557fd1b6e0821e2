"""What a training step minimizes: a loss, and what the metrics of the step are computed from.

`TrainableModel.compile` chooses one of two objectives, once. `FusedObjective` is for a loss that
multiplies with the output projection itself, so that logits exist only in chunks; `KerasObjective`
is for everything else. Both have two methods:

- `factors(model, micro_batches)`: the factor of each micro-batch's loss, so that the losses of all
  micro-batches and replicas add up to that of the global batch.
- `loss(model, micro_batch, factor, scale)`: that loss, and the outputs that metrics take.

A micro-batch is (inputs, labels, weights), as Keras's `fit` takes them.
"""

import keras
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.errors import InputError


def choose_objective(model, metrics, loss_weights):
    """Returns the objective of a compiled model.

    It is fused if the loss has `from_hidden`, every metric `values_from_terms`, and the model
    `output_matrix`. It is not with `loss_weights`, nor if a subclass overrides the model's `call`,
    `compute_loss` or `compute_metrics`, the loss's `call`, or a metric's `values` or
    `update_state`.

    Args:
        model: `TrainableModel`.
        metrics: list of all metrics.
        loss_weights: those of `compile`, or None.
    """
    fuses = (
        loss_weights is None
        and _has_fused_form(model, "output_matrix", "call", "compute_loss", "compute_metrics")
        and _has_fused_form(model.loss, "from_hidden", "call", "__call__")
        and all(
            _has_fused_form(metric, "values_from_terms", "values", "update_state")
            for metric in metrics
        )
    )
    if not fuses:
        return KerasObjective()
    return FusedObjective(any(getattr(metric, "needs_argmax", False) for metric in metrics))


def _has_fused_form(owner, fused_form, *methods):
    """Whether an object has a fused form that may replace the methods.

    It may not where a subclass overrides one of them without a fused form of its own: each method
    must be defined in the class that defines the fused form, or in a base class of it.
    """
    kind = type(owner)

    def definer(name):
        return next((c for c in kind.__mro__ if name in vars(c)), object)

    return hasattr(kind, fused_form) and all(
        issubclass(definer(fused_form), definer(method)) for method in methods
    )


class FusedObjective:
    """A loss with `from_hidden`; the metrics take its `ops.LossTerms` instead of logits.

    Args:
        computes_argmax: whether a metric needs the most probable tokens.
    """

    def __init__(self, computes_argmax):
        self.computes_argmax = computes_argmax

    def factors(self, model, micro_batches):
        """Returns 1 / the tokens of the global batch for each micro-batch: its loss is a sum."""
        counts = [model.loss.num_target_tokens(*targets) for _, *targets in micro_batches]
        [tokens] = keras_compat.sum_over_replicas([tf.add_n(counts)])
        return [tf.math.divide_no_nan(1.0, tokens)] * len(micro_batches)

    def loss(self, model, micro_batch, factor, scale):
        """Returns factor · scale · the loss of a micro-batch, and its `ops.LossTerms`."""
        inputs, labels, weights = micro_batch
        hidden = model(inputs, training=True, return_hidden=True)  # [batch, target, model_dim]
        terms = model.loss.from_hidden(
            labels,
            tf.cast(hidden, model.compute_dtype),
            tf.convert_to_tensor(model.output_matrix),
            weights,
            compute_argmax=self.computes_argmax,
            bias=model.output_bias,
            factor=factor * scale,
        )
        parts = model.distribute_strategy.num_replicas_in_sync * model.micro_batches
        penalties = [tf.reduce_sum(penalty) for penalty in model.losses]  # of regularizers
        penalties = [tf.cast(penalty, tf.float32) * scale / parts for penalty in penalties]
        return tf.add_n([terms.loss, *penalties]), terms


class KerasObjective:
    """Any loss and metrics of logits, computed by Keras."""

    def factors(self, model, micro_batches):
        """Returns the factor of each micro-batch's loss.

        A loss is a mean over the micro-batch's elements, or tokens. Keras divides it by the number
        of replicas, as if their shares were equal; `LabelSmoothedCrossEntropy` takes the mean over
        this micro-batch on all replicas.

        Raises:
            InputError: for a reduction that cannot be divided so.
        """
        replicas = model.distribute_strategy.num_replicas_in_sync
        if len(micro_batches) * replicas == 1:
            return [1.0]
        if hasattr(model.loss, "num_target_tokens"):
            counts = [model.loss.num_target_tokens(*targets) for _, *targets in micro_batches]
            totals = counts = keras_compat.sum_over_replicas(counts)
        else:
            reduction = _reduction(model.loss, model.micro_batches)
            if reduction == "sum" and len(micro_batches) == 1:
                return [1.0]
            counts = [_loss_denominator(reduction, *micro_batch) for micro_batch in micro_batches]
            totals = keras_compat.sum_over_replicas(counts)
            counts = [count * replicas for count in counts]
        return [tf.math.divide_no_nan(count, tf.add_n(totals)) for count in counts]

    def loss(self, model, micro_batch, factor, scale):
        """Returns factor · scale · the loss of a micro-batch, and its logits."""
        inputs, labels, weights = micro_batch
        logits = keras_compat.call(model, inputs, training=True)
        if model.distribute_strategy.num_replicas_in_sync > 1:
            _require_loss_of_elements(model.loss, labels, logits)
        loss = keras_compat.compute_loss(model, inputs, labels, logits, weights)
        return times(factor, loss) * tf.cast(scale, loss.dtype), logits


def times(factor, loss):
    """Returns factor · loss; where a micro-batch is empty, 0, whatever its loss."""
    return tf.math.multiply_no_nan(loss, tf.cast(factor, loss.dtype))


def require_loss_of_logits(loss):
    """Raises InputError for Keras's losses of probabilities, which train badly on logits."""
    name = getattr(loss, "name", getattr(loss, "__name__", loss))  # loss, function or str
    takes_probabilities = isinstance(loss, tuple(_OF_PROBABILITIES.values())) or (
        isinstance(name, str) and name in _OF_PROBABILITIES
    )
    config = getattr(loss, "get_config", dict)()
    if takes_probabilities and not config.get("from_logits"):
        raise InputError(
            f"loss is {name!r}, which takes probabilities, and this model gives logits: give "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )


_OF_PROBABILITIES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
}


def _reduction(loss, micro_batches):
    """Returns "mean", "mean_with_sample_weight" or "sum": how a Keras loss reduces a part.

    Raises:
        InputError: if the losses of the parts of a batch do not add up to the loss of the batch.
    """
    found = {getattr(one, "reduction", "mean") for one in keras.tree.flatten(loss)}
    found = {"mean" if one == "sum_over_batch_size" else one for one in found}
    allowed = {"mean", "mean_with_sample_weight"} | ({"sum"} if micro_batches == 1 else set())
    if len(found) > 1 or not found <= allowed:
        where = "micro_batches above 1" if micro_batches > 1 else "several devices"
        raise InputError(
            f"The loss has reduction={' and '.join(map(repr, sorted(found, key=str)))}, which "
            f'{where} do not support: use reduction="sum_over_batch_size".'
        )
    return found.pop()


def _loss_denominator(reduction, inputs, labels, weights):
    """Returns what a mean of Keras over a part is divided by, up to a factor: float32 scalar."""
    if reduction == "mean_with_sample_weight" and weights is not None:
        return tf.reduce_sum(tf.cast(weights, tf.float32))
    if labels is None:
        return tf.cast(tf.shape(keras.tree.flatten(inputs)[0])[0], tf.float32)
    return tf.cast(tf.size(keras.tree.flatten(labels)[0]), tf.float32)  # a mean over elements


def _require_loss_of_elements(loss, labels, logits):
    """Raises InputError for a loss of one number a batch, which replicas cannot weight."""
    if isinstance(loss, keras.losses.Loss):
        loss = loss.call if type(loss).__call__ is keras.losses.Loss.__call__ else None
    if callable(loss) and loss(labels, logits).shape.rank == 0:
        raise InputError(
            "The loss gives one number for a batch, which several devices cannot weight by their "
            "shares: give one for each row or token, and Keras takes the mean."
        )
