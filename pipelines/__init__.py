"""The binaries: prepare, train, average, evaluate, translate, visualize, export, serve.

Start with `app.py` (flags, errors, exit codes), `fields.py` (the fields of a config),
`experiment.py` (from a config to a model) and `workdir.py` (the folder of a run). Importing this
package imports TensorFlow without its start-up messages, and not at all for --help. Set
TF_CPP_MIN_LOG_LEVEL to see the messages.
"""

import os
import sys
import tempfile

from pipelines.help import import_stand_ins


def _import_tensorflow_quietly():
    """Imports TensorFlow; what it writes meanwhile is shown only if the import fails."""
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
            import tensorflow_text  # noqa: F401, PLC0415  imports TensorFlow
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


if not import_stand_ins():
    _import_tensorflow_quietly()
