"""The one switch between fast and plain forms of the functions in this folder."""

import contextlib

import tensorflow as tf

_forms = {"fast": True}


def fast_forms():
    """Returns whether the graph being traced takes the fast CPU forms."""
    return _forms["fast"] and not tf.config.list_physical_devices("GPU")


@contextlib.contextmanager
def plain():
    """Traces everything inside with plain forms: the definitions, in a few lines of TensorFlow."""
    before, _forms["fast"] = _forms["fast"], False
    try:
        yield
    finally:
        _forms["fast"] = before
