"""Lines of files, plain and gzipped, and files that are written whole or not at all."""

import bz2
import gzip
import io
import json
import lzma
import multiprocessing
import os
import subprocess
import tarfile
import time
import zipfile

import pytest

import t2t_keras as t2t
from t2t_keras.data import files
from t2t_keras.data.files import (
    local_path,
    read_lines,
    read_text,
    remove_temporary_files,
    write_file,
)
from t2t_keras.data.locks import lock
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import CheckpointReader, write_checkpoint
from t2t_keras.training.metrics_log import MetricsLog

FORK = multiprocessing.get_context("fork")  # in which no package is imported once more


def archive(kind):
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as content:
            content.writestr("text.en", "a house")
    else:
        with tarfile.open(fileobj=file, mode="w") as content:
            content.add(__file__)
    return file.getvalue()


LINES = "a b\r\n\nün\x0bc\u2028d\nno line feed".encode()
EXPECTED = [b"a b", b"", "ün\x0bc\u2028d".encode(), b"no line feed"]


@pytest.mark.parametrize(("name", "pack"), [
    ("text.en", bytes), ("text.en.gz", gzip.compress),
    ("text.en", gzip.compress),  # known by its content
])  # fmt: skip
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


@pytest.mark.parametrize("flipped", [0, 255])  # bits of the checksum
def test_a_broken_gzipped_stream_is_named(flipped):
    packed = bytearray(gzip.compress(LINES * 99))
    packed[-6] ^= flipped
    stream = io.BufferedReader(io.BytesIO(packed if flipped else packed[:-4]))
    with pytest.raises(InputError, match="standard input cannot be read to its end"):
        list(files.read_stream(stream, "standard input"))


def test_blank_lines_at_the_beginning_are_read_in_linear_time(tmp_path):
    (tmp_path / "text").write_bytes(b"\n" * 100_000 + b"a\n")
    began = time.process_time()
    assert sum(1 for _ in read_lines(tmp_path / "text")) == 100_001
    assert time.process_time() - began < 10  # in quadratic time some ten minutes


@pytest.mark.parametrize(
    "text", ["{name} sees a dog.", '{"a", "b"}', "a\rb\nc", "a\r", "[1]", "\x1f", "\0\0\0\na\0b"]
)
def test_braces_and_carriage_returns_within_lines_are_text(tmp_path, text):
    path = tmp_path / "text.en"
    path.write_text(text, newline="")
    assert list(read_text(path)) == text.removesuffix("\r").split("\n")


def test_invalid_bytes_are_replaced_where_this_is_asked_for(tmp_path):
    path = tmp_path / "text.en"
    path.write_bytes("für\n".encode() + "für \xfc\n".encode("latin-1"))
    assert list(read_text(path, "replace")) == ["für", "f\ufffdr \ufffd"]
    with pytest.raises(InputError, match=r"text.en line 2 .*0xfc at byte 1.* iconv -f LATIN1"):
        list(read_lines(path))


