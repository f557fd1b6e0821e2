"""What is written is what is read, and what is missing is counted."""

import json
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import (
    FilterReport,
    Filters,
    MemoryCorpus,
    shard_writing,
    train_tokenizer,
    write_shards,
)
from t2t_keras.data.shard_writing import REASONS
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError
from tests.data.reading import read_pairs


def _encoded(tokenizer, pairs):
    sides = [tokenizer.encode(list(side)).to_list() for side in zip(*pairs, strict=True)]
    return [tuple((*ids, 1) for ids in pair) for pair in zip(*sides, strict=True)]


@pytest.mark.parametrize("shards", [1, 7])
def test_shards_hold_every_pair_once_with_its_end(corpus, pairs, tokenizer, tmp_path, shards):
    report = write_shards(corpus, "train", tokenizer, str(tmp_path), shards=shards)
    read = read_pairs(tmp_path)
    expected = _encoded(tokenizer, pairs)
    assert Counter(read) == Counter(expected)
    assert read == expected or shards > 1
    assert report.kept == len(pairs)
    sizes = [len(open_shards(str(tmp_path), "train").read_lengths(n)) for n in range(shards)]
    assert max(sizes) - min(sizes) <= 1


def test_report_counts_pairs_and_tokens(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    report = json.loads((tmp_path / "train" / "report.json").read_text())
    lengths = np.array([[len(source), len(target)] for source, target in read_pairs(tmp_path)])
    assert [report["source_tokens"], report["target_tokens"]] == lengths.sum(axis=0).tolist()
    assert [report["longest_source"], report["longest_target"]] == lengths.max(axis=0).tolist()
    assert report["kept"] == len(lengths)


@pytest.mark.parametrize("ending", ["lengths", "source", "target"])
@pytest.mark.parametrize("lost", [1, 4, 8])
def test_a_truncated_shard_is_named_with_the_fix(corpus, tokenizer, tmp_path, ending, lost):
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=2)
    path = tmp_path / "train" / f"00001-of-00002.{ending}"
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(InputError, match=r"00001-of-00002\..* bytes.*prepare it again"):
        open_shards(str(tmp_path), "train")


def test_a_flipped_bit_of_a_shard_is_named(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=2)
    rng = np.random.default_rng(0)
    for path in sorted((tmp_path / "train").glob("0*")):
        content = path.read_bytes()
        for place in rng.integers(len(content), size=20):
            flipped = bytearray(content)
            flipped[place] ^= 1 << rng.integers(8)
            path.write_bytes(flipped)
            with pytest.raises(InputError, match=r"prepare it again"):
                open_shards(str(tmp_path), "train")
        path.write_bytes(content)
    open_shards(str(tmp_path), "train")


def test_shards_of_another_preparation_are_told(corpus, pairs, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, tmp_path, shards=2)
    other = MemoryCorpus({"train": pairs[:300]})
    write_shards(other, "train", tokenizer, tmp_path / "other", shards=2)
    for path in (tmp_path / "other" / "train").glob("00001*"):
        path.replace(tmp_path / "train" / path.name)
    with pytest.raises(InputError, match=r"hold \[450, .* instead of \[600, .*prepare it again"):
        open_shards(tmp_path, "train")


def test_a_shard_that_changes_while_it_is_used_is_told(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    shards = open_shards(str(tmp_path), "train")
    path = tmp_path / "train" / "00000-of-00001.source"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"has changed since.*prepare it"):
        shards.read(0)


def test_files_that_are_lost_or_damaged_are_told(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=2)
    [_, target] = sorted((tmp_path / "train").glob("*.target"))
    content = target.read_bytes()
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
    assert read_pairs(tmp_path) == _encoded(tokenizer, rows[:1])


