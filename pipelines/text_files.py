"""Lines in and out: one line a sentence, whatever is in it, and no half-written file."""

import contextlib
import gzip
import os
import sys
import zlib

from t2t_keras.errors import InputError


def read_lines(path):
    """Yields the lines of a file, or of standard input if path is empty, as bytes.

    A line ends at a line feed and nowhere else; a carriage return before it is dropped. A file
    whose name ends in `.gz` is gzipped.

    Raises:
        InputError: if such a file is broken.
    """
    with _open(path) as file:
        try:
            for line in file:
                yield line.rstrip(b"\n").rstrip(b"\r")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path} cannot be read to its end ({error}); replace it") from error


def _open(path):
    if not path:
        return contextlib.nullcontext(sys.stdin.buffer)
    return gzip.open(path) if path.endswith(".gz") else open(path, "rb")


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
