"""For all tests."""

import contextlib
import gc
import os
import subprocess
import types

import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.serving import verification
from tests.warm_python import warm_python

# TensorFlow's graphs are made of many small objects that refer to one another: looking for garbage
# as often as Python does takes a tenth of the time in which they are made.
gc.set_threshold(100_000, 20, 100)

# TensorFlow's optimizer of graphs takes a quarter of the time of a small graph's first run. The
# commands and servers that tests start have it.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def pytest_addoption(parser):
    """`pytest --gpu tests/layers` runs on a GPU; tests of the forms for CPUs stay on the CPU."""
    parser.addoption("--gpu", action="store_true", help="do not hide the GPUs of this machine")


def pytest_configure(config):
    """Hides GPUs, also from the processes that tests start: most tests have figures of CPUs."""
    if not config.getoption("--gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


_TOGETHER = {
    "end to end": ("tests/end_to_end/",),
    "serving": (
        "tests/serving/",
        "tests/models/test_replicated.py",
        "tests/models/test_workers.py",
        "tests/models/test_xla.py",
        "tests/training/test_distribution.py",
    ),
}
"""{name: beginnings of paths}, whose tests one worker runs, first of all. Those of the two folders
share what takes long to make. The four files have few tests, each as long as a file: as the last
ones they would leave the other worker without work."""

# Folders whose tests are not about the forms of operations.
_PLAIN = {"analysis", "end_to_end", "interop", "serving", "tasks"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Has --dist=loadfile, which begins with the files of most tests, keep `_TOGETHER` whole."""
    if config.option.dist != "loadfile" or not config.option.loadscopereorder:
        return None  # of the slow tests the two folders have nearly all
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415

    class TogetherScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            names = (name for name, paths in _TOGETHER.items() if nodeid.startswith(paths))
            return next(names, super()._split_scope(nodeid))

    return TogetherScheduling(config, log)


@pytest.fixture(autouse=True, scope="module")
def plain_forms(request):
    """Makes graphs as for a GPU: one search instead of two, in half the time.

    The forms for CPUs are those of tests/decoding, tests/models and tests/end_to_end, and of what a
    test makes within `ops.made_for("cpu")`.
    """
    plain = request.path.parent.name in _PLAIN
    with ops.made_for("gpu") if plain else contextlib.nullcontext():
        yield


@pytest.fixture(autouse=True, scope="session")
def warm_clean_processes():
    """Has exports verified by processes that have imported TensorFlow already.

    The exports of commands, as in tests/end_to_end, start a Python of their own.
    """

    def start(command, **options):
        return subprocess.Popen([*warm_python(), *command[1:]], **options)

    with pytest.MonkeyPatch.context() as patch:
        warm = types.SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)
        patch.setattr(verification, "subprocess", warm)
        yield
