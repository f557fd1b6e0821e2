"""For all tests."""

import contextlib
import gc

import pytest

from t2t_keras import ops

# TensorFlow's graphs are made of many small objects that refer to one another: looking for garbage
# as often as Python does takes a tenth of the time in which they are made.
gc.set_threshold(100_000, 20, 100)

# Folders whose tests are not about the forms of operations.
_PLAIN = {"analysis", "interop", "serving", "tasks"}


@pytest.fixture(autouse=True)
def plain_forms(request):
    """Makes graphs as for a GPU: one search instead of two, in half the time.

    The forms for CPUs are those of tests/decoding, tests/models and tests/end_to_end, and of what a
    test makes within `ops.made_for("cpu")`.
    """
    plain = request.path.parent.name in _PLAIN
    with ops.made_for("gpu") if plain else contextlib.nullcontext():
        yield
