"""What is written is what is read, and what is missing is counted."""

import json
from collections import Counter

import numpy as np
import pytest

from t2t_keras.data import Filters, MemoryCorpus, read_shards, write_shards
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError


def _read(directory, split="train"):
    pairs = read_shards(str(directory), split).as_numpy_iterator()
    return [(tuple(pair["source"]), tuple(pair["target"])) for pair in pairs]


def _encoded(tokenizer, pairs):
    sides = [tokenizer.encode(list(side)).to_list() for side in zip(*pairs, strict=True)]
    return [tuple((*ids, 1) for ids in pair) for pair in zip(*sides, strict=True)]


@pytest.mark.parametrize("shards", [1, 7])
def test_shards_hold_every_pair_once_with_its_end(corpus, pairs, tokenizer, tmp_path, shards):
    report = write_shards(corpus, "train", tokenizer, str(tmp_path), shards=shards)
    read = _read(tmp_path)
    expected = _encoded(tokenizer, pairs)
    assert Counter(read) == Counter(expected)
    assert read == expected or shards > 1
    assert report.kept == len(pairs) == int(read_shards(str(tmp_path), "train").cardinality())
    sizes = [len(open_shards(str(tmp_path), "train").lengths(n)) for n in range(shards)]
    assert max(sizes) - min(sizes) <= 1


def test_report_counts_pairs_and_tokens(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    report = json.loads((tmp_path / "train" / "report.json").read_text())
    lengths = np.array([[len(source), len(target)] for source, target in _read(tmp_path)])
    assert [report["source_tokens"], report["target_tokens"]] == lengths.sum(axis=0).tolist()
    assert [report["longest_source"], report["longest_target"]] == lengths.max(axis=0).tolist()
    assert report["kept"] == len(lengths)


def test_dropped_pairs_are_counted(tokenizer, tmp_path):
    rows = [("the man", "der Mann"), (b"\xff", "Mann"), ("", "Mann"), ("man", "  "),
            ("the " * 60, "der " * 60), ("the", "der Mann " * 5)]  # fmt: skip
    corpus = MemoryCorpus({"train": rows})
    filters = Filters(max_length=50, max_ratio=4.0)
    report = write_shards(corpus, "train", tokenizer, str(tmp_path), filters)
    assert report.kept == 1
    assert list(report.dropped.values()) == [1, 2, 1, 1]
    assert _read(tmp_path) == _encoded(tokenizer, rows[:1])


def test_new_shards_replace_old_ones_and_failures_leave_them(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=3)
    small = MemoryCorpus({"train": [("the man", "der Mann")]})
    write_shards(small, "train", tokenizer, str(tmp_path))
    empty = MemoryCorpus({"train": [("", "")]})
    with pytest.raises(InputError, match=r"no pair of split 'train' is left.*1 empty side"):
        write_shards(empty, "train", tokenizer, str(tmp_path))
    assert len(_read(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    with pytest.raises(InputError, match="no tokenized split 'test'"):
        read_shards(str(tmp_path), "test")


def test_progress_is_told(corpus, pairs, tokenizer, tmp_path):
    seen = []
    write_shards(corpus, "train", tokenizer, str(tmp_path), progress=seen.append)
    assert seen[-1] == len(pairs)
