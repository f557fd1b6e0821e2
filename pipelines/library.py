"""The import of the library by a command: after its flags.

The flags of a command need modules of the library that import no TensorFlow, such as `settings`,
out of packages whose `__init__` imports it. `defer` lets these modules be imported alone;
`complete`, which `app.run` calls when the flags are parsed, imports the packages. --help and errors
of flags therefore take half a second.
"""

import contextlib
import importlib.util
import os
import re
import sys

_PACKAGES = ("t2t_keras", "t2t_keras.data", "t2t_keras.models", "t2t_keras.tasks")
deferred = []
"""Packages whose `__init__` has not run."""

_DONE = b"\0imported"


def defer():
    """Defers the `__init__` of the packages to `complete`."""
    for name in _PACKAGES:
        sys.modules[name] = importlib.util.module_from_spec(importlib.util.find_spec(name))
        deferred.append(sys.modules[name])


def complete():
    """Imports the packages that are deferred, and TensorFlow.

    TensorFlow's output is shown only if its import fails, or with -v=1: some of its notices ignore
    TF_CPP_MIN_LOG_LEVEL, and all of them bypass `sys.stderr`. A child process holds them back, so
    that they are not lost if the import ends this process.
    """
    if not deferred:
        return
    if re.search(r" --?v(erbosity)?[= ]([1-9]|debug)", " ".join(sys.argv)):
        os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
    else:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        with _held_back(), _without_plots():
            import tensorflow_text  # noqa: F401  imports TensorFlow
    _, *inner = deferred
    for package in (*inner, deferred[0]):  # which imports from the others
        package.__spec__.loader.exec_module(package)
    deferred.clear()


@contextlib.contextmanager
def _held_back():
    """Shows what the block writes to the stream 2 only if it fails or the process ends in it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        held = b"".join(iter(lambda: os.read(reader, 1 << 16), b""))
        is_done = held.endswith(_DONE)
        os.write(2, b"" if is_done else held)
        os._exit(0)
    stderr = os.dup(2)
    os.dup2(writer, 2)
    try:
        yield
        sys.stderr.flush()
        os.write(2, _DONE)
    finally:
        sys.stderr.flush()
        for ours in (reader, writer):
            os.close(ours)
        os.dup2(stderr, 2)  # the child reads to the end
        os.close(stderr)
        os.waitpid(child, 0)


@contextlib.contextmanager
def _without_plots():
    """Keeps Keras from importing matplotlib, in half a second, for plots that no command makes."""
    plots = sys.modules.setdefault("matplotlib", None)
    try:
        yield
    finally:
        if plots is None:
            del sys.modules["matplotlib"]
