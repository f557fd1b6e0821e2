"""`InputError`, which every invalid input raises, and the most frequent checks of an input."""

import importlib.util
import numbers
import os
import re


class InputError(ValueError):
    """An invalid input. The message names the value, the place and the fix.

    The binaries of `pipelines` print the message as one line and exit with 1; every other
    exception is an error in the program and keeps its traceback.

    Example:
        >>> t2t.TransformerConfig(vocab_size=100, dropout=1.5)
        Traceback (most recent call last):
            ...
        t2t_keras.errors.InputError: dropout is 1.5: give a number of at least 0 and less than 1.
    """

    __init__ = Exception.__init__  # AutoGraph raises errors of such types again as what they are


class MissingTextError(InputError):
    """A corpus has no text of a split, or of one side of it."""


class TextError(InputError):
    """One of several texts is invalid; its index and the reason, which follows the text's name."""

    def __init__(self, reason, index):
        super().__init__(f"texts[{index}] {reason}")
        self.reason, self.index = reason, index


def reason_of(error):
    """Returns the first line of an error's message, without TensorFlow's names of operations."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"\{\{.*?\}\} ?| ?\[Op:\w+\]", "", first)


def require_backend(name):
    """Raises ImportError unless the backend of Keras is TensorFlow."""
    if name != "tensorflow":
        raise ImportError(
            f"Keras's backend is {name}, but t2t_keras needs tensorflow: set the environment "
            "variable KERAS_BACKEND=tensorflow."
        )


def require_keras():
    """Raises ImportError if TensorFlow is to use Keras 2 (`tf_keras`), which is not installed."""
    legacy = os.environ.get("TF_USE_LEGACY_KERAS")
    if legacy in ("true", "True", "1") and importlib.util.find_spec("tf_keras") is None:
        raise ImportError(
            f"TF_USE_LEGACY_KERAS is {legacy}, but tf_keras is not installed: unset the "
            "environment variable (t2t_keras needs Keras 3), or install tf_keras for your other "
            "code."
        )


# Before Keras is imported, which needs the package of its backend.
require_backend(os.environ.get("KERAS_BACKEND") or "tensorflow")
require_keras()


def require_whole_number(name: str, value: numbers.Integral, least: int = 1) -> int:
    """Returns a whole number, such as one of NumPy, as an int; raises InputError for others."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}: give a whole number of at least {least}.")
    return int(value)


def require_rate(name, value):
    """Raises InputError, naming the value, if it is not a number of at least 0 and less than 1."""
    if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise InputError(f"{name} is {value!r}: give a rate of at least 0 and less than 1.")


def require_positive(name, value):
    """Raises InputError, naming the value, if it is not a number above 0."""
    if not isinstance(value, numbers.Real) or not value > 0:
        raise InputError(f"{name} is {value!r}: give a number above 0.")
