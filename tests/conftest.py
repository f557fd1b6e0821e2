"""For all tests."""

import contextlib
import gc

import pytest
import tensorflow as tf

from t2t_keras import ops

# TensorFlow's graphs are made of many small objects that refer to one another: looking for garbage
# as often as Python does takes a tenth of the time in which they are made.
gc.set_threshold(100_000, 20, 100)

# TensorFlow's optimizer of graphs takes a quarter of the time of a small graph's first run. The
# commands and servers that tests start have it.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

# Folders whose tests are not about the forms of operations.
_PLAIN = {"analysis", "end_to_end", "interop", "serving", "tasks"}


@pytest.fixture(autouse=True)
def plain_forms(request):
    """Makes graphs as for a GPU: one search instead of two, in half the time.

    The forms for CPUs are those of tests/decoding, tests/models and tests/end_to_end, and of what a
    test makes within `ops.made_for("cpu")`.
    """
    plain = request.path.parent.name in _PLAIN
    with ops.made_for("gpu") if plain else contextlib.nullcontext():
        yield