def test_new_shards_replace_old_ones_and_failures_leave_them(corpus, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=3)
    small = MemoryCorpus({"train": [("the man", "der Mann")]})
    write_shards(small, "train", tokenizer, str(tmp_path))
    empty = MemoryCorpus({"train": [("", "")]})
    with pytest.raises(InputError, match=r"split 'train'.*no pair is left.*1 empty side"):
        write_shards(empty, "train", tokenizer, str(tmp_path))
    assert len(read_pairs(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    with pytest.raises(InputError, match="no tokenized split 'test'"):
        open_shards(str(tmp_path), "test")


def test_progress_is_told(corpus, pairs, tokenizer, tmp_path):
    seen = []
    write_shards(corpus, "train", tokenizer, str(tmp_path), progress=seen.append)
    assert seen[-1] == len(pairs)


def _bytes(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(
    corpus, pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 2)
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


def test_unfinished_shards_of_another_corpus_are_not_resumed(
    corpus, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 1)

    def kill(read):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, str(tmp_path), progress=kill)
    small = MemoryCorpus({"train": [("the man", "der Mann")]})
    write_shards(small, "train", tokenizer, str(tmp_path))
    assert read_pairs(tmp_path) == _encoded(tokenizer, [("the man", "der Mann")])


def _killed(corpus, tokenizer, folder, blocks, **settings):
    """Writes some blocks of 7 pairs of a split, and then is killed."""

    def kill(read):
        if read == 7 * blocks:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, folder, progress=kill, **settings)


def test_text_that_changed_behind_the_first_block_is_not_mixed_in(
    pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 10)
    _killed(MemoryCorpus({"train": pairs}), tokenizer, tmp_path / "broken", 50)
    changed = MemoryCorpus({"train": [*pairs[:300], ("the man", "der Mann"), *pairs[301:]]})
    write_shards(changed, "train", tokenizer, tmp_path / "broken")
    write_shards(changed, "train", tokenizer, tmp_path / "unbroken")
    assert _bytes(tmp_path / "broken" / "train") == _bytes(tmp_path / "unbroken" / "train")


def test_text_that_changed_after_the_written_blocks_is_read_anew(
    pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 10)
    _killed(MemoryCorpus({"train": pairs}), tokenizer, tmp_path / "broken", 50)
    changed = MemoryCorpus({"train": [*pairs[:550], ("the man", "der Mann"), *pairs[551:]]})
    seen = []
    write_shards(changed, "train", tokenizer, tmp_path / "broken", progress=seen.append)
    write_shards(changed, "train", tokenizer, tmp_path / "unbroken")
    assert seen[0] == 51 * 7
    assert _bytes(tmp_path / "broken" / "train") == _bytes(tmp_path / "unbroken" / "train")


def test_another_vocabulary_or_filter_begins_anew(corpus, lines, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 1)
    other = train_tokenizer("bpe", lines, 331)  # encodes almost all texts alike
    for settings in ({"tokenizer": other}, {"filters": Filters(max_length=10**6)}):
        _killed(corpus, tokenizer, tmp_path, 3)
        seen = []
        arguments = {"tokenizer": tokenizer} | settings
        write_shards(corpus, "train", directory=tmp_path, progress=seen.append, **arguments)
        assert seen[0] == 7


@pytest.mark.parametrize("name", ["00000-of-00001.target", "journal.json"])
@pytest.mark.parametrize("damage", ["empty", "flipped"])
def test_a_damaged_unfinished_file_is_begun_anew(
    corpus, pairs, tokenizer, tmp_path, monkeypatch, name, damage
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 1)

    def kill(read):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, str(tmp_path), shards=1, progress=kill)
    path = tmp_path / ".train.unfinished" / name
    content = bytearray(path.read_bytes())
    content[50 if name.endswith("json") else 4] ^= 1
    path.write_bytes(b"" if damage == "empty" else content)
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=1)
    assert read_pairs(tmp_path) == _encoded(tokenizer, pairs)


BAD, EMPTY, LONG, UNEVEN = (reason + 1 for reason in range(4))


def _reasons(filters, *pairs):
    """Reject reasons of pairs of words, one token a word and one for the end."""
    sources, targets = (tf.constant(side) for side in zip(*pairs, strict=True))
    ids = [
        tf.concat([tf.ones_like(words, tf.int32), tf.ones([len(pairs), 1], tf.int32)], axis=1)
        for words in (tf.strings.split(sources), tf.strings.split(targets))
    ]
    return filters.reject_reasons(sources, targets, *ids).numpy().tolist()


def test_bad_and_empty_sides_always_fall():
    pairs = [("a", "b"), (b"\xff", "b"), ("a", b"\xed\xa0\x80"), ("", "b"), ("a", " \t\u00a0"),
             (b"\xc3", ""), ("漢", "😀")]  # fmt: skip
    assert _reasons(Filters(), *pairs) == [0, BAD, BAD, EMPTY, EMPTY, BAD, 0]


def test_limits_count_the_end_in_the_length_but_not_in_the_ratio():
    pairs = [("a b", "c"), ("a b c", "d"), ("a", "b c d e"), ("a b c", "d e f")]
    assert _reasons(Filters(max_length=4), *pairs) == [0, 0, LONG, 0]
    assert _reasons(Filters(max_ratio=2.0), *pairs) == [0, UNEVEN, UNEVEN, 0]
    assert _reasons(Filters(max_length=4, max_ratio=2.0), *pairs) == [0, UNEVEN, LONG, 0]
    assert _reasons(Filters(), *pairs) == [0, 0, 0, 0]


def test_the_report_is_one_line():
    report = FilterReport([29000, 0, 1234, 0, 0])
    assert str(report) == (
        "29,000 pairs kept; dropped: 0 bad UTF-8, 1,234 empty side, 0 over-length, 0 length ratio"
    )
    assert report.dropped == dict.fromkeys(REASONS, 0) | {"empty side": 1234}
