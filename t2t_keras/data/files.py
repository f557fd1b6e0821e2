"""Reading text files, and writing files that a crash cannot leave half-written.

`read_lines` and `read_text` read plain and gzipped files and name what is wrong with them.
`write_file` replaces a file in one step and survives a loss of power: after it, the path holds
either the old content or all of the new. `sync` and `replace` are its two halves, for larger files
and for folders.
"""

import contextlib
import errno
import gzip
import os
import zlib

from t2t_keras.errors import InputError


@contextlib.contextmanager
def open_bytes(path):
    """Opens a file for reading bytes, decompressed if its name ends in `.gz`.

    Args:
        path: str or path.

    Raises:
        InputError: if the file is missing, or cannot be read or decompressed to its end.
    """
    path = os.fspath(path)
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path!r}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read to its end ({error}); replace it") from error


def read_lines(path):
    """Yields the lines of a file as bytes; see `open_bytes` and `split_lines`."""
    with open_bytes(path) as file:
        yield from split_lines(file)


def split_lines(file):
    """Yields the lines of an open binary file.

    A line ends at a line feed and nowhere else; a carriage return before it is dropped.
    """
    for line in file:  # iterating over bytes splits at line feeds alone
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def read_text(path):
    """Yields the lines of a UTF-8 file as str.

    Raises:
        InputError: as `open_bytes`, and for a line that is not UTF-8, with its number.
    """
    for number, line in enumerate(read_lines(path), start=1):
        yield decode(line, f"{path} line {number}")


def decode(content, place):
    """Decodes UTF-8.

    Args:
        content: bytes.
        place: str, named in the error.

    Raises:
        InputError: if the bytes are not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place} is not valid UTF-8 ({error.reason}): fix or delete it"
        ) from error


def write_file(path, content):
    """Writes a file in one step: the path holds its old content or all of the new.

    The content goes to a temporary file in the same folder, to the disk, and then to its name.

    Args:
        path: str or path; missing folders are made.
        content: bytes.
    """
    path = os.fspath(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        sync(temporary)
        replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def replace(source, target):
    """Renames a file or folder; the new name survives a loss of power.

    The content must have been written through with `sync` before.

    Args:
        source: path of the file or folder.
        target: its new path on the same file system; a file there is replaced.
    """
    os.replace(source, target)
    sync(os.path.dirname(os.fspath(target)) or ".")


def sync(path):
    """Writes a file's content, or a folder's list of names, through to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a folder
            raise
    finally:
        os.close(descriptor)
