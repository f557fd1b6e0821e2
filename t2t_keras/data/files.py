"""Reading text files, and writing files that a crash cannot leave half-written or silently wrong.

`read_lines` and `read_text` read plain and gzipped files; their errors name file and line.
`write_file` and `open_output` replace a file in one step and survive a loss of power: after them,
the path holds either the old content or all of the new. `sync` and `replace` do the two steps
separately, for folders. `write_json` and `write_checksums` add checksums, which `read_json` and
`check_checksums` verify.
"""

import codecs
import contextlib
import errno
import gzip
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import tempfile
import unicodedata
import zlib

from t2t_keras.errors import InputError, MissingTextError

CHECKSUMS = "SHA256SUMS"
"""Name of the file that `write_checksums` writes: `sha256sum --check SHA256SUMS` reads it."""

_GZIP = b"\x1f\x8b"  # the beginning of every gzipped file
_CHUNK = 1 << 20  # bytes that are read together
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TEMPORARY = ".t2t.tmp"  # ending of a file until it is complete, behind its name and a process id
_LEFTOVER = re.compile(rf".+\.\d+{re.escape(_TEMPORARY)}", re.DOTALL)
_FORMATS = {
    b"\x1f\x8b": "gzip, compressed twice",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"]\0\0": "lzma",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress (.Z)",
    b"\x1f\xa0": "compress (.Z)",
    b"LZIP": "lzip",
    b"\x89LZO\0": "lzop",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a": "rar",
    b"PK\3\4": "zip, as .docx and .xlsx are",
    b"PK\5\6": "zip",
    b"%PDF-": "PDF",
    b"PAR1": "Parquet",
    b"ARROW1\0": "Arrow",
    b"SQLite format 3\0": "SQLite",
}
"""{first bytes of a file that is not text: its format}"""
_MARKUP = re.compile(
    rb"""<(\?xml\s[^>]*\?>|!DOCTYPE\s+(mteval|srcset|refset|tstset|tmx|xliff)\b[^<>]*>?
    |(srcset|refset|tstset|mteval|tmx|xliff)(\s[^<>]*)?>?
    |seg\s[^<>]*\bid\s*=[^<>]*>.*</seg>
    |(doc|dataset|collection)\s[^<>]*\b(id|docid|docno|sysid|origlang|genre)\s*=[^<>]*>?)\s*(<.*)?""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""Where files of marked-up sentences begin: SGML and XML of test sets, TMX, XLIFF"""
_NO_DOCUMENT = (
    (
        re.compile(rb"""\[?\s*\{\s*"[^"\n]*"\s*:.*""", re.DOTALL),
        "JSON",
        "pairs by jq -r .translation.en (and .de), or give the rows to encode_pairs in Python; "
        "messages of a program by json2po and po2json of the translate toolkit",
    ),
    (
        re.compile(rb"""(#[^\n]*\n\s*)*(msgctxt|msgid)\s+".*"\s*"""),
        "a catalog of messages",
        "by po2txt of the translate toolkit; or give translate the catalog, a file .po or .pot, as "
        "--input, and --output",
    ),
)
"""(beginning of a file whose words are not all text, kind, how to extract the text)"""
_NO_LINES_OF_TEXT = (
    *_NO_DOCUMENT,
    (
        _MARKUP,
        "markup",
        "those of a WMT test set by sacrebleu -t wmt14 -l en-de --echo src (and ref), those of TMX "
        "and XLIFF by the translate toolkit",
    ),
    (
        re.compile(rb"<(url|keywords|speaker|talkid|translator|reviewer)>[^<]*</\1>\s*"),
        "markup",
        "those of IWSLT's train.tags files by grep -v '^<', on both sides",
    ),
    (
        re.compile(rb"\d+\s+(\d+:)?\d\d:\d\d[,.]\d{3}\s*-->.*|WEBVTT([ \t]+-.*)?\s*", re.DOTALL),
        "subtitles",
        "the lines without numbers and times; translate --document takes subtitles as they are",
    ),
)
"""The same of a file that has other things than a sentence on each line."""
# What may be one of these yet:
_UNFINISHED = re.compile(rb"<!--.*|(#[^\n]*\n\s*)+|\d+\s+|\[?\s*\{?\s*", re.DOTALL)
_BEFORE_MARKUP = re.compile(rb"(\xef\xbb\xbf|\s|<!--.*?-->)*", re.DOTALL)
_LONGEST_COMMENT = 4096  # bytes before markup, in which a comment may end
_DESCRIPTOR = re.compile(r"(/dev|/proc/\d+)/fd/\d+")
_MAX_LINKS = 40  # as Linux follows
_UNREADABLE = re.compile(r"[\[\\\udc80-\udcff]")  # what starts a pattern, or is not UTF-8
_NO_FOLDER_SYNC = (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP)  # of some network file systems

# Paths -------------------------------------------------------------------------------------------


def local_path(path):
    """Returns a path with the home folder for `~` or `~user` at its beginning.

    Raises:
        InputError: if it is blank, names an unknown user, or is an address such as gs://….
    """
    path = os.fspath(path)
    if not path.strip():
        raise InputError("the path is empty: give one; is a variable of the shell unset?")
    if _ADDRESS.match(path):
        raise InputError(
            f"{path} is an address, and only local files are read and written: copy it or mount it."
        )
    expanded = os.path.expanduser(path)
    name = expanded.split(os.sep)[0]
    if name.startswith("~") and not os.path.lexists(name):
        raise InputError(f"{path}: there is no user {name[1:]!r}; give ./{path} for such a name.")
    return expanded


def visible_names(folder):
    """Returns the names in a folder that are not hidden, such as `._train.en`, sorted."""
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def nfc(text):
    """Returns a str in Unicode's NFC, where `é` is one character; in NFD it is two."""
    return unicodedata.normalize("NFC", text)


def nfc_names(folder):
    """Returns {name in NFC: visible name} of a folder; raises InputError for one in both forms."""
    names = visible_names(folder)
    by_nfc = {nfc(name): name for name in names}
    if len(by_nfc) < len(names):
        twice = [name for name in names if name not in by_nfc.values()]
        raise InputError(
            f"{folder} holds the name {twice[0]!r} in two forms of Unicode, NFC and NFD: keep one."
        )
    return by_nfc


def stored_path(path):
    """Returns the existing path whose name differs only in its form of Unicode, or else path."""
    folder, name = os.path.split(path)
    names = nfc_names(folder) if os.path.isdir(folder) else {}
    return os.path.join(folder, names.get(nfc(name), name))


def require_regular(path, what):
    """Raises InputError for a pipe, where `what`, such as "terms are", is read more than once."""
    path = local_path(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise InputError(f"{path} is no regular file, and {what} read more than once: give a file.")


def existing_folder(path, content):
    """Returns a folder's `local_path`; raises InputError, naming the content, if there is none."""
    path = local_path(path)
    if not os.path.isdir(path):
        raise InputError(f"there is no folder {path!r}; give one that holds {content}")
    return path


def split_names(folder, split, ending=""):
    """Returns the names of a split's files, such as `train.….de` or `train.….de.gz`."""
    start, ending = nfc(f"{split}."), nfc(f".{ending}" if ending else "")
    return [
        stored
        for name, stored in nfc_names(folder).items()
        if name.startswith(start) and name.removesuffix(".gz").endswith(ending)
    ]


def split_file(folder, split, ending="", advice=""):
    """Returns the path of a split's one file; raises MissingTextError, for several InputError."""
    names = split_names(folder, split, ending)
    if len(names) == 1:
        return os.path.join(folder, names[0])
    form = f"{split}.…"
    if ending:
        form = f"{split}.{ending} or {split}.{ending}.gz, or {split}.….{ending},"
    every, advice = quoted(visible_names(folder)), advice if names else ""
    raise (InputError if names else MissingTextError)(
        f"split {split!r} needs one file named {form} in {folder}; found: "
        f"{quoted(names, 'none')}. The folder contains {every}{advice}"
    )


def quoted(names, none="nothing"):
    """Returns names as a message lists them."""
    return ", ".join(map(repr, names)) or none


# Reading text ------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_bytes(path):
    """Opens a file for reading bytes, decompressed if gzipped; raises InputError if broken."""
    path = local_path(path)
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder: give a file")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
        except FileNotFoundError as error:
            raise InputError(f"there is no file {path!r}: check the path") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error}): check its permissions") from error
        yield stack.enter_context(decompressed(file, path, path.endswith(".gz")))


