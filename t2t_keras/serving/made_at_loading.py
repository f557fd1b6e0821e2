"""Tensors that a SavedModel computes from stored weights once, when it is loaded."""

import uuid

import tensorflow as tf

from t2t_keras.graphs import graph_function


class MadeAtLoading(tf.saved_model.experimental.TrackableResource):
    """A tensor computed from stored weights.

    Args:
        make: function without arguments that returns a tensor of static shape; it may only read
            stored variables.
    """

    def __init__(self, make):
        self._make = make
        spec = graph_function(make).get_concrete_function().structured_outputs
        self._dtype, self._shape = spec.dtype, spec.shape
        # Two SavedModels in one process must not share their tensors.
        self._shared_name = str(uuid.uuid4())
        super().__init__()
        _ = self.resource_handle  # created here, not in the graph below
        graph_function(self._initialize)()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(
            dtype=self._dtype, shape=self._shape, shared_name=self._shared_name
        )

    def _initialize(self):
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=self._make())

    def release(self):
        """Frees the memory; objects loaded from a SavedModel have their own tensors.

        TensorFlow's `_destroy_resource` would be saved too, and run for each of two objects loaded
        from one folder, which share their tensors.
        """
        tf.raw_ops.DestroyResourceOp(resource=self.resource_handle, ignore_lookup_error=True)

    def read(self):
        """Returns the tensor, inside a graph."""
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, self._shape)


class KeptCopies:
    """The derived weights that all signatures of an export share.

    Args:
        weights: result of `stored_weights`.
    """

    def __init__(self, weights):
        self._weights = weights
        self._made = {}

    @property
    def tracked(self):
        """The objects that the export must track."""
        return list(self._made.values())

    def keep(self, key, make):
        """Returns the tensor of this key, inside a graph; the first call creates it."""
        if key not in self._made:
            with tf.init_scope():
                self._made[key] = MadeAtLoading(self._weights.from_stored(make))
        return self._made[key].read()
