"""A model's weights as a SavedModel stores them, and tensors computed from them at loading.

`stored_weights` chooses the stored form: unchanged; matrices in bfloat16, which halves the files
and keeps two to three decimal digits of each weight; or matrices in int8, a quarter of the files,
with products in int8 as well. Matrices in bfloat16 are cast back to float32 once, when the
SavedModel is loaded, so that requests take the same time. Vectors, which are small, stay float32.
`LoadTimeVariable` is a tensor that a SavedModel computes when it is loaded; `DerivedWeights` holds
those that the layers ask for.
"""

import contextlib
import functools
import uuid

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function
from t2t_keras.layers.basic import Linear
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.ops import int8
from t2t_keras.settings import PRECISIONS


class LoadTimeVariable(tf.saved_model.experimental.TrackableResource):
    """The tensor of static shape that `make` returns, which may only read stored variables."""

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

    def read(self):
        """Returns the tensor, inside a graph."""
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, self._shape)


def release(tracked):
    """Frees the memory of `LoadTimeVariable`s; those that are loaded have their own tensors.

    TensorFlow's `_destroy_resource` would be saved as well. It would run for each of two objects
    loaded from one folder, although they share their tensors.
    """
    for one in tracked:
        if isinstance(one, LoadTimeVariable):
            tf.raw_ops.DestroyResourceOp(resource=one.resource_handle, ignore_lookup_error=True)


class DerivedWeights:
    """The derived weights (transposed or packed matrices) that all signatures of an export share.

    They are made of `weights`, a result of `stored_weights`.
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


def check_precision(precision, device):
    """Raises InputError for a precision that is unknown or that the device does not support."""
    if precision not in PRECISIONS:
        raise InputError(f"precision is {precision!r}: choose one of {', '.join(PRECISIONS)}.")
    if precision == "int8" and device != "cpu":
        raise InputError(
            f"precision is 'int8', which only CPUs support, and device is {device!r}: give "
            "device cpu, or another precision."
        )


def stored_weights(model, precision):
    """Returns the stored form of a built model's weights, in one of `PRECISIONS`.

    It has `tracked`, a list of the objects that the export must track; `reading(function)`, which
    wraps a `tf.function` so that it reads the stored weights; `from_stored(make)`, which wraps a
    function without arguments in the same way; and `requires`, a str, the server's requirements in
    addition to TensorFlow.

    Raises:
        InputError: if a weight is NaN or infinite, or there is no int8 form of the model.
    """
    for weight in model.weights:
        if not np.all(np.isfinite(tf.convert_to_tensor(weight.value))):
            raise InputError(
                f"{weight.path} has weights that are NaN or infinite: export an earlier checkpoint."
            )
    return {"float32": _Float32, "bfloat16": _Bfloat16, "int8": _Int8}[precision](model)


class _Float32:
    """The model's own variables.

    As constants they would count toward the 2 GB limit of a graph, once for each signature.
    """

    requires = ""

    def __init__(self, model):
        self.tracked = [weight.value for weight in model.weights]

    def reading(self, function):
        @graph_function(input_signature=function.input_signature)
        @functools.wraps(function.python_function)
        def reading(*inputs):
            with self._stored():
                return function.python_function(*inputs)

        return reading

    def from_stored(self, make):
        return make

    def _stored(self):
        """A context, entered inside a graph, in which layers read the stored weights."""
        return contextlib.nullcontext()


class _Bfloat16(_Float32):
    """Matrices rounded to bfloat16, all other weights unchanged."""

    def __init__(self, model):
        vectors = [weight.value for weight in model.weights if len(weight.shape) <= 1]
        self._matrices = [weight for weight in model.weights if len(weight.shape) > 1]
        self._widened = [_Widened(matrix) for matrix in self._matrices]
        self.tracked = [*vectors, *(widened.stored for widened in self._widened), *self._widened]

    def _stored(self, read=lambda widened: widened.read()):
        values = map(read, self._widened)
        return keras.StatelessScope(zip(self._matrices, values, strict=True))

    def from_stored(self, make):
        def made():
            # Derived weights are initialized in any order, so none may depend on another.
            with self._stored(lambda widened: widened.widen()):
                return make()

        return made


class _Widened(LoadTimeVariable):
    """A matrix in bfloat16, and its copy in the original dtype."""

    def __init__(self, matrix):
        # A resource does not track its attributes by itself.
        self.stored = tf.Variable(tf.cast(matrix.value, tf.bfloat16))
        self._matrix_dtype = matrix.dtype
        super().__init__(self.widen)

    def widen(self):
        """Returns the rounded matrix in the original dtype."""
        return tf.cast(self.stored, self._matrix_dtype)


class _Int8(_Float32):
    """Matrices of `Linear` and `SharedEmbedding` in int8, all other weights unchanged.

    These are norms, biases, positions, a classifier's head and kNN-MT's datastore.
    """

    requires = f"x86-64 with oneDNN, which has the operation {keras_compat.INT8_PRODUCT}"

    def __init__(self, model):
        matrix = _as_variables(tf.ones([1, 1]))
        try:
            graph_function(lambda: int8.product(tf.ones([1, 1]), matrix))()
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise InputError(
                "precision is 'int8', but this TensorFlow cannot multiply int8: export on "
                f"{self.requires}, or in another precision."
            ) from error
        self._matrices, replaced = [], set()
        for layer in keras_compat.all_layers(model):
            if isinstance(layer, keras.layers.Conv1D):
                raise InputError(
                    f"{layer.path} is a convolution, which has no int8 form: export in float32 or "
                    "bfloat16."
                )
            if isinstance(layer, Linear):
                rows = tf.transpose(ops.merged_kernel(*layer.factors))
                self._matrices.append((layer.factors[0], _as_variables(rows)))
                replaced.add(id(layer.factors[0]))
            if isinstance(layer, SharedEmbedding) and id(layer.matrix) not in replaced:
                self._matrices.append((layer.matrix, _as_variables(layer.matrix)))
                replaced.add(id(layer.matrix))
        others = [weight.value for weight in model.weights if id(weight) not in replaced]
        self.tracked = [*others, *(part for _, matrix in self._matrices for part in matrix)]

    def _stored(self):
        return ops.in_int8(self._matrices)


def _as_variables(matrix):
    """Returns the `Int8Matrix` of a tensor [outputs, width] as variables."""
    return int8.Int8Matrix(*map(tf.Variable, int8.quantize(tf.cast(matrix, tf.float32))))
