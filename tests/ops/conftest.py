"""For the tests of functions that have a fast and a plain form."""

import pytest

from t2t_keras import ops


@pytest.fixture(params=["fast", "plain"])
def form(request):
    """Runs a test twice: with the fast form of each function, and with the plain one."""
    if request.param == "fast":
        assert ops.fast_forms()
        yield request.param
        return
    with ops.plain():
        yield request.param
