"""Whatever a text file holds, its readers give all of it or refuse it by one sentence."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_keras.data.corpora import aligned_files
from t2t_keras.data.files import read_text
from t2t_keras.data.labeled_text import text_lines
from t2t_keras.data.treebank import parse_trees, read_treebank
from t2t_keras.errors import InputError
from t2t_keras.tasks.terms import Terms

TREES = [
    b"(S (NP (NN dog)) (VP (VBZ is)))",
    b"(NN x)",
    b"(",
    b")",
    b"(NP ",
    b"(-NONE- *)",
    b" -LRB-",
]
PIECES = [
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r",
    b"\t",
    b" ",
    b"dog\tHund",
    b'"a ""b"""',
    b'"',
    b"\0",
    *TREES,
]
PIECES += [
    text.encode() for text in ("\ufeff", "\x85", "\u2028", "\xa0", "ü", "\U0001f600", "\ue001")
]
PIECES += [b"\xff", b"\xe2\x82", b"\xed\xa0\x80", b"\x1f\x8b", b"PK\3\4", b"a\0b\0"]
CONTENTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=10).map(b"".join)


def lines_of(content):
    """A line ends at a line feed alone; its carriage return and byte order marks are no text."""
    lines = content.decode().split("\n")
    return [
        line.removesuffix("\r").lstrip("\ufeff") for line in lines[: len(lines) - (not lines[-1])]
    ]


def check_text(path, content):
    assert list(read_text(path)) == lines_of(content)


def check_corpus(path, content):
    count = content.count(b"\n") + (not content.endswith(b"\n"))
    numbers = [str(number).encode() for number in range(count)]
    path.with_name("numbers").write_bytes(b"\n".join([*numbers, b""]))
    examples = aligned_files(path, path.with_name("numbers")).as_numpy_iterator()
    found = [(pair["source"], pair["target"]) for pair in examples]
    lines = [line.encode() for line in lines_of(content)]
    assert found == list(zip(lines, numbers, strict=True))


def check_treebank(path, _):
    for tree in read_treebank(path):
        assert list(parse_trees([str(tree)])) == [tree]


def check_labeled_text(path, content):
    assert text_lines(path) == [line.strip() for line in lines_of(content)]


def check_terms(path, content):
    found = Terms.read(path).rows([content])[0].decode()
    assert all(len(line.split("\t")) == 2 for line in found.split("\n") if line)


@pytest.mark.parametrize(
    "check", [check_text, check_corpus, check_treebank, check_labeled_text, check_terms]
)
def test_a_reader_gives_all_of_a_file_or_refuses_it(check, tmp_path):
    path, read = tmp_path / "file", set()

    @settings(max_examples=120, deadline=None, derandomize=True, database=None)
    @given(CONTENTS)
    @example(b"(NN x)\n")
    @example(b"dog\tHund\n")
    @example(b"\xff")
    def is_read_or_refused(content):
        path.write_bytes(content)
        try:
            check(path, content)
            read.add(True)
        except InputError as error:
            assert "\n" not in str(error)
            read.add(False)

    is_read_or_refused()
    assert read == {True, False}
