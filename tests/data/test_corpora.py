"""Corpora give what lies in them, and say what is wrong with it."""

import gzip

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from t2t_keras.data import (
    FolderCorpus,
    LengthBuckets,
    MemoryCorpus,
    TFDSCorpus,
    encode_pairs,
    write_shards,
)
from t2t_keras.data.corpora import aligned_files
from t2t_keras.errors import InputError
from tests.data.reading import read_pairs


def _write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _pairs(dataset):
    return [(pair["source"], pair["target"]) for pair in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    "names",
    [("train.en", "train.de"), ("train.en.gz", "train.de"),
     ("train.lc.norm.tok.en.gz", "train.lc.norm.tok.de.gz")],
)  # fmt: skip
def test_folder_reads_plain_and_gzipped_files(tmp_path, names):
    _write(tmp_path / names[0], b"one\ntwo\n")
    _write(tmp_path / names[1], b"eins\nzwei\n")
    corpus = FolderCorpus(str(tmp_path), "en", "de")
    examples = corpus.examples("train")
    assert _pairs(examples) == [(b"one", b"eins"), (b"two", b"zwei")]
    assert int(examples.cardinality()) == 2


def test_lines_end_at_line_feeds_alone(tmp_path):
    odd = "a\x0bb\x85c\u2028d\re\x1cf"
    _write(tmp_path / "train.en", f"{odd}\r\n\r\n\nlast".encode())
    _write(tmp_path / "train.de", b"1\n2\n3\n4\n")
    pairs = _pairs(FolderCorpus(str(tmp_path), "en", "de").examples("train"))
    assert [source for source, _ in pairs] == [odd.encode(), b"", b"", b"last"]
    assert [target for _, target in pairs] == [b"1", b"2", b"3", b"4"]


def test_long_files_keep_their_order(tmp_path):
    _write(tmp_path / "train.en", b"".join(b"%d\n" % n for n in range(3000)))
    _write(tmp_path / "train.de.gz", b"".join(b"%d\n" % -n for n in range(3000)))
    pairs = _pairs(FolderCorpus(str(tmp_path), "en", "de").examples("train"))
    assert pairs == [(b"%d" % n, b"%d" % -n) for n in range(3000)]


def _folder_error(folder, split="train"):
    with pytest.raises(InputError) as error:
        FolderCorpus(str(folder), "en", "de").examples(split)
    return str(error.value)


def test_misaligned_files_are_named_with_both_counts(tmp_path):
    _write(tmp_path / "train.en", b"one\ntwo\n")
    _write(tmp_path / "train.de.gz", b"eins\nzwei\ndrei")
    message = _folder_error(tmp_path)
    assert all(part in message for part in ("train.en has 2", "train.de.gz has 3"))


def test_text_in_another_encoding_is_named_by_file_and_line(tmp_path):
    _write(tmp_path / "train.en", "\ufeffone\ntwo\n".encode())
    _write(tmp_path / "train.de", "eins\nfünf\n".encode("latin-1"))
    assert "train.de line 2 is not valid UTF-8" in _folder_error(tmp_path)
    corpus = FolderCorpus(str(tmp_path), "en", "de", errors="replace")
    assert _pairs(corpus.examples("train")) == [
        (b"one", b"eins"),
        (b"two", "f\ufffdnf".encode()),
    ]


def test_folder_mistakes_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        FolderCorpus(str(tmp_path / "nowhere"), "en", "de")
    assert "there is none" in _folder_error(tmp_path)
    _write(tmp_path / "train.en", b"")
    _write(tmp_path / "train.de", b"")
    assert "train.en is empty" in _folder_error(tmp_path)
    assert "'train.de', 'train.en'" in _folder_error(tmp_path, "test")
    _write(tmp_path / "train.tok.en", b"one\n")
    assert "'train.en', 'train.tok.en'" in _folder_error(tmp_path)
    _write(tmp_path / "broken.de", b"eins\n")
    (tmp_path / "broken.en.gz").write_bytes(gzip.compress(b"one\n" * 99)[:-12])
    assert "broken.en.gz cannot be read" in _folder_error(tmp_path, "broken")


def test_any_two_files_may_be_aligned(tmp_path):
    _write(tmp_path / "a.txt", b"one\n")
    _write(tmp_path / "b.gz", b"eins")
    assert _pairs(aligned_files(tmp_path / "a.txt", tmp_path / "b.gz")) == [(b"one", b"eins")]
    with pytest.raises(InputError, match="there is no file"):
        aligned_files(tmp_path / "a.txt", tmp_path / "c.txt")


