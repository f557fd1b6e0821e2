"""Lines in and out: one line a sentence, whatever is in it, and no half-written file."""

import contextlib
import os
import sys

from t2t_keras.data import files
from t2t_keras.errors import InputError


def read_lines(path):
    """Yields the lines of a file, plain or .gz, or of standard input if path is empty, as bytes.

    Raises:
        InputError: if the file is missing or broken.
    """
    return files.read_lines(path) if path else files.split_lines(sys.stdin.buffer)


def require_place(path):
    """Raises InputError, before there is work to lose, if a file of text can't be written there."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InputError(f"--output={path} is a folder: give a file's name.")
    if not os.path.isdir(folder):
        raise InputError(f"--output={path}: there is no folder {folder}; make it first.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"--output={path}: the folder {folder} can't be written to.")
    if path.endswith(".gz"):
        raise InputError(f"--output={path}: what is written is plain text; leave .gz out.")


@contextlib.contextmanager
def line_writer(path):
    """Gives a function that writes one line, to a file or to standard output if path is empty.

    The file has its name only when the block has ended well.
    """
    if not path:
        yield lambda line: print(line, flush=True)
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            yield lambda line: print(line, file=file)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
