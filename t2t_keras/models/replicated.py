"""What Keras 3 does not yet do for models that train on several devices or hosts at once.

Repairs of keras issue 20585, in one place: `tests/models/test_replicated.py` shows each fault in
plain Keras and fails on the day that Keras has mended it, and then this file goes.
"""

import keras
import tensorflow as tf


class ReplicatedModel(keras.Model):
    """A `keras.Model` whose `fit` and `evaluate` work under any `tf.distribute` strategy.

    Before its first step Keras adds up the replicas' shares of a batch, only to learn its shapes
    (`TensorFlowTrainer._maybe_symbolic_build`). Shares of unequal size can't be added, nor can
    those of several hosts. Here the shapes come from the dataset's own description, and no batch
    is drawn.

    Under `MultiWorkerMirroredStrategy` Keras takes the mean of the replicas' metrics over their
    first axis (`reduce_per_replica`), and scalars have none. Here they have.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None and self.distribute_strategy.num_replicas_in_sync > 1:
            data_batch = keras.tree.map_structure(
                lambda spec: getattr(spec, "_value_specs", (spec,))[0],
                iterator._distributed_dataset.element_spec,
            )
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    def train_step(self, data):
        return _reducible(super().train_step(data))

    def test_step(self, data):
        return _reducible(super().test_step(data))


def _reducible(metrics):
    """Gives scalars the axis over which Keras takes the mean of several hosts."""
    if not isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return metrics
    return keras.tree.map_structure(lambda value: tf.reshape(value, [1]), metrics)
