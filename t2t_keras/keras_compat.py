"""Every private name of Keras that this library touches, and what Keras does not yet do.

Written for Keras 3.15 and TensorFlow 2.21. Each entry says why, and which test fails on the day it
can go.
"""

import keras
import tensorflow as tf


class ReplicaRepairs:
    """What Keras lacks for `fit` and `evaluate` under `tf.distribute` (keras issue 20585).

    Before its first step Keras adds up the replicas' parts of a batch, only to learn its shapes
    (`_maybe_symbolic_build`). Parts of unequal size cannot be added, nor can those of several
    hosts. Here the shapes come from the dataset's description, and no batch is drawn.

    Can go when `tests/models/test_replicated.py` finds that plain Keras trains.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None and self.distribute_strategy.num_replicas_in_sync > 1:
            data_batch = keras.tree.map_structure(
                lambda spec: getattr(spec, "_value_specs", (spec,))[0],
                iterator._distributed_dataset.element_spec,
            )
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)


def reducible(metrics):
    """Gives scalars an axis under `MultiWorkerMirroredStrategy` (keras issue 20585).

    Keras takes the mean of several hosts' metrics over their first axis (`reduce_per_replica`).
    Can go when `tests/models/test_workers.py` finds that plain Keras trains.
    """
    if not isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return metrics
    return keras.tree.map_structure(lambda value: tf.reshape(value, [1]), metrics)


def update_loss_tracker(model, loss, rows):
    """Adds a step's loss to what `fit` reports as "loss".

    `Model._loss_tracker` has no public name; `train_step` of Keras updates it the same way. A loss
    under `tf.distribute` is divided by the number of replicas, which is undone here.

    Args:
        model: compiled `keras.Model`.
        loss: float32 scalar.
        rows: int32 scalar, rows of the batch.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    model._loss_tracker.update_state(loss * replicas, sample_weight=rows)


def call(model, inputs, training):
    """Calls a model whose `call` may or may not have a `training` argument.

    `_call_has_training_arg` has no public name; `train_step` of Keras asks the same.
    """
    return model(inputs, training=training) if model._call_has_training_arg else model(inputs)


def compute_loss(model, inputs, labels, predictions, weights):
    """Returns `Model.compute_loss`, which a subclass may define without `training`.

    `Model._compute_loss` is where Keras handles both forms.
    """
    return model._compute_loss(inputs, labels, predictions, weights, training=True)


def all_layers_built(model):
    """Whether a model and all layers below it have their variables (`Layer._flatten_layers`)."""
    return all(layer.built for layer in model._flatten_layers())
