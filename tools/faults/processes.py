"""Commands in forked processes, and faults inside of them.

Importing TensorFlow takes longer than a small command. This process imports it once, runs nothing
with it, and forks for each command, which runs as `python -m` would (`start`). A `setup` function
runs in the child before the command: `kill_at_event` and `set_clock_back` make such functions.
"""

import importlib
import os
import pathlib
import re
import runpy
import signal
import sys
import time
from typing import NamedTuple

_EVENTS = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.utime",
    "shutil.rmtree",
}
_REMOVALS = {"os.remove", "os.rmdir"}
TIMEOUT = 900  # seconds, since the machine may be busy


def preload():
    """Imports what commands need, before the forks. Nothing of TensorFlow may run here."""
    for name in ("keras", "pipelines.batch_inference", "t2t_keras.analysis.plots"):
        importlib.import_module(name)


class Outcome(NamedTuple):
    """How a command ended: its exit code, or minus the signal that ended it, and its output."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_line(self):
        """str, the last line of the error output."""
        return ["", *self.stderr.strip().splitlines()][-1]


class Process:
    """A running command, made by `start`."""

    def __init__(self, pid, folder):
        self._pid, self._folder, self._status = pid, folder, None

    def poll(self):
        """Returns the exit code, or None while the command runs."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def send(self, number):
        """Sends a signal, if the command still runs."""
        if self.poll() is None:
            os.kill(self._pid, number)

    def wait(self, seconds=TIMEOUT):
        """Waits until the command ends; returns its `Outcome`, or None after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        texts = ((self._folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Outcome(self._status, *texts)


def start(module, arguments, folder, setup=None):
    """Starts a command in a forked process.

    Args:
        module: such as "pipelines.train".
        arguments: list of str.
        folder: pathlib.Path, an existing folder for the files `out` and `err` of the command.
        setup: function without arguments that the process calls first.

    Returns:
        `Process`.
    """
    for name in ("out", "err"):
        (folder / name).write_bytes(b"")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        _become(module, arguments, folder, setup)
    return Process(pid, folder)


def run(module, arguments, folder, setup=None):
    """Runs a command to its end; returns its `Outcome`.

    Raises:
        TimeoutError: if it does not end within minutes.
    """
    process = start(module, arguments, folder, setup)
    outcome = process.wait()
    if outcome is None:
        process.send(signal.SIGKILL)
        raise TimeoutError(f"{module} {' '.join(arguments)} does not end")
    return outcome


def _become(module, arguments, folder, setup):
    def run_module():
        for number, name in enumerate(("in", "out", "err")):
            flags = os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY
            os.dup2(os.open(folder / name if number else os.devnull, flags), number)
        sys.argv = [module, *arguments]
        if setup:
            setup()
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    end_with(run_module)


def end_with(function):
    """Calls a function, and ends a forked process as Python ends after its main module."""
    code = 1
    try:
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# Setups ------------------------------------------------------------------------------------------


def count_events(tree, path):
    """Returns a setup that writes the number of changes of a tree to a file, one byte for each."""

    def setup():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        _at_each_event(tree, lambda number: os.write(descriptor, b"."))

    return setup


def kill_at_event(tree, number):
    """Returns a setup that kills the process at the change of a tree with this number, from 1.

    Changes are those that Python reports: a file is opened for writing, a name is made, changed or
    removed. The kill comes before the change.
    """

    def at(found):
        if found == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: _at_each_event(tree, at)


def _at_each_event(tree, function):
    count, tree = 0, os.fspath(tree)

    def hook(event, arguments):
        nonlocal count
        writes = event in _EVENTS or (event == "open" and _writes(*arguments[1:]))
        within = (
            event in _REMOVALS and arguments[-1] >= 0
        )  # of a tree that is removed, name by name
        if writes and (within or str(arguments[0]).startswith(tree)):
            count += 1
            function(count)

    sys.addaudithook(hook)


def _writes(mode, flags):
    written = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    return bool(re.search("[wax+]", mode)) if isinstance(mode, str) else bool(flags & written)


def set_clock_back():
    """A setup: the clock of the process is years behind, and runs backward."""
    start_at = time.time()
    time.time = lambda: 2 * start_at - _CLOCK() - 1e8


_CLOCK = time.time


def files_of(tree):
    """Returns {relative path: bytes} of a tree."""
    tree = pathlib.Path(tree)
    paths = sorted(path for path in tree.rglob("*") if path.is_file())
    return {os.fspath(path.relative_to(tree)): path.read_bytes() for path in paths}
