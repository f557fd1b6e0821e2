"""Lines in and out: one line a sentence, whatever is in it, and no half-written file."""

import contextlib
import os
import sys

from t2t_keras.data import text_files


def read_lines(path):
    """Yields the lines of a file, plain or .gz, or of standard input if path is empty, as bytes.

    Raises:
        InputError: if the file is missing or broken.
    """
    return text_files.read_lines(path) if path else text_files.lines_of(sys.stdin.buffer)


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
