"""The binaries: prepare, train, average, evaluate, translate, visualize, export, serve.

Start with `app.py` (flags, errors, exit codes), `fields.py` (the fields of a config),
`experiment.py` (from a config to a model) and `workdir.py` (the folder of a run). Importing this
package imports TensorFlow without its start-up messages, and not at all for --help. Set
TF_CPP_MIN_LOG_LEVEL to see the messages.
"""

import os
import signal
import sys
import tempfile

from pipelines.help import import_stand_ins, is_command


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
    """Imports TensorFlow; its output is shown only if the import fails."""
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryFile() as messages:
        # Some messages ignore the level, and all of them bypass `sys.stderr`.
        stderr = os.dup(2)
        os.dup2(messages.fileno(), 2)
        # Keras would import it, in half a second, for plots that no command makes.
        plots = sys.modules.setdefault("matplotlib", None)
        try:
            import tensorflow_text  # noqa: PLC0415  imports TensorFlow
        except BaseException:
            messages.seek(0)
            os.write(stderr, messages.read())
            raise
        finally:
            if plots is None:
                del sys.modules["matplotlib"]
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)


if is_command():
    _prepare_process()
if not import_stand_ins():
    _import_tensorflow_quietly()
