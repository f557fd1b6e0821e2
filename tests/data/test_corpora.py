"""Corpora give what lies in them, and say what is wrong with it."""

import gzip
import re

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from t2t_keras.data import (
    FolderCorpus,
    LabeledFolder,
    MemoryCorpus,
    TFDSCorpus,
    encode_pairs,
    write_shards,
)
from t2t_keras.data.corpora import aligned_files
from t2t_keras.data.plain_text import TextFolder, TextTFDS
from t2t_keras.data.treebank import TreebankCorpus
from t2t_keras.errors import InputError, MissingTextError
from tests.data import tiny_dataset
from tests.data.reading import read_pairs


def write(folder, **files):
    """Writes files; their names have "__" for a dot."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def texts_of(dataset):
    return [(pair["source"], pair["target"]) for pair in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("middle", ["", "__lc__norm__tok"])
def test_folder_reads_plain_and_gzipped_files_in_their_order(tmp_path, middle):
    english, german = ([b"%d" % (sign * n) for n in range(3000)] for sign in (1, -1))
    write(tmp_path, **{f"train{middle}__en__gz": b"\n".join(english)})
    write(tmp_path, **{f"train{middle}__de": b"\n".join(german)})
    examples = FolderCorpus(str(tmp_path), "en", "de").examples("train")
    assert texts_of(examples) == list(zip(english, german, strict=True))
    assert int(examples.cardinality()) == 3000


CORPORA = {
    "pairs": lambda folder: FolderCorpus(folder, "en", "de"),
    "texts": lambda folder: TextFolder(folder, "en"),
    "only texts": TextFolder,
    "trees": TreebankCorpus,
    "labels": lambda folder: LabeledFolder(folder, ["en", "de"]),
}
ONE, LATIN = b"one\n", "eins\nfünf\n".encode("latin-1")
CUT = gzip.compress(ONE * 99)[:-12]


@pytest.mark.parametrize(("kind", "files", "message"), [
    ("pairs", {}, "found: none. The folder contains nothing"),
    ("pairs", {"train.en": b"", "train.de": ONE}, "train.en is empty"),
    ("pairs", {"train.en": b"1\n2\n", "train.de": b"1\n2\n3"}, "train.en has 2.*train.de has 3"),
    ("pairs", {"train.en": b"1\n2\n", "train.de": LATIN}, "train.de line 2 is not valid UTF-8"),
    ("pairs", {"train.en": ONE, "train.tok.en": ONE}, "'train.en', 'train.tok.en'"),
    ("pairs", {"train.en.gz": CUT, "train.de": ONE}, "train.en.gz cannot be read"),
    ("texts", {"train.de": ONE}, r"train\.….en, in .*found: none. .* contains 'train.de'"),
    ("texts", {"train.en": b""}, "train.en is empty"),
    ("only texts", {"train.de": ONE, "train.en": ONE}, "train.… in .*'train.de'.*by its lang"),
    ("only texts", {"train.jsonl.gz": gzip.compress(ONE)}, "jsonl.gz is a table: give its texts"),
    ("trees", {"train.en": ONE}, "split 'train' needs one file named train.mrg or train.mrg.gz,"),
    ("trees", {"train.mrg": ONE, "train.x.mrg.gz": CUT}, "found: 'train.mrg', 'train.x.mrg.gz'"),
    ("labels", {"train.en": ONE}, "split 'train' has no text of the class 'de'"),
    ("labels", {"train.en": b"1\n\n3\n"}, "train.en line 2 is empty"),
    ("labels", {"train.en": b""}, "train.en line 1 is empty"),
    ("labels", {"train.en": LATIN}, "train.en line 2 is not valid UTF-8"),
    ("labels", {"train.en.gz": CUT}, "train.en.gz cannot be read"),
    ("labels", {"train.en": ONE, "train.en.gz": CUT}, "'en' in .*train.en and in .*.gz: keep one"),
    ("labels", {"train.en.gz": CUT, "train/en/1.txt": ONE}, "in .*.en.gz and in .*/train: keep"),
    ("labels", {"train/en/2.txt": ONE, "train/en/2.txt.gz": CUT}, "2.txt and .*gz are both there"),
    ("labels", {"train/en/2.txt.bz2": b"BZh9"}, "2.txt.bz2 is not text, but .* format bzip2"),
    ("labels", {"train/other/0.txt": ONE}, "train/other is the folder of a class .* of en, de: na"),
    *((kind, {"train.\xe4.mrg": ONE, "train.a\u0308.mrg": ONE}, "two forms of Unicode, NFC and NF")
      for kind in CORPORA),
])  # fmt: skip
def test_wrong_files_of_a_split_are_named(kind, files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as refused:
        CORPORA[kind](tmp_path).examples("train")
    is_missing = re.search("none|no text|needs one", message) is not None
    assert isinstance(refused.value, MissingTextError) == is_missing


@pytest.mark.parametrize("kind", CORPORA)
def test_a_missing_folder_is_named(kind):
    with pytest.raises(InputError, match="there is no folder 'nowhere'; give one that holds"):
        CORPORA[kind]("nowhere")


def test_invalid_bytes_of_a_folder_are_replaced_if_asked_for(tmp_path):
    write(tmp_path, train__en="\ufeffone\ntwo".encode(), train__de=LATIN)
    examples = FolderCorpus(str(tmp_path), "en", "de", errors="replace").examples("train")
    assert texts_of(examples) == [(b"one", b"eins"), (b"two", "f\ufffdnf".encode())]


def test_hidden_files_are_no_text(tmp_path):
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text("one\n")
        for hidden in (f"._{name}", f".{name}.swp", f".#{name}", ".DS_Store"):
            (tmp_path / hidden).write_bytes(b"\0\5\x16\7")
    assert texts_of(FolderCorpus(tmp_path, "en", "de").examples("train")) == [(b"one", b"one")]
    assert not FolderCorpus(tmp_path, "en", "de").has_text("._train")


def test_names_of_files_are_one_in_nfc_and_in_nfd(tmp_path):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for name, text in (("de", "eins\n"), (decomposed, "un\n"), ("mrg", "(S (NN un))\n")):
        (tmp_path / f"{decomposed}.{name}").write_text(text)
    corpora = FolderCorpus(tmp_path, "de", composed), TreebankCorpus(tmp_path)
    for corpus, pair in zip(corpora, [(b"eins", b"un"), (b"un", b"(S NN )S")], strict=True):
        assert corpus.has_text(composed)
        assert texts_of(corpus.examples(composed)) == [pair]


@pytest.mark.parametrize(("name", "languages", "message"), [
    ("train.en", ("en", "en"), "source and target are both 'en'"),
    ("train.tok.en", ("en", "tok.en"), "'train.tok.en' of .* matches both en and tok.en"),
])  # fmt: skip
def test_one_file_is_never_both_sides(name, languages, message, tmp_path):
    (tmp_path / name).write_text("one\n")
    with pytest.raises(InputError, match=message):
        FolderCorpus(tmp_path, *languages).examples("train")
    with pytest.raises(InputError, match="is both source and target"):
        aligned_files(tmp_path / name, f"{tmp_path}/./{name}")
    with pytest.raises(InputError, match="source and target are both 'en'"):
        TFDSCorpus("tiny_pairs", "en", "en", data_dir=tmp_path)


def test_any_two_files_may_be_aligned(tmp_path):
    write(tmp_path, a__txt=b"one\n", b__gz=b"eins")
    assert texts_of(aligned_files(tmp_path / "a.txt", tmp_path / "b.gz")) == [(b"one", b"eins")]
    with pytest.raises(InputError, match="there is no file"):
        aligned_files(tmp_path / "a.txt", tmp_path / "c.txt")


def test_memory_holds_what_it_was_given():
    corpus = MemoryCorpus({"train": [("a", "ä"), (b"b", b"\xff"), ("\ud800", "")], "none": []})
    expected = [(b"a", "ä".encode()), (b"b", b"\xff"), ("\ufffd".encode(), b"")]
    assert texts_of(corpus.examples("train")) == expected
    with pytest.raises(InputError, match=r"'test'.*'train'"):
        corpus.examples("test")
    with pytest.raises(InputError, match="no sentence pairs"):
        corpus.examples("none")


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [("wmt14_translate/de-en", "en", "de"), ("ted_hrlr_translate/ru_to_en", "ru", "en")],
)
def test_tfds_translation_datasets_come_by_name(tmp_path, name, source, target):
    with tfds.testing.mock_data(num_examples=5):
        raw = tfds.load(name, split="train", data_dir=str(tmp_path))
        expected = [(pair[source], pair[target]) for pair in raw.as_numpy_iterator()]
        corpus = TFDSCorpus(name, source, target, data_dir=str(tmp_path))
        assert texts_of(corpus.examples("train")) == expected
        assert len(expected) == 5


def test_the_texts_of_a_tfds_dataset_have_no_target(tmp_path):
    with tfds.testing.mock_data(num_examples=3):
        corpus = TextTFDS("imdb_reviews", data_dir=str(tmp_path))
        raw = tfds.load("imdb_reviews", split="train", data_dir=str(tmp_path))
        texts = texts_of(corpus.examples("train"))
        assert texts == [(row["text"], b"") for row in raw.as_numpy_iterator()]
    with pytest.raises(InputError, match="no feature 'sentence'; it has"):
        TextTFDS("imdb_reviews", text="sentence", data_dir=str(tmp_path))


@pytest.mark.parametrize(("split", "in_order"), [
    ("train", False), ("train", True), ("train[:60%]", False),
])  # fmt: skip
def test_rows_of_many_files_come_in_the_order_of_tfds(tmp_path, monkeypatch, split, in_order):
    rows = [{"en": f"house {n}", "de": f"Haus {n}", "label": 0} for n in range(1_200)]
    monkeypatch.setattr(tiny_dataset, "IN_ORDER", in_order)
    monkeypatch.setattr(tiny_dataset.TinyPairs, "_generate_examples", lambda *_: enumerate(rows))
    builder = tfds.builder("tiny_pairs", data_dir=tmp_path)
    config = tfds.download.DownloadConfig(num_shards=18)  # TFDS reads 16 files side by side
    builder.download_and_prepare(download_config=config)
    raw = builder.as_dataset(split=split, shuffle_files=False).as_numpy_iterator()
    examples = TFDSCorpus("tiny_pairs", "en", "de", data_dir=tmp_path).examples(split)
    assert texts_of(examples) == [(pair["en"], pair["de"]) for pair in raw]
    assert int(examples.cardinality()) == (1_200 if split == "train" else 720)


def test_tfds_mistakes_are_input_errors(tmp_path, monkeypatch):
    corpus = TFDSCorpus("tiny_pairs", "de", "en", data_dir=str(tmp_path))
    expected = {(german.encode(), english.encode()) for english, german in tiny_dataset.PAIRS}
    assert set(texts_of(corpus.examples("train"))) == expected
    with pytest.raises(InputError, match=r"no split 'test'; it has 'train'"):
        corpus.examples("test")
    for slice_of in ("train[:90", "train[:150%]", "train[:50%]+vaildation"):
        with pytest.raises(InputError, match=r"no split 'train.*a slice that is not empty"):
            corpus.examples(slice_of)
    with pytest.raises(InputError, match=r"no feature 'fr'; it has 'de', 'en'|'en', 'de'"):
        TFDSCorpus("tiny_pairs", "en", "fr", data_dir=str(tmp_path))
    for name in ("no_such_thing", "wmt14_translate/xx-en"):
        with pytest.raises(InputError, match=name):
            TFDSCorpus(name, "en", "xx")

    def fail(*_):
        raise ConnectionError("no route")

    monkeypatch.setattr(tiny_dataset.TinyPairs, "download_and_prepare", fail)
    with pytest.raises(InputError, match=r"could not be .* \(no route\).* data_dir"):
        TFDSCorpus("tiny_pairs", "en", "de", data_dir=str(tmp_path / "new")).examples("train")


# Pairs in memory ----------------------------------------------------------------------------------


def test_encoded_pairs_are_those_of_shards(corpus, pairs, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    texts = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*pairs, strict=True))))
    for given in (pairs, texts):
        examples = encode_pairs(given, tokenizer).as_numpy_iterator()
        found = [(tuple(pair["source"]), tuple(pair["target"])) for pair in examples]
        assert found == read_pairs(tmp_path)


def test_line_ends_are_no_text_and_a_list_without_pairs_is_refused(tokenizer):
    def encoded(*pairs):
        examples = encode_pairs(pairs, tokenizer).as_numpy_iterator()
        return [(pair["source"].tolist(), pair["target"].tolist()) for pair in examples]

    found = encoded(("a house\n", "ein Haus\r\n"), ("\u3000\n", ""))
    assert found == encoded(("a house", "ein Haus"), ("", "")) and found[1] == ([1], [1])
    with pytest.raises(InputError, match="there are no pairs"):
        encoded()