@contextlib.contextmanager
def decompressed(file, name, is_gzipped=False):
    """Gives an open binary file, a `BufferedReader`, decompressed if it is gzipped.

    Raises:
        InputError: if it cannot be read to its end; `name` is its name there.
    """
    try:
        is_gzipped = is_gzipped or file.peek(2)[:2] == _GZIP
        yield gzip.GzipFile(fileobj=file) if is_gzipped else file
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} cannot be read to its end ({error}): copy it again") from error


def read_lines(path, errors="strict", keep_ends=False):
    """Yields the lines of a file, UTF-8 bytes; see `open_bytes` and `split_lines`."""
    with open_bytes(path) as file:
        yield from split_lines(file, os.fspath(path), errors, keep_ends)


def read_stream(file, name, errors="strict", keep_ends=False):
    """Yields the lines of an open file; see `decompressed` and `split_lines`."""
    with decompressed(file, name) as content:
        yield from split_lines(content, name, errors, keep_ends)


def split_lines(file, name, errors="strict", keep_ends=False):
    """Yields the lines of an open binary file, bytes that are valid UTF-8.

    Only a line feed ends a line. A carriage return before the line feed is dropped, and so are byte
    order marks at the beginning of a line, which joined files have on later lines, too.

    Args:
        file: iterable of bytes that end in line feeds.
        name: the file's name for the error.
        errors: "strict", or "replace": U+FFFD replaces bytes that are not UTF-8.
        keep_ends: whether lines keep their line feed, carriage return and byte order mark.

    Raises:
        InputError: for a line that is not UTF-8, with its number, and for a file that is not UTF-8
            text, such as a compressed one or UTF-16, JSON or a catalog. Without `keep_ends` also
            for markup, subtitles, and lines that end in a carriage return alone.
    """
    refused = _NO_DOCUMENT if keep_ends else _NO_LINES_OF_TEXT
    head = b""  # what may still become the first line with content
    for number, line in enumerate(file, start=1):  # iterating over bytes splits at line feeds alone
        if number == 1:
            _refuse_formats(line, name)
        if head is not None:
            head += line + b"\n"
            content = head[_BEFORE_MARKUP.match(head).end() :]
            is_open = _UNFINISHED.fullmatch(content) and len(content) < _LONGEST_COMMENT
            head = content if is_open or not content else None
            is_one_line = number == 1 and not line.endswith(b"\n")
            if is_one_line and not keep_ends and b"\r" in line.rstrip(b"\r"):
                raise InputError(
                    f"{name} has carriage returns and no line feed: convert its lines, such as by "
                    r"tr '\r' '\n'"
                )
            for beginning, kind, advice in refused:
                if beginning.fullmatch(content):
                    start = b" ".join(content[:40].split()).decode(errors="replace")
                    raise InputError(
                        f"{name} is not text, but {kind} ({start} …): extract its sentences, one "
                        f"on each line: {advice}"
                    )
        if not keep_ends:
            line = line.removesuffix(b"\n").removesuffix(b"\r")  # noqa: PLW2901
        text = decode(line, f"{name} line {number}", errors)
        yield (text if keep_ends else text.lstrip("\ufeff")).encode()


