"""Lines in and out: one line a sentence, whatever is in it, and no half-written file."""

import contextlib
import os
import sys


def read_lines(path):
    """Yields the lines of a file, or of standard input if path is empty, as bytes.

    A line ends at a line feed and nowhere else; a carriage return before it is dropped.
    """
    with open(path, "rb") if path else contextlib.nullcontext(sys.stdin.buffer) as file:
        for line in file:
            yield line.rstrip(b"\n").rstrip(b"\r")


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
