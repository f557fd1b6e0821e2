"""What people give for texts, pairs, trees and ids: read as it is, or refused by every function."""

import collections
import io
import pathlib
import sqlite3

import numpy as np
import pyarrow
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.data import MemoryCorpus, encode_pairs, train_tokenizer
from t2t_keras.data.labeled_text import LabelEncoder
from t2t_keras.data.texts import as_list, as_pairs, as_strings
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import TreeAugmentation, parse_tree, parse_trees
from t2t_keras.errors import InputError
from t2t_keras.evaluation.text import bleu_by_length, compound_split_bleu, paired_bootstrap
from t2t_keras.tasks.parsing import score_parses
from t2t_keras.tasks.text_io import map_by_length
from tests.tasks import tiny

TREE = "(S (NP (PRP It)) (VP (VBZ works)))"


class Table:
    """A table of pandas: iterates over the names of its columns."""

    ndim = 2

    def __init__(self, **columns):
        self._columns, self.columns = columns, list(columns)
        self.shape = len(next(iter(columns.values()))), len(columns)

    def __iter__(self):
        return iter(self.columns)

    def __getitem__(self, name):
        return self._columns[name]


COLUMNS = {"en": ["one", "two"], "de": ["eins", "zwei"]}
ROWS = [{"en": "one", "de": "eins"}, {"de": "zwei", "en": "two"}]
WRONG = {
    "a string": "ab",
    "bytes": b"ab",
    "a path": pathlib.Path("text.en"),
    "a number": 3,
    "None": None,
    "a table": Table(**COLUMNS),
    "a table of pyarrow": pyarrow.table(COLUMNS),
    "a dict of columns": COLUMNS,
    "a set": {"one", "two"},
    "rows of dicts": ROWS,
    "a dataset of dicts": tf.data.Dataset.from_tensor_slices(COLUMNS),
    "numbers": [1, 2],
    "nothing and a text": [None, "a"],
    "an empty cell": ["a", float("nan")],
    "an array of two dimensions": np.array([["a", "b", "c"]]),
    "lists of three": [["a", "b", "c"]],
    "a class": list,
    "an archive": io.BytesIO(b"PK\x03\x04ab"),
}
TOKENIZER = tiny.tokenizer()
DOORS = {
    "encode_pairs": lambda x: encode_pairs(x, TOKENIZER),
    "MemoryCorpus": lambda x: MemoryCorpus({"train": x}),
    "train_tokenizer": lambda x: train_tokenizer("bpe", x, 300),
    "languages": lambda x: train_tokenizer("bpe", tiny.LINES, 300, languages=x),
    "encode": TOKENIZER.encode,
    "encode_with_offsets": tiny.tokenizer("wordpiece").encode_with_offsets,
    "decode": TOKENIZER.decode,
    "decode_with_offsets": TOKENIZER.decode_with_offsets,
    "hypotheses": lambda x: t2t.corpus_scores(x, ["a", "b"]),
    "references": lambda x: t2t.corpus_scores(["a", "b"], x),
    "baseline": lambda x: paired_bootstrap(["a", "b"], x, ["a", "b"]),
    "sources": lambda x: bleu_by_length(x, ["a", "b"], ["a", "b"]),
    "compound": lambda x: compound_split_bleu(x, ["a", "b"]),
    "predictions": lambda x: t2t.label_scores(x, ["a", "b"], ["a", "b"]),
    "labels": lambda x: t2t.label_scores(["a", "b"], ["a", "b"], x),
    "LabelEncoder": LabelEncoder,
    "LabelEncoder.encode": lambda x: LabelEncoder(["a", "b"]).encode(x),
    "test trees": lambda x: t2t.score_trees([parse_tree(TREE)] * 2, x),
    "gold trees": lambda x: t2t.score_trees(x, [parse_tree(TREE)] * 2),
    "parses": lambda x: score_parses(x, [parse_tree(TREE)] * 2),
    "parse_trees": lambda x: list(parse_trees(x)),
    "TreeTokenizer": lambda x: TreeTokenizer.train(x, None),
    "TreeAugmentation": lambda x: TreeAugmentation(x, None),
    "map_by_length": lambda x: list(map_by_length(as_strings, x, length=id)),
}


@pytest.mark.parametrize(("door", "wrong"), [
    (door, wrong) for door in DOORS for wrong in WRONG
    if (door, wrong) != ("languages", "a set")  # whose order does not matter
])  # fmt: skip
def test_what_is_no_sequence_of_texts_is_refused(door, wrong):
    given = WRONG[wrong]
    if isinstance(given, io.BytesIO):
        given = io.BytesIO(given.getvalue())
    with pytest.raises(InputError) as refused:
        DOORS[door](given)
    assert "\n" not in str(refused.value)


PAIRS = [("one", "eins"), ("two", "zwei")]
_Row = collections.namedtuple("_Row", ["index", "en", "de"])


def _database():
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.execute("create table pairs (de text, id integer, en text)")
    rows = [(row["de"], i, row["en"]) for i, row in enumerate(ROWS)]
    database.executemany("insert into pairs values (?, ?, ?)", rows)
    return database


