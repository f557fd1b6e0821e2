"""The TFDS dataset holds what the grammar generates, and needs no network."""

import subprocess
import sys

import tensorflow_datasets as tfds

import t2t_keras.data.grammar  # noqa: F401 (registers the dataset)
from t2t_keras.data.english_german import SPLIT_SIZES, sentence_pairs
from tests.data.small_grammar import shrink


def test_tfds_gives_the_same_pairs(tmp_path, monkeypatch):
    shrink(monkeypatch)
    data, info = tfds.load("grammar_en_de", data_dir=tmp_path, with_info=True)
    assert {name: split.num_examples for name, split in info.splits.items()} == SPLIT_SIZES
    for split in ("validation", "test", "test_long"):
        read = {(row["en"].decode(), row["de"].decode()) for row in tfds.as_numpy(data[split])}
        assert read == set(sentence_pairs(split))


def test_the_library_does_not_import_tfds():
    code = "import sys, t2t_keras, t2t_keras.data; sys.exit('tensorflow_datasets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
