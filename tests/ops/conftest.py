"""For the tests of functions that have a fast and a plain form."""

import contextlib

import pytest

from t2t_keras import ops


@pytest.fixture(autouse=True)
def forms_for_cpus(request):
    """Makes graphs for the CPU on a machine with a GPU, too; a test may ask for other forms."""
    if request.path.name == "test_trace.py":
        if ops.device() == "gpu":
            pytest.skip("it tests what is chosen where no GPU is visible")
        yield
        return
    with ops.made_for("cpu"):
        yield


_BLOCKS = {
    "fast": contextlib.nullcontext,
    "plain": ops.plain,
    "gpu": lambda: ops.made_for("gpu"),
    "xla": lambda: ops.made_for("xla"),
}


@pytest.fixture(params=list(_BLOCKS))
def form(request):
    """Runs a test with the fast form of each function, the plain one, those for GPUs and XLA."""
    with _BLOCKS[request.param]():
        assert ops.fast_forms() == (request.param == "fast")
        yield request.param
