"""Corpora give what lies in them, and say what is wrong with it."""

import gzip

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from t2t_keras.data import FolderCorpus, MemoryCorpus, TFDSCorpus, encode_pairs, write_shards
from t2t_keras.data.corpora import aligned_files
from t2t_keras.data.plain_text import TextTFDS
from t2t_keras.data.treebank import TreebankCorpus
from t2t_keras.errors import InputError
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


def test_folder_mistakes_are_input_errors(tmp_path):
    def check(message, split="train", **files):
        write(tmp_path, **files)
        with pytest.raises(InputError, match=message):
            FolderCorpus(str(tmp_path), "en", "de").examples(split)

    with pytest.raises(InputError, match="nowhere"):
        FolderCorpus(str(tmp_path / "nowhere"), "en", "de")
    check("found: none")
    check("train.en is empty", train__en=b"", train__de=b"")
    check("'train.de', 'train.en'", "test")
    check("train.en has 2.*train.de has 3", train__en=b"one\ntwo\n", train__de=b"1\n2\n3")
    latin = "eins\nfünf\n".encode("latin-1")
    check(
        "train.de line 2 is not valid UTF-8", train__en="\ufeffone\ntwo".encode(), train__de=latin
    )
    replaced = FolderCorpus(str(tmp_path), "en", "de", errors="replace").examples("train")
    assert texts_of(replaced) == [(b"one", b"eins"), (b"two", "f\ufffdnf".encode())]
    check("'train.en', 'train.tok.en'", train__tok__en=b"one\n")
    (tmp_path / "broken.en.gz").write_bytes(gzip.compress(b"one\n" * 99)[:-12])
    check("broken.en.gz cannot be read", "broken", broken__de=b"eins\n")


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
    (tmp_path / f"{composed}.de").write_text("zwei\n")
    with pytest.raises(InputError, match="in two forms of Unicode"):
        corpora[0].examples(composed)


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


class _Tiny(tfds.core.GeneratorBasedBuilder):
    """A prepared dataset of two pairs."""

    name = "tiny_pairs"
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.Translation(languages=("en", "de"))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, _):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"en": "a house", "de": "ein Haus"}
        yield 1, {"en": "a street", "de": "eine Straße"}


def test_the_texts_of_a_tfds_dataset_have_no_target(tmp_path):
    with tfds.testing.mock_data(num_examples=3):
        corpus = TextTFDS("imdb_reviews", data_dir=str(tmp_path))
        raw = tfds.load("imdb_reviews", split="train", data_dir=str(tmp_path))
        texts = texts_of(corpus.examples("train"))
        assert texts == [(row["text"], b"") for row in raw.as_numpy_iterator()]
    with pytest.raises(InputError, match="no feature 'sentence'; it has"):
        TextTFDS("imdb_reviews", text="sentence", data_dir=str(tmp_path))


def test_tfds_mistakes_are_input_errors(tmp_path, monkeypatch):
    corpus = TFDSCorpus("tiny_pairs", "de", "en", data_dir=str(tmp_path))
    expected = {(b"ein Haus", b"a house"), ("eine Straße".encode(), b"a street")}
    assert set(texts_of(corpus.examples("train"))) == expected
    with pytest.raises(InputError, match=r"no split 'test'; it has 'train'"):
        corpus.examples("test")
    with pytest.raises(InputError, match=r"no feature 'fr'; it has 'de', 'en'|'en', 'de'"):
        TFDSCorpus("tiny_pairs", "en", "fr", data_dir=str(tmp_path))
    for name in ("no_such_thing", "wmt14_translate/xx-en"):
        with pytest.raises(InputError, match=name):
            TFDSCorpus(name, "en", "xx")

    def fail(*_):
        raise ConnectionError("no route")

    monkeypatch.setattr(_Tiny, "download_and_prepare", fail)
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


def test_odd_texts_and_blank_sides(tokenizer, tmp_path):
    odd, plain = (
        list(encode_pairs([(f"a {x}", f"b{x}")], tokenizer).as_numpy_iterator())
        for x in ("\ud800", "\ufffd")
    )
    for side in ("source", "target"):
        np.testing.assert_array_equal(odd[0][side], plain[0][side])
    blank = ["\u3000", "\u200b", "\x0b", "\ufeff", "\x00", ""]
    pairs = [*((text, "word") for text in blank), ("word", "\u00a0"), ("a house", "ein Haus")]
    report = write_shards(MemoryCorpus({"train": pairs}), "train", tokenizer, str(tmp_path))
    assert (report.kept, report.dropped["empty side"]) == (1, len(blank) + 1)
    examples = encode_pairs(pairs, tokenizer).as_numpy_iterator()
    assert [pair["source"].tolist() for pair in examples][: len(blank)] == [[1]] * len(blank)
    [ended], [expected] = (
        list(encode_pairs(pair, tokenizer))
        for pair in ([("a house\n", "ein Haus\r\n")], [("a house", "ein Haus")])
    )
    for side in ("source", "target"):
        np.testing.assert_array_equal(ended[side], expected[side])
    with pytest.raises(InputError, match=r"^pairs\[1\] is 5, of type int: give a string"):
        encode_pairs([("a house", "ein Haus"), ("a", 5)], tokenizer)
    with pytest.raises(InputError, match="there are no pairs"):
        encode_pairs([], tokenizer)
