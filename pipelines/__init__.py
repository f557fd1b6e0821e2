"""The binaries: prepare, train, average, evaluate, translate, visualize, export, serve.

Start with `app.py` (flags, errors, exit codes), `fields.py` (the fields of a config),
`experiment.py` (from a config to a model) and `workdir.py` (the folder of a run). Importing this
package in a command imports TensorFlow without its messages, and not at all for --help. With -v=1 a
command shows them.
"""

import contextlib
import os
import re
import signal
import sys

from pipelines.help import import_stand_ins, is_command

_DONE = b"\0imported"


def _prepare_process():
    """Prepares the process of a command, before its imports take seconds.

    File names and arguments are read as UTF-8 in any locale, no file gets the descriptor of a
    closed standard stream, and Ctrl-C ends the process without a traceback, as `app.run` does then.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONUTF8": "1"})
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  None where it is closed
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _import_tensorflow_quietly():
    """Imports TensorFlow; its output is shown only if the import fails, or with -v=1.

    Some of its notices ignore TF_CPP_MIN_LOG_LEVEL, and all of them bypass `sys.stderr`. A child
    process holds them back, so that they are not lost if the import ends this process.
    """
    if re.search(r" --?v(erbosity)?[= ]([1-9]|debug)", " ".join(sys.argv)):
        os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with _held_back(), _without_plots():
        import tensorflow_text  # noqa: PLC0415  imports TensorFlow


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


if is_command():
    _prepare_process()
    if not import_stand_ins():
        _import_tensorflow_quietly()
