"""Files of text to read, plain or gzipped."""

import contextlib
import gzip
import zlib

from t2t_keras.errors import InputError


@contextlib.contextmanager
def open_text(path):
    """Opens a file for reading its bytes, gzipped if its name ends in `.gz`.

    Args:
        path: str.

    Raises:
        InputError: if there is no such file, or it breaks off or is broken while it is read.
    """
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path!r}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read to its end ({error}); replace it") from error


def read_lines(path):
    """Yields the lines of a file, plain or gzipped, as bytes; see `lines_of`."""
    with open_text(path) as file:
        yield from lines_of(file)


def lines_of(file):
    """Yields the lines of an open file as bytes.

    A line ends at a line feed and nowhere else; a carriage return before it is dropped.
    """
    for line in file:  # iterating over bytes splits at line feeds alone
        yield line.removesuffix(b"\n").removesuffix(b"\r")
