"""A model's weights as a SavedModel stores them: unchanged, or matrices in bfloat16.

bfloat16 halves the files and keeps two to three decimal digits of each weight. Matrices are cast
back to float32 once, when the SavedModel is loaded, so that requests take the same time. Vectors,
which are small, stay float32.
"""

import functools

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function
from t2t_keras.serving.made_at_loading import MadeAtLoading

PRECISIONS = ("float32", "bfloat16")


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


class _Widened(MadeAtLoading):
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