NAMES = ("en", "de")
BATCHES = tf.data.Dataset.from_tensor_slices((["one", "two"], ["eins", "zwei"])).batch(2)
FORMS = {
    "rows": (ROWS, NAMES),
    "nested rows": ([{"id": "0", "translation": row} for row in ROWS], NAMES),
    "a generator": (lambda: (row for row in ROWS), NAMES),
    "a table": (Table(id=[0, 1], **COLUMNS), NAMES),
    "a table of nested rows": (Table(id=[0, 1], translation=ROWS), NAMES),
    "a table of pyarrow": (pyarrow.table(COLUMNS), NAMES),
    "a dict of columns": (COLUMNS, NAMES),
    "a dataset of batches": (tf.data.Dataset.from_tensor_slices(COLUMNS).batch(2), NAMES),
    "rows of a database": (lambda: _database().execute("select * from pairs"), NAMES),
    "a dataset": (tf.data.Dataset.from_tensor_slices(COLUMNS), NAMES),
    "named tuples": ([_Row(0, "one", "eins"), _Row(1, "two", "zwei")], NAMES),
    "a structured array": (
        np.array([("eins", "one"), ("zwei", "two")], [("de", "U9"), ("en", "U9")]),
        NAMES,
    ),
    "rows by place": ([("x", *pair) for pair in PAIRS], (1, 2)),
    "an array": (np.array(PAIRS), (None, None)),
    "batches of pairs": (BATCHES, (None, None)),
    "rows as corpora give them": (lambda: MemoryCorpus({"a": PAIRS}).examples("a"), (None, None)),
}


@pytest.mark.parametrize("kind", FORMS)
def test_pairs_rows_and_tables_are_read_by_the_names_of_two_columns(kind):
    given, names = FORMS[kind]
    given = given() if callable(given) else given
    assert as_pairs(given, "pairs", *names) == ([b"one", b"two"], [b"eins", b"zwei"])


@pytest.mark.parametrize("names", [("en", "de"), ("de", "en")])
def test_names_reach_encode_pairs_and_corpora(names):
    expected = [tuple(row[name].encode() for name in names) for row in ROWS]
    corpus = MemoryCorpus({"train": ROWS}, *names).examples("train").as_numpy_iterator()
    assert [(pair["source"], pair["target"]) for pair in corpus] == expected
    found = encode_pairs(ROWS, TOKENIZER, None, *names).ragged_batch(2).get_single_element()
    for side, texts in zip(("source", "target"), zip(*expected, strict=True), strict=True):
        assert TOKENIZER.decode(found[side]).numpy().tolist() == list(texts)


@pytest.mark.parametrize(("pairs", "names", "message"), [
    (ROWS, {}, r"pairs\[0\] has the columns 'en', 'de': name the two .* source='en', target='de'"),
    (Table(**COLUMNS), {}, "pairs has the columns 'en', 'de': name the two"),
    (ROWS, {"source": "en"}, "source is 'en' and target is None: name two columns"),
    (ROWS, {"source": "en", "target": "en"}, "name two columns, or neither"),
    (ROWS, {"source": "en", "target": "fr"}, r"pairs\[0\] has no column 'fr'; it has 'en', 'de'"),
    (Table(**COLUMNS), {"source": "fr", "target": "de"}, "pairs has no column 'fr'"),
    (COLUMNS | {"de": ["eins"]}, {"source": "en", "target": "de"}, "2 texts in 'en' and 1 in 'de'"),
    ([ROWS[0], {"en": None, "de": "x"}], {"source": "en", "target": "de"}, r"pairs\[1\] is None"),
    (PAIRS, {"source": "en", "target": "de"}, r"pairs\[0\] has 2 columns without names"),
    ([PAIRS[0], ("a", "b", "c")], {}, r"pairs\[1\] has 3 columns: give two"),
    ([("a",)], {}, r"pairs\[0\] has 1 columns: give two"),
    ([{"one", "two"}], {}, r"pairs\[0\] is \{.*\}: give a source and its target"),
])  # fmt: skip
def test_rows_that_are_no_pairs_are_named(pairs, names, message):
    with pytest.raises(InputError, match=message):
        as_pairs(pairs, **names)


def test_lines_of_open_files_and_of_surrogates(tmp_path):
    assert as_list(["a\ud83d", "\udc00\ud800"]) == ["a\ufffd".encode(), "\ufffd\ufffd".encode()]
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\ntwö\n".encode())
    for mode in ("rb", "r"):
        with path.open(mode, **({} if mode == "rb" else {"encoding": "utf-8"})) as file:
            assert as_strings(file) == ["one", "twö"]
    path.write_bytes(b"one\rone\ntwo\n")
    with path.open(encoding="utf-8") as file, pytest.raises(InputError, match="carriage returns"):
        as_strings(file)
    with path.open("rb") as file:
        assert as_strings(file) == ["one\rone", "two"]
    for content, message in ((b"f\xfcr\n", "not valid"), (b'<tmx version="1.4">\n', "markup")):
        path.write_bytes(content)
        for mode, options in (("rb", {}), ("r", {"encoding": "utf-8"})):
            with path.open(mode, **options) as file, pytest.raises(InputError, match=message):
                as_strings(file)
    path.write_bytes(b"f\xfcr\n")
    with path.open(encoding="latin-1") as file:
        assert as_strings(file) == ["für"]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_ids_of_any_integer_type_are_decoded(kind):
    tokenizer = tiny.tokenizer(kind)
    ids = tokenizer.encode(tiny.LINES)
    dense = ids.to_tensor()
    for given in (
        ids.to_list(),
        dense.numpy().tolist(),
        dense.numpy().astype(np.int64),
        tf.cast(dense, tf.int64),
        [tf.constant(row) for row in ids.to_list()],
        tf.cast(ids, tf.int64),
    ):
        assert as_strings(tokenizer.decode(given)) == tiny.LINES
        texts, starts, _ = tokenizer.decode_with_offsets(given)
        assert as_strings(texts) == tiny.LINES
        assert starts.shape == dense.shape
    for given, message in (
        ([5, 6], r"ids\[0\] is 5"),
        (dense[0], "shape"),
        ([[1.5]], "give a list of ids"),
        ([[4, 330]], "ids has 330: give ids from 0 to 329"),
        ([[-100]], "ids has -100"),
    ):
        with pytest.raises(InputError, match=message):
            tokenizer.decode(given)
