"""Locks, which keep a second process from writing the same files."""

import contextlib
import fcntl
import os
import socket

from absl import logging

from t2t_keras.errors import InputError


@contextlib.contextmanager
def lock(path, what):
    """Holds an exclusive lock on a file while the block runs; `what` names the exclusive action.

    The operating system releases it when the process ends for any reason. It also excludes other
    hosts if the file system supports locks, as NFS does; if it supports none, a warning is logged.
    The file is made if missing, and is kept, with a line about the latest owner.

    Raises:
        InputError: if another process holds the lock, or the file has other content.
    """
    with open(path, "a+", encoding="utf-8") as file:
        lock_open_file(file, what)
        file.seek(0)
        if file.read(8) not in ("", "process "):
            raise InputError(f"{path} is not a lock of this program: move it elsewhere.")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def lock_open_file(file, what):
    """Takes the lock of an open file until it is closed; arguments and errors as for `lock`."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = ""
        if "+" in file.mode:
            file.seek(0)
            owner = f" ({file.read(200).strip()})"
        raise InputError(
            f"another process{owner} is {what}: wait until it ends, or end it, and start again."
        ) from error
    except OSError as error:
        logging.warning("%s cannot be locked (%s): start no second process", file.name, error)
