"""Starts binaries out of a process that has imported TensorFlow already, which saves seconds each.

Each line of standard input is a JSON list: module, arguments, and the files of the three standard
streams. For each the process forks; the child runs the module as `python -m` would. The answer is a
line with its exit code. Nothing of TensorFlow but the import may happen here: its threads would be
lost in the fork.
"""

import json
import os
import runpy
import sys

import keras  # noqa: F401  for the children
import tensorflow as tf  # noqa: F401
import tensorflow_text  # noqa: F401


def main():
    for line in sys.stdin:
        module, arguments, streams = json.loads(line)
        child = os.fork()
        if not child:
            _become(module, arguments, streams)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(module, arguments, streams):
    modes = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
    for number, (path, mode) in enumerate(zip(streams, modes, strict=True)):
        os.dup2(os.open(path, mode), number)
    sys.stdin = os.fdopen(0)
    sys.argv = [module, *arguments]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
