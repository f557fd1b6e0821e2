"""A model's weights as a SavedModel stores them: as they are, or matrices in bfloat16.

bfloat16 is float32 cut to its upper 16 bits: it halves the files and keeps two to three decimal
digits of each number. Matrices are stored so and made float32 again once, when the SavedModel is
loaded, so that a request costs nothing more; vectors, which weigh little, stay float32.
"""

import functools

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function
from t2t_keras.serving.made_at_loading import MadeAtLoading

PRECISIONS = ("float32", "bfloat16")


def stored_weights(model, precision):
    """Returns what stores a model's weights, and lets functions read what is stored.

    Args:
        model: Keras model, all of its weights made.
        precision: `float32` (as they are) or `bfloat16`.

    Returns:
        An object with `tracked`, a list of what the exported object must keep;
        `reading(function)`, which gives a `tf.function` as one that reads the stored weights; and
        `from_stored(make)`, which gives a function without arguments, called outside of those, as
        one that does.

    Raises:
        InputError: for another precision.
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision is {precision!r}: choose one of {', '.join(PRECISIONS)}.")
    return _AsTheyAre(model) if precision == "float32" else _Bfloat16(model)


class _AsTheyAre:
    """The model's own variables.

    They stay variables: as constants they would have to fit, once for each signature, into the
    2 GB that a graph may have.
    """

    def __init__(self, model):
        self.tracked = [weight.value for weight in model.weights]

    def reading(self, function):
        return function

    def from_stored(self, make):
        return make


class _Bfloat16:
    """Matrices rounded to bfloat16, all other weights as they are."""

    def __init__(self, model):
        vectors = [weight.value for weight in model.weights if len(weight.shape) <= 1]
        self._matrices = [weight for weight in model.weights if len(weight.shape) > 1]
        self._widened = [_Widened(matrix) for matrix in self._matrices]
        self.tracked = [*vectors, *(widened.stored for widened in self._widened), *self._widened]

    def reading(self, function):
        @graph_function(input_signature=function.input_signature)
        @functools.wraps(function.python_function)
        def rounded(*inputs):
            # Reading is part of the graph, so that it must happen inside the function.
            values = [widened.read() for widened in self._widened]
            with keras.StatelessScope(zip(self._matrices, values, strict=True)):
                return function.python_function(*inputs)

        return rounded

    def from_stored(self, make):
        def made():
            # Copies may be made in any order: none may need another one.
            values = [widened.widen() for widened in self._widened]
            with keras.StatelessScope(zip(self._matrices, values, strict=True)):
                return make()

        return made


class _Widened(MadeAtLoading):
    """A matrix in bfloat16, and a copy as wide as it was.

    Args:
        matrix: Keras variable, left as it is.

    Attributes:
        stored: the bfloat16 variable; a resource does not track its attributes by itself.
    """

    def __init__(self, matrix):
        self.stored = tf.Variable(tf.cast(matrix.value, tf.bfloat16))
        self._matrix_dtype = matrix.dtype
        super().__init__(self.widen)

    def widen(self):
        """Returns the rounded matrix, made anew."""
        return tf.cast(self.stored, self._matrix_dtype)
