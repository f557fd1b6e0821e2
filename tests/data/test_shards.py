"""What is written is what is read, and what is missing is counted."""

import json
from collections import Counter

import numpy as np
import pytest

from t2t_keras.data import (
    Filters,
    MemoryCorpus,
    read_shards,
    shard_blocks,
    shard_writing,
    write_shards,
)
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


def test_shards_that_were_cut_off_or_lost_are_told(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=2)
    [_, target] = sorted((tmp_path / "train").glob("*.target"))
    content = target.read_bytes()
    target.write_bytes(content[:-4])
    with pytest.raises(InputError, match=r"bytes instead of .* prepare it again"):
        open_shards(str(tmp_path), "train")
    target.unlink()
    with pytest.raises(InputError, match=f"{target.name} is missing"):
        open_shards(str(tmp_path), "train")
    target.write_bytes(content)
    open_shards(str(tmp_path), "train")
    (tmp_path / "train" / "report.json").write_text("{")
    with pytest.raises(InputError, match=r"report.json is damaged"):
        open_shards(str(tmp_path), "train")


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
    with pytest.raises(InputError, match=r"split 'train'.*no pair is left.*1 empty side"):
        write_shards(empty, "train", tokenizer, str(tmp_path))
    assert len(_read(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    with pytest.raises(InputError, match="no tokenized split 'test'"):
        read_shards(str(tmp_path), "test")


def test_progress_is_told(corpus, pairs, tokenizer, tmp_path):
    seen = []
    write_shards(corpus, "train", tokenizer, str(tmp_path), progress=seen.append)
    assert seen[-1] == len(pairs)


def _bytes(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(
    corpus, pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_blocks, "PAIRS_AT_A_TIME", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_A_JOURNAL", 2)
    write_shards(corpus, "train", tokenizer, str(tmp_path / "unbroken"), shards=3)

    def kill(read):
        if read > len(pairs) // 2:
            raise KeyboardInterrupt

    broken, seen = tmp_path / "broken", []
    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, str(broken), shards=3, progress=kill)
    assert [path.name for path in broken.iterdir()] == [".train.unfinished"]
    write_shards(corpus, "train", tokenizer, str(broken), shards=3, progress=seen.append)
    assert seen[0] > len(pairs) // 3, "it began anew"
    assert _bytes(broken / "train") == _bytes(tmp_path / "unbroken" / "train")
    assert [path.name for path in broken.iterdir()] == ["train"]


def test_what_another_corpus_left_unfinished_is_not_gone_on_with(
    corpus, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_blocks, "PAIRS_AT_A_TIME", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_A_JOURNAL", 1)

    def kill(read):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, str(tmp_path), progress=kill)
    small = MemoryCorpus({"train": [("the man", "der Mann")]})
    write_shards(small, "train", tokenizer, str(tmp_path))
    assert _read(tmp_path) == _encoded(tokenizer, [("the man", "der Mann")])


def test_an_unfinished_file_that_lost_its_end_is_begun_anew(
    corpus, pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_blocks, "PAIRS_AT_A_TIME", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_A_JOURNAL", 1)

    def kill(read):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, str(tmp_path), shards=1, progress=kill)
    (tmp_path / ".train.unfinished" / "00000-of-00001.target").write_bytes(b"")
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=1)
    assert _read(tmp_path) == _encoded(tokenizer, pairs)
