"""The objective of a training step with any loss and metrics of Keras; see `train_step`."""

import keras
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.layers.basic import has_form
from t2t_keras.models.train_step import penalties, rows_of


def keras_objective(model, micro_batch, training=True):
    """Returns the sum of any loss over a micro-batch, its divisor, and the logits, as Keras does.

    Sum / divisor is the mean. The divisor is the number or the weight of the elements that count;
    for `LabelSmoothedCrossEntropy` it is the weight of the tokens.

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
        by_rows = training and model.micro_batches > 1
        where = "micro_batches above 1" if by_rows else "several devices"
        raise InputError(
            "The loss returns one number for a batch, or none, so the parts cannot be weighted by "
            f"their tokens with {where}: give `compile` a loss that returns one number for each "
            "row or token, which Keras averages. To leave padding out, use "
            "LabelSmoothedCrossEntropy or ignore_class."
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
