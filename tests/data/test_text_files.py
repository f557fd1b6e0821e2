"""Lines of files: where they end, and gzipped ones."""

import gzip

import pytest

from t2t_keras.data.text_files import read_lines
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
