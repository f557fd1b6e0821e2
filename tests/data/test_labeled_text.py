import gzip

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from t2t_keras.data import (
    LabeledBuckets,
    LabeledFolder,
    LabeledTFDS,
    LabelEncoder,
    MemoryCorpus,
    encode_pairs,
    evaluation_batches,
    padding_fraction,
    training_batches,
    write_shards,
)
from t2t_keras.errors import InputError
from tests.data.tiny_dataset import PAIRS, TinyPairs

LABELS = LabelEncoder(["neg", "pos"])
LENGTHS = LabelEncoder(["short", "long"])


def pairs(examples):
    return [(e["source"].decode(), e["target"].decode()) for e in examples.as_numpy_iterator()]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_labels_are_ids_by_place():
    assert LABELS.encode(tf.constant(["pos", "neg", "pos"])).to_list() == [[1], [0], [1]]
    assert LABELS.encode(tf.constant([], tf.string)).to_list() == []
    with pytest.raises(InputError, match=r"pairs\[1\] has the label 'new': give one of neg, pos"):
        encode_pairs([("a", "neg"), ("b", "new")], None, LABELS)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a label is not one of"):
        LABELS.encode(tf.constant(["good"]))
    for names in (["one"], ["a", "a"], ["a", ""], []):
        with pytest.raises(InputError, match="two or more names, all different and none empty"):
            LabelEncoder(names)


def test_a_file_or_a_folder_for_each_class(tmp_path):
    write(tmp_path / "train.neg", b"dull\r\nso so \n")
    write(tmp_path / "train.pos.gz", "très bon\n".encode())
    corpus = LabeledFolder(tmp_path, ["neg", "pos"])
    examples = corpus.examples("train")
    assert pairs(examples) == [("dull", "neg"), ("so so", "neg"), ("très bon", "pos")]
    assert examples.cardinality() == 3
    write(tmp_path / "test" / "pos" / "2_9.txt", b"a fine\nfilm\n")
    write(tmp_path / "test" / "pos" / "._2_9.txt", b"\0\5")
    write(tmp_path / "test" / "neg" / "0_1.txt.gz", b"dull")
    write(tmp_path / "test" / "neg" / "1_2.txt", b"bad")
    write(tmp_path / "test" / "neg" / "notes.md", b"no text")
    found = pairs(corpus.examples("test"))
    assert found == [("dull", "neg"), ("bad", "neg"), ("a fine film", "pos")]


def test_names_of_classes_are_one_in_nfc_and_in_nfd(tmp_path):
    composed, decomposed = "n\u00e9gatif", "ne\u0301gatif"
    write(tmp_path / f"train.{decomposed}", b"mauvais\n")
    write(tmp_path / "train.positif.gz", b"bon\n")
    write(tmp_path / "test" / decomposed / "1.txt", b"mauvais")
    write(tmp_path / "test" / "positif" / "1.txt", b"bon")
    for name in (composed, decomposed):
        labels = LabelEncoder([name, "positif"])
        assert labels.encode(tf.constant([decomposed, composed])).to_list() == [[0], [0]]
        corpus = LabeledFolder(tmp_path, labels)
        assert corpus.has_text("train")
        for split in ("train", "test"):
            assert pairs(corpus.examples(split)) == [("mauvais", name), ("bon", "positif")]
    with pytest.raises(InputError, match="two or more names, all different and none empty"):
        LabelEncoder([composed, decomposed])


def test_what_is_not_read_is_named(tmp_path, caplog):
    for name in ("train.neg", "train.pos.gz", "train.neu", "train.neu2.gz", "dev.other", "notes"):
        write(tmp_path / name, b"a text\n")
    corpus = LabeledFolder(tmp_path, LABELS)
    assert len(pairs(corpus.examples("train"))) == 2
    assert "2 files of split 'train' " in caplog.text
    assert caplog.text.rstrip().endswith("are not read: train.neu, train.neu2.gz")
    caplog.clear()
    for name in ("neg/0.txt", "neg/0.TXT", "neg/more/1.txt", "pos/1.txt", "list.csv"):
        write(tmp_path / "test" / name, b"a text\n")
    (tmp_path / "test" / "empty").mkdir()
    assert len(pairs(corpus.examples("test"))) == 2
    odd = ("test/list.csv", "test/neg/0.TXT", "test/neg/more")
    assert caplog.text.rstrip().endswith(f"are not read: {', '.join(odd)}")


