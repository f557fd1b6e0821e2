"""Starts Python with TensorFlow imported already, which saves seconds of a core each time.

`subprocess` runs `[*warm_python(), "-m", module, ...]`, with all its options, as it runs
`[sys.executable, "-m", module, ...]`; a script or `-c` likewise. What it starts is a client that
sends its command, folder, environment and streams to a server, which has imported TensorFlow and
forks. Signals reach the forked process, whose end is the client's end; it is killed where the
client is. Nothing of TensorFlow but the import may happen in the server: its threads would be lost
in the fork.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import types

_SIZE = struct.Struct("q")


_LIBRARY = ("t2t_keras", "pipelines.app", "pipelines.experiment", "pipelines.batch_inference")
_FURTHER = ("matplotlib.pyplot", "sacrebleu", "tqdm")  # what many binaries import
_ROOT = str(pathlib.Path(__file__).parents[1])


@functools.cache
def warm_python(library=False):
    """Returns the beginning of a command, list of str. The first call starts the server.

    Args:
        library: bool, whether this library has been imported, too. The first call imports it in a
            process of the other server.
    """
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "socket")
    python = warm_python() if library else [sys.executable]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        server = subprocess.Popen(
            [*python, __file__, "serve", *((*_LIBRARY, *_FURTHER) if library else ())],
            cwd=_ROOT,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,
            stdout=listener,  # only so can it be passed on
            stderr=subprocess.DEVNULL,
        )
    atexit.register(folder.cleanup)
    atexit.register(server.stdin.close)  # it ends with its input
    return [sys.executable, "-IS", __file__, "ask", path]


# The client ---------------------------------------------------------------------------------------


def ask(path, *command):
    """Has the server run a command with the streams of this process, and ends as it does."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = json.dumps([command, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(connection, [_SIZE.pack(len(request))], [0, 1, 2])
    connection.sendall(request)
    os.closerange(0, 3)  # a pipe breaks when the other process has closed it
    process = _receive(connection)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(process, number))
    code = _receive(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _receive(connection):
    data = connection.recv(_SIZE.size)
    if not data:
        os._exit(1)  # the server is gone
    return _SIZE.unpack(data)[0]


# The server ---------------------------------------------------------------------------------------


def serve(*modules):
    """Forks a process for each client, and tells it the number and the exit code of the process."""
    listener = socket.socket(fileno=os.dup(1))
    sys.path[0] = _ROOT
    import keras  # noqa: F401, PLC0415  for the forked processes
    import tensorflow  # noqa: F401, PLC0415
    import tensorflow_text  # noqa: F401, PLC0415

    for module in modules:
        importlib.import_module(module)
    ended, wake_up = os.pipe()
    os.set_blocking(wake_up, False)
    signal.set_wakeup_fd(wake_up)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    clients = {}  # the connection of each process's client
    while True:
        ready, _, _ = select.select([0, listener, ended, *clients.values()], [], [])
        if 0 in ready:
            break
        if ended in ready:
            os.read(ended, 512)
        if listener in ready:
            client, _ = listener.accept()
            clients[_fork(client)] = client
        for process, client in list(clients.items()):
            if client in ready:  # it says nothing, so it was killed
                os.kill(process, signal.SIGKILL)
            finished, status = os.waitpid(process, 0 if client in ready else os.WNOHANG)
            if finished:
                _send(client, os.waitstatus_to_exitcode(status))
                clients.pop(process).close()
    for process in clients:
        os.kill(process, signal.SIGKILL)


def _fork(client):
    size, streams, _, _ = socket.recv_fds(client, _SIZE.size, 3)
    request = client.recv(_SIZE.unpack(size)[0], socket.MSG_WAITALL)
    process = os.fork()
    if not process:
        _become(streams, *json.loads(request))
    for stream in streams:
        os.close(stream)
    _send(client, process)
    return process


def _send(client, number):
    with contextlib.suppress(BrokenPipeError):  # the client was killed
        client.sendall(_SIZE.pack(number))


def _become(streams, command, folder, environment):
    """Runs the command as a Python of its own would, and ends the process."""
    from tools.faults.processes import end_with  # noqa: PLC0415  the client cannot import it

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    end_with(lambda: _run(*command))


def _run(first, *arguments):
    if first == "-c":
        code, *arguments = arguments
        sys.argv, sys.path[0] = ["-c", *arguments], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(code, main.__dict__)
    elif first == "-m":
        module, *arguments = arguments
        sys.argv, sys.path[0] = [module, *arguments], os.getcwd()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [first, *arguments], os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    {"ask": ask, "serve": serve}[sys.argv[1]](*sys.argv[2:])