@pytest.mark.parametrize(("name", "message"), [
    ("absent.en", r"there is no file '.*absent\.en'"), ("", "is a folder: give a file"),
])  # fmt: skip
def test_what_is_no_file_is_named(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        list(read_lines(tmp_path / name))


def test_only_files_of_a_killed_write_are_removed(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "report.json"
    write_file(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", lambda *_: os._exit(9))
        killed = FORK.Process(target=write_file, args=(path, b"new"))
        killed.start()
        killed.join()
    assert killed.exitcode == 9
    assert len(list(path.parent.iterdir())) == 2
    remove_temporary_files(tmp_path, [])  # not a folder of ours
    assert len(list(path.parent.iterdir())) == 2
    names = ["notes.tmp", "notes.2024.tmp", "v2.3draft.tmp", "1.tmp", ".t2t.tmp", "a.t2t.tmp"]
    for name in names:  # of the user
        (path.parent / name).write_text("")
    (path.parent / "chunk.7.t2t.tmp").mkdir()
    remove_temporary_files(tmp_path, [path.parent])
    found = {path.name for path in path.parent.iterdir()}
    assert found == {*names, "chunk.7.t2t.tmp", path.name}
    assert path.read_bytes() == b"old"


FORMAT = "is not text, but a file of the format"


@pytest.mark.parametrize("errors", ["strict", "replace"])
@pytest.mark.parametrize(("content", "message"), [
    (bz2.compress(b"a house\n"), f"{FORMAT} bzip2"),
    (lzma.compress(b"a house\n"), f"{FORMAT} xz"),
    (lzma.compress(b"a house\n", lzma.FORMAT_ALONE), f"{FORMAT} lzma"),
    (gzip.compress(gzip.compress(b"a house\n")), f"{FORMAT} gzip, compressed twice"),
    (archive("zip"), f"{FORMAT} zip"),
    (archive("tar"), f"{FORMAT} tar"),
    (gzip.compress(archive("tar")), f"{FORMAT} tar"),
    *(("Für alle\nund mehr\n".encode(encoding), "is not UTF-8 but UTF-16")
      for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
], ids=range(11))  # fmt: skip
def test_a_file_that_is_not_text_is_refused_by_its_format(content, message, errors, tmp_path):
    path = tmp_path / "text.en"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"text.en {message}"):
        list(read_lines(path, errors))


MARKUP = "markup .*sacrebleu .* toolkit"


@pytest.mark.parametrize(("content", "kind"), [
    *((markup, MARKUP) for markup in (
        '<srcset setid="newstest" srclang="any">\n<doc docid="a">\n<seg id="1">A dog.</seg>\n',
        '<REFSET SETID="a"><DOC DOCID="b"><SEG id=1>A dog.</SEG>',
        '<DOC sysid="ref" docid="a" genre="news">\n<seg id="1">A dog.</seg>',
        '\n  <refset\n  setid="a">\n',
        '<?xml version="1.0" encoding="utf-8"?>\n<dataset id="newstest2021">\n',
        "<!-- of 2014 -->\n<?xml version='1.0'?><!DOCTYPE mteval SYSTEM \"a.dtd\">\n",
        '\ufeff<?xml version="1.0"?>\r\n<tmx version="1.4">\r\n',
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n',
        '<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>A dog.</seg></tuv></tu></body></tmx>',
        '<xliff version="1.2">\n', '<seg id="1">A dog.</seg>\n',
        '<!-- a comment\n\nof three lines -->\n\n<refset setid="a">\n',
    )),
    ('{"translation": {"en": "A dog.", "de": "Ein Hund."}}\n', "JSON .*encode_pairs"),
    ('[\n  {\n    "en": "A dog."\n  }\n]\n', "JSON .*json2po"),
    ('{"en": "A dog."}\r\n{"en": "A cat."}\n', "JSON .*jq"),
    ('# Ü\n#, fuzzy\n\nmsgid ""\nmsgstr ""\n', "a catalog of messages .*po2txt.* --input"),
    ('msgctxt "menu"\nmsgid "Open"\n', "a catalog of messages .*po2txt"),
    ("1\n00:00:01,000 --> 00:00:03,500\nA dog.\n", "subtitles .*--document"),
    ("\ufeff1\r\n00:00:01,000 --> 00:00:03,500\r\nA dog.\r\n", "subtitles"),
    ("WEBVTT\n\n00:01.000 --> 00:03.500\nA dog.\n", "subtitles"),
    ("<url>http://example.org/1</url>\n<talkid>1</talkid>\nA dog.\n", "markup .*grep -v"),
    ('\n{"text": "a"}', "JSON .*jq -r"),
    ("a\rb\r", r"carriage returns and no line feed.* tr '.r' '.n'"),
])  # fmt: skip
def test_what_has_no_sentence_on_each_line_is_no_text(content, kind, tmp_path):
    for path, pack in ((tmp_path / "train.en.sgm", bytes), (tmp_path / "train.en", gzip.compress)):
        path.write_bytes(pack(content.encode()))
        with pytest.raises(InputError, match=f"{path} (is not text, but|has) {kind}"):
            list(read_lines(path))
        documents = read_lines(path, keep_ends=True)
        if kind.startswith(("JSON", "a catalog")):
            with pytest.raises(InputError, match=kind):
                list(documents)
        else:  # of markup and times, which are protected
            assert b"".join(documents) == content.encode()


@pytest.mark.parametrize("line", [
    "# A heading\n\n#1 is a dog.", "1", "1\n2", "2 dogs", "msgid", "WEBVTT is a format.", "{",
    '{"A dog"}', "<url>", "<title>A dog</title>", "#\n#\nmsgid is a word", "<url>a</url> is it",
    "<b>A dog</b> sees <i>a cat</i>.", "<p>", "<doc>", "<html>", "<p id='1'>A dog.</p>",
    "<tmx> is the root of a file", '<doc id="1">A dog.</doc> sees', "<?php echo 1 ?>", "<3", "<!--",
    '<?xml version="1.0"?> begins a file', "&lt;srcset&gt;",
])  # fmt: skip
def test_text_with_tags_is_text(line, tmp_path):
    path = tmp_path / "text"
    path.write_text(f"\n{line}\n<tmx>\n", "utf-8")
    assert list(read_text(path)) == ["", *line.split("\n"), "<tmx>"]


def test_a_byte_order_mark_goes_from_every_line(tmp_path):
    path = tmp_path / "joined.de"
    path.write_bytes("\ufeffeins\n\ufeffzwei\ufeff\n！\n".encode())
    assert list(read_text(path)) == ["eins", "zwei\ufeff", "！"]
    assert b"".join(read_lines(path, keep_ends=True)) == path.read_bytes()


def test_a_path_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_file("~/new/text.en", b"one")
    assert list(read_lines("~/new/text.en")) == [b"one"]
    assert os.listdir(tmp_path) == ["new"]
    assert local_path("~root/x") == os.path.expanduser("~root/x")
    (tmp_path / "~mine").mkdir()
    assert local_path("~mine/x") == "~mine/x"


@pytest.mark.parametrize(("path", "message"), [
    ("", "the path is empty"),
    (" ", "the path is empty"),
    ("~no-such-user/run", "there is no user 'no-such-user'"),
    ("gs://bucket/run", "gs://bucket/run is an address"),
    ("file:///tmp/run", "is an address"),
])  # fmt: skip
@pytest.mark.parametrize("use", [
    local_path,
    t2t.load,
    t2t.load_marian,
    lambda path: list(read_lines(path)),
    lambda path: write_file(path, b""),
    t2t.load_tokenizer,
    lambda path: t2t.export_saved_model(None, path),
    lambda path: open_shards(path, "train"),
    CheckpointReader,
    lambda path: write_checkpoint(path, {}),
    MetricsLog,
])  # fmt: skip
def test_a_path_that_is_none_is_refused(path, message, use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        use(path)
    assert not os.listdir(tmp_path)


def test_a_lock_never_empties_the_file_of_another(tmp_path):
    path = tmp_path / ".lock"
    path.write_text("of the user")
    with pytest.raises(InputError, match="is not a lock of this program"), lock(path, "writing"):
        pass
    assert path.read_text() == "of the user"


@pytest.mark.parametrize("broken", ["fsync", "dup"])
def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch, broken):
    def fail(_):
        raise OSError("no space left on device")

    path = tmp_path / "file"
    write_file(path, b"old")
    monkeypatch.setattr(os, broken, fail)  # on the way to the disk, or in the block of the writer
    with pytest.raises(OSError, match="no space"), files.open_output(path) as file:
        file.write(b"new")
        os.dup(file.fileno())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def flipped(content):
    """Yields the content with one bit flipped, for every byte of it."""
    for place in range(len(content)):
        yield content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]


def test_a_flipped_byte_of_json_is_an_error_or_harmless(tmp_path):
    path, content = tmp_path / "file.json", {"name": "ü", "sizes": {"a": 10, "b": [1.5, None]}}
    files.write_json(path, content)
    assert files.read_json(path) == content
    damaged, whole = 0, path.read_bytes()
    for other in flipped(whole):
        path.write_bytes(other)
        try:
            found = files.read_json(path)
        except ValueError:
            damaged += 1
        else:  # white space, or the name of the checksum itself
            assert {name: found[name] for name in content} == content, other
    assert damaged > len(whole) / 2
    path.write_text(json.dumps(content))  # of an edition without checksums
    assert files.read_json(path) == content


def test_a_flipped_byte_of_a_folder_is_named(tmp_path):
    (tmp_path / "inner").mkdir()
    content = bytes(range(50))
    for name in ("one", "inner/two"):
        (tmp_path / name).write_bytes(content)
    files.check_checksums(tmp_path)  # none yet
    files.write_checksums(tmp_path)
    files.check_checksums(tmp_path)
    subprocess.run(["sha256sum", "--check", files.CHECKSUMS], cwd=tmp_path, check=True)
    for other in flipped(content):
        (tmp_path / "inner" / "two").write_bytes(other)
        with pytest.raises(InputError, match=r"inner/two is damaged .* copy .* again"):
            files.check_checksums(tmp_path)
    (tmp_path / "inner" / "two").unlink()
    with pytest.raises(InputError, match=r"inner/two is missing"):
        files.check_checksums(tmp_path)


def hold(path, locked):
    with lock(path, "writing"):
        locked.set()
        time.sleep(600)


def test_a_lock_dies_with_its_owner(tmp_path):
    path, locked = tmp_path / ".lock", FORK.Event()
    owner = FORK.Process(target=hold, args=(path, locked), daemon=True)
    owner.start()
    assert locked.wait(60)
    message = rf"another process \(process {owner.pid} on .*\) is writing: wait until"
    with pytest.raises(InputError, match=message), lock(path, "writing"):
        pass
    owner.kill()
    owner.join()
    with lock(path, "writing"):
        pass
