"""For all tests."""

import contextlib
import fcntl
import gc
import os

import keras
import pytest
import tensorflow as tf

from t2t_keras import ops

# TensorFlow's graphs are made of many small objects that refer to one another: looking for garbage
# as often as Python does takes a tenth of the time in which they are made.
gc.set_threshold(100_000, 20, 100)

# TensorFlow's optimizer of graphs takes a quarter of the time of a small graph's first run. The
# processes that tests start have it.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def pytest_addoption(parser):
    """`pytest --gpu tests/layers` runs on a GPU; tests of the forms for CPUs stay on the CPU."""
    parser.addoption("--gpu", action="store_true", help="do not hide the GPUs of this machine")


def pytest_configure(config):
    """Hides GPUs, also from the processes that tests start: most tests have figures of CPUs.

    On a GPU products are in float32, not in TF32: tests compare them with exact ones.
    """
    if not config.getoption("--gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    tf.config.experimental.enable_tensor_float_32_execution(False)


def pytest_collection_finish():
    """Leaves what was imported out of the search for garbage after each file."""
    gc.freeze()


# Folders whose tests are not about the forms of operations.
_PLAIN = {"analysis", "end_to_end", "interop", "serving", "tasks"}


@pytest.fixture(autouse=True)
def in_float32():
    """Undoes the precision of a run that a test made within this process."""
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True, scope="module")
def plain_forms(request):
    """Makes graphs as for a GPU: one search instead of two, in half the time.

    The forms for CPUs are those of tests/decoding, tests/models, of the processes that tests start,
    and of what a test makes within `ops.made_for("cpu")`.
    """
    plain = request.path.parent.name in _PLAIN
    with ops.made_for("gpu") if plain else contextlib.nullcontext():
        yield
    gc.collect()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function of a name and `make(folder)`, to the folder that all workers of pytest share.

    The first worker that asks makes it, the others wait. Tests only read it.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent

    def get(name, make):
        folder, done = place / name, place / f"{name}.made"
        with open(place / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir(exist_ok=True)
                make(folder)
                done.touch()
        return folder

    return get
