"""Lines of files, plain and gzipped, and files that are written whole or not at all."""

import gzip
import os

import pytest

from t2t_keras.data.files import read_lines, read_text, write_file
from t2t_keras.errors import InputError

LINES = "a b\r\n\nün\x0bc\u2028d\nno line feed".encode()
EXPECTED = [b"a b", b"", "ün\x0bc\u2028d".encode(), b"no line feed"]


@pytest.mark.parametrize(("name", "pack"), [("text.en", bytes), ("text.en.gz", gzip.compress)])
def test_a_line_ends_at_a_line_feed_alone(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(LINES))
    assert list(read_lines(str(path))) == EXPECTED


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES)[:-9]], ids=["plain", "cut off"])
def test_a_broken_gzip_file_is_named(tmp_path, content):
    path = tmp_path / "text.en.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{path} cannot be read to its end"):
        list(read_lines(str(path)))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"there is no file '.*absent\.en'"):
        list(read_lines(str(tmp_path / "absent.en")))


def test_text_that_is_not_utf8_is_named_by_its_line(tmp_path):
    path = tmp_path / "text.en"
    path.write_bytes("ü\n".encode() + b"\xff\n")
    with pytest.raises(InputError, match=r"text.en line 2 is not valid UTF-8"):
        list(read_text(path))


def test_a_written_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A loss of power keeps what was synced, in any order with what was not."""
    path, done = tmp_path / "new" / "file", []
    sync, rename = os.fsync, os.replace

    def traced_sync(descriptor):
        done.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def traced_rename(source, target):
        done.append(("rename", str(source)))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", traced_sync)
    monkeypatch.setattr(os, "replace", traced_rename)
    write_file(path, b"content")
    temporary = done[0][1]
    assert done == [("sync", temporary), ("rename", temporary), ("sync", str(path.parent))]
    assert path.read_bytes() == b"content"


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    def fail(_):
        raise OSError("no space left on device")

    path = tmp_path / "file"
    write_file(path, b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