def read_text(path, errors="strict"):
    """Yields the lines of a file as str; see `read_lines`."""
    for line in read_lines(path, errors):
        yield line.decode()


def decode(content, place, errors="strict"):
    """Decodes UTF-8; errors as for `split_lines`. The `InputError` names the place."""
    try:
        return content.decode(errors=errors)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place} is not valid UTF-8 ({error.reason} {content[error.start]:#x} at byte "
            f"{error.start}): fix or delete it; convert a file of another encoding, such as by "
            "iconv -f LATIN1 -t UTF-8; or have invalid bytes replaced, by errors='replace' "
            "(--errors=replace, or data.errors in a config)"
        ) from error


def _refuse_formats(line, name):
    kinds = [kind for beginning, kind in _FORMATS.items() if line.startswith(beginning)]
    kinds += ["tar"] * (line[257:262] == b"ustar")
    if kinds:
        raise InputError(
            f"{name} is not text, but a file of the format {kinds[0]}: give its text, plain or "
            "gzipped once"
        )
    marked = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    # Every other byte of Latin letters in UTF-16 is 0; a line of nothing else is odd, but text.
    if marked or (line.strip(b"\0\r\n") and 3 <= len(line) <= 2 * line.count(0) + 1):
        raise InputError(
            f"{name} is not UTF-8 but UTF-16 or UTF-32: convert it, such as by "
            "iconv -f UTF-16 -t UTF-8"
        )


# Writing -----------------------------------------------------------------------------------------


def write_file(path, content):
    """Writes a file as `open_output` does; missing folders are made."""
    target = output_path(path)
    if not is_stream(target):
        make_folder(os.path.dirname(target))
    with open_output(target) as file:
        file.write(content)


@contextlib.contextmanager
def open_output(path):
    """Opens a file for writing bytes; it gets its new content when the block succeeds.

    The content is written to a temporary file in the same folder, which must exist, and synced to
    the disk; then the file is renamed. A replaced file's permissions are kept. A symbolic link
    stays, and its target is replaced. A stream (see `is_stream`) is written directly.
    """
    path = output_path(path)
    if is_stream(path):
        own = path.startswith("/dev/fd/")  # opened again, it would begin at the first byte
        name = os.path.basename(path)
        descriptor = os.dup(int(name)) if own else os.open(path, os.O_WRONLY | os.O_APPEND)
        with open(descriptor, "wb") as file:
            yield file
        return
    temporary = temporary_path(path)
    try:
        with open(temporary, "wb") as file:
            yield file
        if os.path.exists(path):
            shutil.copymode(path, temporary)
        sync(temporary)
        replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def temporary_path(path, ending=_TEMPORARY):
    """Returns the temporary path of a file or folder, a name that users do not choose."""
    return f"{path}.{os.getpid()}{ending}"


@contextlib.contextmanager
def new_folder(path, advise, ending=_TEMPORARY):
    """Yields the path of a temporary folder, which gets the name `path` when the block succeeds.

    It is in the same parent folder, which is made if it is missing, and is removed when the block
    raises. After a kill it stays, and its name ends in `ending`.

    Raises:
        InputError: if the path is a file or a folder that is not empty, even if it appeared during
            the block; `advise` is a function to what to do instead, a str.
    """
    path = os.path.realpath(local_path(path))  # the parent of "engine/" isn't "engine"
    require_free(path, advise)
    temporary = temporary_path(path, ending)
    shutil.rmtree(temporary, ignore_errors=True)
    make_folder(temporary)
    try:
        yield temporary
        sync_tree(temporary)
        with contextlib.suppress(OSError):  # it is missing or not empty
            os.rmdir(path)  # not every file system renames a folder onto an empty one
        try:
            os.rename(temporary, path)
        except OSError:
            require_free(path, advise)
            raise
        sync(os.path.dirname(path))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_free(path, advise):
    """Raises InputError for a file, or a folder that is not empty; `advise` as of `new_folder`."""
    if os.path.exists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise InputError(f"{path} exists already: {advise()}.")


def output_path(path):
    """Returns the path to write to, absolute, with symbolic links followed.

    The descriptors of this process keep the name `/dev/fd/N`, so `/dev/stdout` is `/dev/fd/1`
    even if standard output is a regular file.
    """
    path = local_path(path)
    for _ in range(_MAX_LINKS):
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if folder == f"/proc/{os.getpid()}/fd":
            folder = "/dev/fd"
        path = os.path.join(folder, name)
        if _DESCRIPTOR.fullmatch(path) or not os.path.islink(path):
            return path
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def is_stream(path):
    """Returns whether an `output_path` is written directly: a pipe, device or descriptor."""
    is_file_or_folder = os.path.isfile(path) or os.path.isdir(path)
    return bool(_DESCRIPTOR.fullmatch(path)) or (os.path.exists(path) and not is_file_or_folder)


def remove_temporary_files(folder, subfolders):
    """Removes files that killed calls of `write_file` have left; see `lock` for other processes.

    Those in the folder itself, and those in subfolders at any depth.
    """
    below = (path for each in subfolders for path in pathlib.Path(each).rglob("*"))
    for path in (*pathlib.Path(folder).iterdir(), *below):
        if _LEFTOVER.fullmatch(path.name) and path.is_file():
            path.unlink()


def make_folder(path):
    """Makes a folder and its missing parents durably: they survive a power failure."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        make_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):  # another process made it
            os.mkdir(path)
        sync(os.path.dirname(path))


def replace(source, target):
    """Renames a file or folder that is on the disk; its name survives a power failure."""
    os.replace(source, target)
    sync(os.path.dirname(os.fspath(target)) or ".")


def sync(path):
    """Syncs a file's content, or a folder's list of names, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_tree(path):
    """Syncs a folder and everything in it to the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            sync(os.path.join(folder, name))
        sync(folder)


# Folders that TensorFlow reads -------------------------------------------------------------------


@contextlib.contextmanager
def tensorflow_path(folder):
    """Yields a path by which TensorFlow can read and write a folder of any name.

    When TensorFlow reads a checkpoint or SavedModel it treats the path as a pattern: `[x]` matches
    x, and a backslash matches the character after it. It also refuses paths that are not UTF-8. For
    such folders the path is a symbolic link in a temporary folder, removed after the block.

    Raises:
        InputError: if the path of the folder for temporary files is not readable either.
    """
    folder = os.path.abspath(folder)
    if not _UNREADABLE.search(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        if _UNREADABLE.search(temporary):
            raise InputError(
                f"TensorFlow cannot read the folder {folder!r}: its path contains a bracket, a "
                "backslash or bytes that are not UTF-8, and so does the path for temporary files, "
                f"{temporary!r}: rename the folder, or set TMPDIR to another one."
            )
        link = os.path.join(temporary, "folder")
        os.symlink(folder, link)
        yield link


# Checksums ---------------------------------------------------------------------------------------


def write_json(path, content):
    """Writes a dict of JSON values as `write_file` does, with a checksum of them."""
    content = content | {"checksum": _checksum_of(content)}
    write_file(path, json.dumps(content, indent=2).encode() + b"\n")


def read_json(path):
    """Returns the dict that `write_json` wrote; a file without a checksum is not verified.

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


def crc32_of(path, size=math.inf):
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


def _chunks(path, size=math.inf):
    with open(path, "rb") as file:
        while chunk := file.read(min(_CHUNK, size)):
            size -= len(chunk)
            yield chunk


def write_checksums(folder):
    """Writes the SHA-256 of every file in a folder to its file `SHA256SUMS`."""
    paths = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    lines = [f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths]
    write_file(os.path.join(folder, CHECKSUMS), "".join(lines).encode())


def check_checksums(folder):
    """Raises InputError unless a folder's files are those of its `SHA256SUMS`, if it has one."""
    sums = pathlib.Path(folder, CHECKSUMS)
    for line in sums.read_text(errors="replace").splitlines() if sums.exists() else []:
        expected, _, name = line.partition("  ")
        path = pathlib.Path(folder, name)
        if not path.is_file() or sha256_of(path) != expected:
            raise InputError(
                f"{path} is {'damaged' if path.is_file() else 'missing'} ({CHECKSUMS} says so): "
                f"copy {folder} again, or make it again."
            )
