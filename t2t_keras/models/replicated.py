"""What Keras 3 does not yet do for models that train on several devices at once.

One repair, in one place: `tests/models/test_replicated.py` shows the fault in plain Keras and
fails on the day that Keras has mended it, and then this file goes.
"""

import keras


class ReplicatedModel(keras.Model):
    """A `keras.Model` whose `fit` takes global batches that the replicas can't share evenly.

    Before its first step Keras adds up the replicas' shares of a batch, only to learn its shapes
    (`TensorFlowTrainer._maybe_symbolic_build`). Shares of unequal size can't be added. Here the
    shapes come from the dataset's own description, and no batch is drawn.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None and self.distribute_strategy.num_replicas_in_sync > 1:
            data_batch = keras.tree.map_structure(
                lambda spec: getattr(spec, "_value_specs", (spec,))[0],
                iterator._distributed_dataset.element_spec,
            )
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
