"""Reading text files, and writing files that a crash cannot leave half-written or silently wrong.

`read_lines` and `read_text` read plain and gzipped files, and name what is wrong with them by file
and line. `write_file` replaces a file in one step and survives a loss of power: after it, the path
holds either the old content or all of the new. `sync` and `replace` are its two halves, for larger
files and for folders. `write_json` and `write_checksums` add checksums, which `read_json` and
`check_checksums` verify. `lock` keeps a second process from writing the same files.
"""

import codecs
import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import pathlib
import socket
import zlib

from absl import logging

from t2t_keras.errors import InputError

CHECKSUMS = "SHA256SUMS"
"""Name of the file that `write_checksums` writes: `sha256sum --check SHA256SUMS` reads it."""

_GZIP = b"\x1f\x8b"  # the beginning of every gzipped file
_CHUNK = 1 << 20  # bytes that are read together
_NO_FOLDER_SYNC = (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP)  # of some network file systems

# Reading text ------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_bytes(path):
    """Opens a file for reading bytes, decompressed if it is gzipped or its name ends in `.gz`.

    Args:
        path: str or path.

    Raises:
        InputError: if the file is missing, or cannot be read or decompressed to its end.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            yield gzip.GzipFile(fileobj=file) if path.endswith(".gz") else decompressed(file)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path!r}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read to its end ({error}); replace it") from error


def decompressed(file):
    """Returns an open binary file, a `BufferedReader`, decompressed if it is gzipped."""
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file


def read_lines(path, errors="strict"):
    """Yields the lines of a file, UTF-8 bytes; see `open_bytes` and `split_lines`."""
    with open_bytes(path) as file:
        yield from split_lines(file, os.fspath(path), errors)


def split_lines(file, name, errors="strict"):
    """Yields the lines of an open binary file, bytes that are valid UTF-8.

    A line ends at a line feed and nowhere else; a carriage return before it is dropped, as is a
    byte order mark at the beginning of the file.

    Args:
        file: iterable of bytes that end in line feeds.
        name: str, the file's name for the error.
        errors: "strict", or "replace": U+FFFD replaces bytes that are not UTF-8.

    Raises:
        InputError: for a line that is not UTF-8, with its number, and for UTF-16.
    """
    for number, line in enumerate(file, start=1):  # iterating over bytes splits at line feeds alone
        if number == 1:
            _refuse_utf16(line, name)
            line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901
        line = line.removesuffix(b"\n").removesuffix(b"\r")  # noqa: PLW2901
        yield decode(line, f"{name} line {number}", errors).encode()


def read_text(path, errors="strict"):
    """Yields the lines of a file as str; see `read_lines`."""
    for line in read_lines(path, errors):
        yield line.decode()


def decode(content, place, errors="strict"):
    """Decodes UTF-8.

    Args:
        content: bytes.
        place: str, named in the error.
        errors: "strict", or "replace": U+FFFD replaces bytes that are not UTF-8.

    Raises:
        InputError: if the bytes are not UTF-8.
    """
    try:
        return content.decode(errors=errors)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place} is not valid UTF-8 ({error.reason} {content[error.start]:#x} at byte "
            f"{error.start}): fix or delete it; convert a file of another encoding, such as by "
            "iconv -f LATIN1 -t UTF-8; or have invalid bytes replaced, by errors='replace' "
            "(--errors=replace, or data.errors in a config)"
        ) from error


def _refuse_utf16(line, name):
    """Raises InputError if the first line of a file is UTF-16 or UTF-32."""
    marked = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    # Every other byte of Latin letters in UTF-16 is 0; a line of nothing else is odd, but text.
    if marked or (line.strip(b"\0\r\n") and 3 <= len(line) <= 2 * line.count(0) + 1):
        raise InputError(
            f"{name} is not UTF-8 but UTF-16 or UTF-32: convert it, such as by "
            "iconv -f UTF-16 -t UTF-8"
        )


# Writing -----------------------------------------------------------------------------------------


def write_file(path, content):
    """Writes a file in one step: the path holds its old content or all of the new.

    The content goes to a temporary file in the same folder, to the disk, and then to its name.

    Args:
        path: str or path; missing folders are made.
        content: bytes.
    """
    path = os.fspath(path)
    make_folder(os.path.dirname(path) or ".")
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


def remove_temporary_files(folder):
    """Removes what killed calls of `write_file` have left in a folder and in those below it.

    No other process may be writing there; see `lock`.
    """
    for path in pathlib.Path(folder).rglob("*.[0-9]*.tmp"):
        path.unlink()


def make_folder(path):
    """Makes a folder and its missing parents, whose names survive a loss of power."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        make_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):  # another process made it
            os.mkdir(path)
        sync(os.path.dirname(path))


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
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_tree(path):
    """Writes a folder and all that is in it through to the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            sync(os.path.join(folder, name))
        sync(folder)


# Checksums ---------------------------------------------------------------------------------------


def write_json(path, content):
    """Writes a dict as `write_file` does, with a checksum of its content.

    Args:
        path: str or path.
        content: dict of JSON values; it has no key "checksum".
    """
    content = content | {"checksum": _checksum_of(content)}
    write_file(path, json.dumps(content, indent=2).encode() + b"\n")


def read_json(path):
    """Returns the dict that `write_json` wrote; one without a checksum is not verified.

    Raises:
        FileNotFoundError: if there is no file.
        ValueError: if it is damaged.
    """
    content = json.loads(pathlib.Path(path).read_bytes())
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    if content.pop("checksum", None) not in (None, _checksum_of(content)):
        raise ValueError("its checksum does not match")
    return content


def _checksum_of(content):
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def crc32_of(path, size=None):
    """Returns the CRC-32 of a file, or of its first `size` bytes."""
    checksum = 0
    for chunk in _chunks(path, size):
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def sha256_of(path):
    """Returns the SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path, size=None):
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size if size is None else size
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk


def write_checksums(folder):
    """Writes the SHA-256 of every file in a folder to its file `SHA256SUMS`."""
    paths = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    lines = [f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths]
    write_file(os.path.join(folder, CHECKSUMS), "".join(lines).encode())


def check_checksums(folder):
    """Compares the files of a folder with its `SHA256SUMS`; a folder without one is not checked.

    Raises:
        InputError: if a file is missing or damaged.
    """
    sums = pathlib.Path(folder, CHECKSUMS)
    for line in sums.read_text(errors="replace").splitlines() if sums.exists() else []:
        expected, _, name = line.partition("  ")
        path = pathlib.Path(folder, name)
        if not path.is_file() or sha256_of(path) != expected:
            raise InputError(
                f"{path} is {'damaged' if path.is_file() else 'missing'} ({CHECKSUMS} says so): "
                f"copy {folder} again, or make it again."
            )


# Locks -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def lock(path, what):
    """Holds an exclusive lock on a file while the block runs.

    The operating system releases it when the process ends, however it ends. It acts on other hosts
    where the file system has locks, as NFS does; where it has none, a warning is logged.

    Args:
        path: the file, made if missing; it is kept, with a line about the latest owner.
        what: str, what only one process may do, for the message.

    Raises:
        InputError: if another process holds the lock.
    """
    with open(path, "a+", encoding="utf-8") as file:
        lock_open_file(file, what)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def lock_open_file(file, what):
    """Takes the lock of an open file until it is closed; see `lock`."""
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