def test_memory_holds_what_it_was_given():
    corpus = MemoryCorpus({"train": [("a", "ä"), (b"b", b"\xff")], "none": []})
    assert _pairs(corpus.examples("train")) == [(b"a", "ä".encode()), (b"b", b"\xff")]
    with pytest.raises(InputError, match=r"'test'.*'train'"):
        corpus.examples("test")
    with pytest.raises(InputError, match="no sentence pairs"):
        corpus.examples("none")


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [("wmt14_translate/de-en", "en", "de"), ("wmt14_translate/fr-en", "en", "fr"),
     ("ted_hrlr_translate/ru_to_en", "ru", "en")],
)  # fmt: skip
def test_tfds_translation_datasets_come_by_name(tmp_path, name, source, target):
    with tfds.testing.mock_data(num_examples=5):
        raw = tfds.load(name, split="train", data_dir=str(tmp_path))
        expected = [(pair[source], pair[target]) for pair in raw.as_numpy_iterator()]
        corpus = TFDSCorpus(name, source, target, data_dir=str(tmp_path))
        assert _pairs(corpus.examples("train")) == expected
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


def test_tfds_without_a_network_says_so(tmp_path, monkeypatch):
    def fail(*_):
        raise ConnectionError("no route")

    monkeypatch.setattr(_Tiny, "download_and_prepare", fail)
    with pytest.raises(InputError, match=r"could not be .* \(no route\).* data_dir"):
        TFDSCorpus("tiny_pairs", "en", "de", data_dir=str(tmp_path)).examples("train")


def test_tfds_mistakes_are_input_errors(tmp_path):
    corpus = TFDSCorpus("tiny_pairs", "de", "en", data_dir=str(tmp_path))
    assert set(_pairs(corpus.examples("train"))) == {
        (b"ein Haus", b"a house"),
        ("eine Straße".encode(), b"a street"),
    }
    with pytest.raises(InputError, match=r"no split 'test'; it has 'train'"):
        corpus.examples("test")
    with pytest.raises(InputError, match=r"no feature 'fr'; it has 'de', 'en'|'en', 'de'"):
        TFDSCorpus("tiny_pairs", "en", "fr", data_dir=str(tmp_path))
    with pytest.raises(InputError, match="no_such_thing"):
        TFDSCorpus("no_such_thing", "en", "de")
    with pytest.raises(InputError, match="wmt14_translate/xx-en"):
        TFDSCorpus("wmt14_translate/xx-en", "en", "xx")


def test_pairs_in_memory_are_those_of_shards(corpus, pairs, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    examples = encode_pairs(pairs, tokenizer)
    assert [
        (tuple(pair["source"]), tuple(pair["target"])) for pair in examples.as_numpy_iterator()
    ] == read_pairs(tmp_path)
    batches = list(LengthBuckets(500)(examples, seed=1))
    assert sum(len(labels) for _, labels, _ in batches) == len(pairs)
    assert all(np.all(inputs["source_ids"][:, 0] != 0) for inputs, _, _ in batches)


def test_a_lone_surrogate_counts_as_a_replacement_character(tokenizer):
    odd, plain = [("a \ud800", "b\udfff")], [("a \ufffd", "b\ufffd")]
    examples = [list(encode_pairs(pairs, tokenizer).as_numpy_iterator()) for pairs in (odd, plain)]
    np.testing.assert_array_equal(examples[0][0]["source"], examples[1][0]["source"])
    np.testing.assert_array_equal(examples[0][0]["target"], examples[1][0]["target"])
    assert _pairs(MemoryCorpus({"train": odd}).examples("train")) == (
        _pairs(MemoryCorpus({"train": plain}).examples("train"))
    )


def test_blank_sides_are_dropped_and_empty(tokenizer, tmp_path):
    blank = ["\u3000", "\u200b", "\x0b", "\ufeff", "\x00", ""]
    pairs = [*((text, "word") for text in blank), ("word", "\u00a0"), ("a house", "ein Haus")]
    report = write_shards(MemoryCorpus({"train": pairs}), "train", tokenizer, str(tmp_path))
    assert (report.kept, report.dropped["empty side"]) == (1, len(blank) + 1)
    examples = encode_pairs(pairs, tokenizer).as_numpy_iterator()
    assert [pair["source"].tolist() for pair in examples][: len(blank)] == [[1]] * len(blank)


def test_pairs_of_a_dataset_are_encoded_and_other_types_refused(tokenizer):
    texts = ["a house", "ein Haus"]
    dataset = tf.data.Dataset.from_tensor_slices(([texts[0]], [texts[1]]))
    [found], [expected] = (list(encode_pairs(p, tokenizer)) for p in (dataset, [texts]))
    for side in ("source", "target"):
        np.testing.assert_array_equal(found[side], expected[side])
    with pytest.raises(InputError, match=r"^pairs\[1\] is 5, of type int: give a string"):
        encode_pairs([texts, ("a", 5)], tokenizer)


def test_no_pairs_are_refused(tokenizer):
    with pytest.raises(InputError, match="there are no pairs"):
        encode_pairs([], tokenizer)
