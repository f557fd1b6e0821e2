"""A model's weights as a SavedModel stores them, and tensors computed from them at loading.

`stored_weights` chooses the stored form: unchanged, or matrices in bfloat16, which halves the files
and keeps two to three decimal digits of each weight. Matrices are cast back to float32 once, when
the SavedModel is loaded, so that requests take the same time. Vectors, which are small, stay
float32. `LoadTimeVariable` is a tensor that a SavedModel computes when it is loaded;
`DerivedWeights` holds those that the layers ask for.
"""

import functools
import uuid

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function

PRECISIONS = ("float32", "bfloat16")


class LoadTimeVariable(tf.saved_model.experimental.TrackableResource):
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


class DerivedWeights:
    """The derived weights (transposed or packed matrices) that all signatures of an export share.

    Args:
        weights: result of `stored_weights`.
    """

    def __init__(self, weights):
        self._weights = weights
        self._variables = {}

    @property
    def tracked(self):
        """The objects that the export must track."""
        return list(self._variables.values())

    def get(self, key, make):
        """Returns the tensor of a key, inside a graph; the first call for the key creates it."""
        if key not in self._variables:
            with tf.init_scope():
                self._variables[key] = LoadTimeVariable(self._weights.from_stored(make))
        return self._variables[key].read()


def stored_weights(model, precision):
    """Returns the stored form of a model's weights.

    Args:
        model: built Keras model.
        precision: `float32` (unchanged) or `bfloat16`.

    Returns:
        An object with `tracked`, a list of the objects that the export must track;
        `reading(function)`, which wraps a `tf.function` so that it reads the stored weights; and
        `from_stored(make)`, which wraps a function without arguments in the same way.

    Raises:
        InputError: for another precision.
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision is {precision!r}: choose one of {', '.join(PRECISIONS)}.")
    return _Float32(model) if precision == "float32" else _Bfloat16(model)


class _Float32:
    """The model's own variables.

    As constants they would count towards the 2 GB limit of a graph, once for each signature.
    """

    def __init__(self, model):
        self.tracked = [weight.value for weight in model.weights]

    def reading(self, function):
        return function

    def from_stored(self, make):
        return make


class _Bfloat16:
    """Matrices rounded to bfloat16, all other weights unchanged."""

    def __init__(self, model):
        vectors = [weight.value for weight in model.weights if len(weight.shape) <= 1]
        self._matrices = [weight for weight in model.weights if len(weight.shape) > 1]
        self._widened = [_Widened(matrix) for matrix in self._matrices]
        self.tracked = [*vectors, *(widened.stored for widened in self._widened), *self._widened]

    def reading(self, function):
        @graph_function(input_signature=function.input_signature)
        @functools.wraps(function.python_function)
        def rounded(*inputs):
            # The read is part of the graph and must happen inside the function.
            values = [widened.read() for widened in self._widened]
            with keras.StatelessScope(zip(self._matrices, values, strict=True)):
                return function.python_function(*inputs)

        return rounded

    def from_stored(self, make):
        def made():
            # Derived weights are initialized in any order, so none may depend on another.
            values = [widened.widen() for widened in self._widened]
            with keras.StatelessScope(zip(self._matrices, values, strict=True)):
                return make()

        return made


class _Widened(LoadTimeVariable):
    """A matrix in bfloat16, and its copy in the original dtype.

    Args:
        matrix: Keras variable, not changed.

    Attributes:
        stored: the bfloat16 variable; a resource does not track its attributes by itself.
    """

    def __init__(self, matrix):
        self.stored = tf.Variable(tf.cast(matrix.value, tf.bfloat16))
        self._matrix_dtype = matrix.dtype
        super().__init__(self.widen)

    def widen(self):
        """Returns the rounded matrix in the original dtype."""
        return tf.cast(self.stored, self._matrix_dtype)