def test_imdb_reviews_by_name(tmp_path):
    with tfds.testing.mock_data(num_examples=9):
        corpus = LabeledTFDS("imdb_reviews", LABELS, data_dir=str(tmp_path))
        raw = tfds.load("imdb_reviews", split="train", data_dir=str(tmp_path))
        expected = [(e["text"].decode(), LABELS.names[e["label"]]) for e in raw.as_numpy_iterator()]
        assert pairs(corpus.examples("train[:90%]")) == expected
        with pytest.raises(InputError, match="has the classes neg, pos in 'label', not bad, good"):
            LabeledTFDS("imdb_reviews", LabelEncoder(["bad", "good"]), data_dir=str(tmp_path))


def test_texts_without_a_label_are_refused(tmp_path):
    corpus = LabeledTFDS(TinyPairs.name, LABELS, "de", data_dir=str(tmp_path))
    assert sorted(pairs(corpus.examples("train"))) == [(text, "neg") for _, text in PAIRS]
    assert len(pairs(corpus.examples("train[:50%]"))) == 1
    with pytest.raises(InputError, match="'unsupervised' of tiny_pairs holds texts without"):
        corpus.examples("unsupervised")
    with pytest.raises(InputError, match="has no split 'test"):
        corpus.examples("test[:10%]")


@pytest.fixture(scope="module")
def labeled(pairs):
    """Texts, each with its class: is it longer than 30 characters?"""
    return [(text, LENGTHS.names[len(text) > 30]) for text, _ in pairs]


def test_batches_hold_every_text_with_its_class(labeled, tokenizer, tmp_path):
    corpus = MemoryCorpus({"train": labeled})
    write_shards(corpus, "train", tokenizer, str(tmp_path), target_tokenizer=LENGTHS)
    batcher = LabeledBuckets(tokens_per_batch=200, max_length=64)
    batches = list(evaluation_batches(str(tmp_path), "train", batcher))
    found = []
    for inputs, labels, weights in batches:
        ids = inputs["source_ids"].numpy()
        assert ids.size <= 200 and np.all(weights == 1)
        texts = [text.decode() for text in tokenizer.decode(ids).numpy()]
        found += zip(texts, (LENGTHS.names[label] for label in labels.numpy()), strict=True)
    assert sorted(found) == sorted(labeled)
    fraction = padding_fraction(evaluation_batches(str(tmp_path), "train", batcher))
    assert 0 < fraction.source < 0.2 and fraction.target == 0

    inputs, labels, _ = next(iter(training_batches(str(tmp_path), "train", batcher, seed=1)))
    assert inputs["source_ids"].shape[0] == labels.shape[0]


def test_long_texts_are_cut_and_keep_their_end(labeled, tokenizer):
    examples = encode_pairs(labeled, tokenizer, LENGTHS)
    batches = list(LabeledBuckets(tokens_per_batch=200, max_length=5)(examples))
    rows = [
        row[row != 0].tolist() for inputs, *_ in batches for row in inputs["source_ids"].numpy()
    ]
    whole = tokenizer.encode([text for text, _ in labeled]).to_list()
    assert sorted(rows) == sorted([*row[:4], 1] for row in whole)
    assert max(len(labels) for _, labels, _ in batches) == 200 // 5


def test_buckets_of_given_lengths_are_filled_up_with_rows_of_weight_0(labeled, tokenizer):
    examples = encode_pairs(labeled, tokenizer, LENGTHS)
    batcher = LabeledBuckets(tokens_per_batch=40, max_length=10, bucket_lengths=(4, 6, 10))
    total = 0
    for inputs, labels, weights in batcher(examples):
        rows, length = inputs["source_ids"].shape
        assert (rows, length) in {(10, 4), (6, 6), (4, 10)}
        assert labels.shape == weights.shape == (rows,)
        np.testing.assert_array_equal(weights, tf.reduce_any(inputs["source_ids"] != 0, axis=1))
        total += int(tf.reduce_sum(weights))
    assert total == len(labeled)
