"""Which objective a training step has, by what its parts state; and Keras's, which takes all.

An objective is a function (model, micro_batch, training) → (loss, tokens, outputs): the sum of the
losses, what the sums of all micro-batches and replicas are divided by together, once, and what
metrics take.

In a fused step the loss gets the decoder's output instead of logits. That needs a fast
form of three things: `output_matrix` stands for a model's `call`, `from_hidden` for a loss's, and
`values_from_terms` for a metric's `values`. Otherwise the step computes logits as Keras does.
"""

import keras
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.layers.basic import has_form


def defines_alone(owner, form):
    """Whether a class gives a form of its own, and for the methods has those of a class above."""
    return has_form(owner, form) and form in getattr(owner, "_defined_alone", ())


def fuses(model, metrics, loss_weights):
    """Whether a compiled model's step may use the loss's `from_hidden`.

    Args:
        model: `TrainableModel`.
        metrics: list of all metrics.
        loss_weights: those of `compile`, or None.

    Raises:
        InputError: if the step may not, but the loss defines nothing but `from_hidden` anew.
    """
    lacking = [metric for metric in metrics if not has_form(metric, "values_from_terms")]
    if not has_form(model.loss, "from_hidden"):
        return False
    if has_form(model, "output_matrix") and loss_weights is None and not lacking:
        return True
    if defines_alone(model.loss, "from_hidden"):
        raise InputError(
            f"{type(model.loss).__name__} defines from_hidden, but this model, its metrics or "
            "loss_weights need a loss of logits: define sum_and_tokens or call as well."
        )
    return False


class KerasObjective:
    """Any loss and metrics of logits, computed by Keras."""

    def __call__(self, model, micro_batch, training=True):
        """Returns the loss's sum over a micro-batch, its divisor, and the logits.

        Sum / divisor is the mean. The divisor is the number or the weight of the elements that
        count; for `LabelSmoothedCrossEntropy` it is the weight of the tokens. Several micro-batches
        or devices add up sums and divisors.

        Raises:
            InputError: for a loss that returns one number, such as a masked mean, with several
                micro-batches or devices: its divisor is unknown.
        """
        inputs, labels, sample_weight = micro_batch
        logits = keras_compat.call(model, inputs, training)
        parts = model.distribute_strategy.num_replicas_in_sync
        parts *= model.micro_batches if training else 1
        has_own_loss = type(model).compute_loss is not keras.Model.compute_loss
        if not has_own_loss:
            total, divisor = _loss_sum(model, labels, logits, sample_weight, parts)
            if divisor is not None:
                return total + penalties(model, divisor), divisor, logits
        if parts > 1 and (has_own_loss or model.loss is not None):
            where = "micro_batches above 1" if model.micro_batches > 1 else "several devices"
            raise InputError(
                f"The loss returns one number for a batch, or none, so {where} cannot weight the "
                "parts by their tokens: give `compile` a loss that returns one number for each row "
                "or token, which Keras averages. LabelSmoothedCrossEntropy and ignore_class leave "
                "tokens out."
            )
        rows = tf.cast(rows_of(micro_batch), tf.float32)
        loss = keras_compat.compute_loss(model, inputs, labels, logits, sample_weight, training)
        return tf.cast(loss, tf.float32) * rows, rows, logits


def _loss_sum(model, labels, logits, sample_weight, parts):
    """Returns the sum of the compiled loss and its divisor, or None for the divisor.

    There is none if several losses are compiled, or the loss has no elements or its own `__call__`.
    """
    loss, factor = keras_compat.compiled_loss(model, labels, logits)
    if loss is not None and has_form(loss, "sum_and_tokens"):
        total, divisor = loss.sum_and_tokens(labels, logits, sample_weight)
        divisor = tf.cast(divisor, tf.float32)
    elif loss is not None and type(loss).__call__ is keras.losses.Loss.__call__:
        total, divisor = keras_compat.loss_sum(loss, labels, logits, sample_weight, parts)
    else:
        return None, None
    total = tf.cast(total, tf.float32)
    return total if factor is None else total * factor, divisor


def penalties(model, tokens):
    """Returns tokens · the sum of `add_loss` and of regularizers; 0 if a part is empty."""
    penalties = [tf.cast(tf.reduce_sum(penalty), tf.float32) for penalty in model.losses]
    return tf.math.multiply_no_nan(tf.add_n(penalties), tokens) if penalties else 0.0


def rows_of(batch):
    """Returns the number of rows of the first tensor in a nest, int32 scalar."""
    return tf.shape(next(x for x in keras.tree.flatten(batch) if x is not None))[0]
