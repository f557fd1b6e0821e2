"""What is written is what is read, and what is missing is counted."""

import json
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import (
    BpeDropout,
    FilterReport,
    Filters,
    MemoryCorpus,
    RepeatedCorpus,
    shard_writing,
    train_tokenizer,
    write_shards,
)
from t2t_keras.data.placeholders import MarkedCorpus, MarkedTokenizer
from t2t_keras.data.shard_writing import REASONS
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError
from tests.data.reading import read_pairs

ONE = MemoryCorpus({"train": [("the man", "der Mann")]})


def encoded(tokenizer, pairs):
    sides = [tokenizer.encode(list(side)).to_list() for side in zip(*pairs, strict=True)]
    return [tuple((*ids, 1) for ids in pair) for pair in zip(*sides, strict=True)]


@pytest.mark.parametrize("shards", [1, 7])
def test_shards_hold_every_pair_once_with_its_end(pairs, tokenizer, tmp_path, shards):
    corpus, seen = MemoryCorpus({"train": pairs}), []
    report = write_shards(
        corpus, "train", tokenizer, str(tmp_path), shards=shards, progress=seen.append
    )
    read, expected = read_pairs(tmp_path), encoded(tokenizer, pairs)
    assert Counter(read) == Counter(expected)
    assert read == expected or shards > 1
    assert report.kept == len(pairs) == seen[-1]
    sizes = [len(open_shards(str(tmp_path), "train").read_lengths(n)) for n in range(shards)]
    assert max(sizes) - min(sizes) <= 1
    content = json.loads((tmp_path / "train" / "report.json").read_text())
    lengths = np.array([[len(source), len(target)] for source, target in read])
    assert [content["source_tokens"], content["target_tokens"]] == lengths.sum(axis=0).tolist()
    assert [content["longest_source"], content["longest_target"]] == lengths.max(axis=0).tolist()
    assert content["kept"] == len(lengths)


def test_a_folder_with_files_of_the_user_is_never_replaced(tokenizer, tmp_path):
    corpus = MemoryCorpus({"train": [("the man", "der Mann")], "dev": [("the man", "der Mann")]})
    for shards in (3, None):  # the second takes the place of the first
        write_shards(corpus, "train", tokenizer, tmp_path, shards=shards)
    assert len(open_shards(tmp_path, "train").paths) == 1
    for name in ("train/notes.txt", "dev"):
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=r"holds other files than token shards|dev is a file"):
            write_shards(corpus, name.partition("/")[0], tokenizer, tmp_path)
        assert (tmp_path / name).is_file()


# Damage -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_shards(pairs, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write_shards(MemoryCorpus({"train": pairs}), "train", tokenizer, folder, shards=2)
    return {path.name: path.read_bytes() for path in (folder / "train").iterdir()}


def damages(files, other):
    """Yields (changed files, message) of every kind of damage."""
    rng = np.random.default_rng(0)
    for name in sorted(set(files) - {"report.json"}):
        for lost in (1, 4, 8):
            yield {name: files[name][:-lost]}, rf"{name[:5]}.* bytes.*prepare it again"
        for place in rng.integers(len(files[name]), size=4):
            content = bytearray(files[name])
            content[place] ^= 1 << rng.integers(8)
            yield {name: content}, "prepare it again"
        yield {name: None}, f"{name} is missing"
    yield {"report.json": b"{"}, "report.json is damaged"
    second = {name: content for name, content in other.items() if name.startswith("00001")}
    yield second, r"hold \[450, .* instead of \[600, .*prepare it again"


def test_a_damaged_split_is_told_with_the_fix(two_shards, pairs, tokenizer, tmp_path):
    write_shards(MemoryCorpus({"train": pairs[:300]}), "train", tokenizer, tmp_path, shards=2)
    folder = tmp_path / "train"
    other = {path.name: path.read_bytes() for path in folder.iterdir()}
    for changed, message in damages(two_shards, other):
        for name, content in (two_shards | changed).items():
            (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            open_shards(tmp_path, "train")
    for name, content in two_shards.items():
        (folder / name).write_bytes(content)
    shards = open_shards(tmp_path, "train")
    (folder / "00000-of-00002.source").write_bytes(two_shards["00000-of-00002.source"][:-4])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"has changed since.*prepare it"):
        shards.read(0)


def test_a_failure_leaves_the_old_shards(tokenizer, tmp_path):
    write_shards(ONE, "train", tokenizer, str(tmp_path))
    empty = MemoryCorpus({"train": [("", "")]})
    with pytest.raises(InputError, match=r"split 'train'.*no pair is left.*1 empty side"):
        write_shards(empty, "train", tokenizer, str(tmp_path))
    assert len(read_pairs(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
    with pytest.raises(InputError, match="no tokenized split 'test'"):
        open_shards(str(tmp_path), "test")


# Resuming -----------------------------------------------------------------------------------------


@pytest.fixture
def corpus(pairs, monkeypatch):
    """15 blocks of 7 pairs."""
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 2)
    return MemoryCorpus({"train": pairs[:105]})


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "train").iterdir())}


def kill_after(blocks, corpus, tokenizer, folder, **settings):
    """Writes some blocks of 7 pairs of a split, and then is killed."""

    def kill(read):
        if read == 7 * blocks:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(corpus, "train", tokenizer, folder, progress=kill, **settings)
    assert [path.name for path in folder.iterdir()] == [".train.unfinished"]


def encoders(corpus, tokenizer):
    """Yields corpora and tokenizers, whose texts are encoded at random in two cases."""
    yield corpus, tokenizer
    yield RepeatedCorpus(corpus, "train", 2), BpeDropout(tokenizer, 0.3, seed=5)
    marked = MarkedTokenizer(tokenizer, range(tokenizer.vocab_size, tokenizer.vocab_size + 4))
    yield MarkedCorpus(corpus, "train", 4, 0.5, seed=1), marked


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(corpus, tokenizer, tmp_path):
    for number, arguments in enumerate(encoders(corpus, tokenizer)):
        unbroken, broken, seen = tmp_path / f"unbroken{number}", tmp_path / f"broken{number}", []
        write_shards(arguments[0], "train", arguments[1], unbroken, shards=3)
        kill_after(10, *arguments, broken, shards=3)
        write_shards(arguments[0], "train", arguments[1], broken, shards=3, progress=seen.append)
        assert seen[0] == 11 * 7, "it began anew"
        assert contents(broken) == contents(unbroken)
        files = contents(broken).items()
        sizes = [len(content) for name, content in files if name.endswith(".lengths")]
        assert max(sizes) - min(sizes) <= 8, "a shard may have one pair more, of 8 bytes"
        assert [path.name for path in broken.iterdir()] == ["train"]


@pytest.mark.parametrize(("changed", "begins_at"), [
    (30, 7), (90, 11 * 7),  # a text that is written and one that is not yet
    ("tokenizer", 7), ("filters", 7), ("corpus", 1),
])  # fmt: skip
def test_what_changed_is_prepared_anew(
    corpus, pairs, lines, tokenizer, tmp_path, changed, begins_at
):
    arguments = {"corpus": corpus, "split": "train", "tokenizer": tokenizer}
    if changed == "tokenizer":
        arguments["tokenizer"] = train_tokenizer("bpe", lines, 331)  # encodes almost all alike
    elif changed == "filters":
        arguments["filters"] = Filters(max_length=10**6)
    elif changed == "corpus":
        arguments["corpus"] = ONE
    else:
        texts = [*pairs[:changed], ("the man", "Mann"), *pairs[changed + 1 : 105]]
        arguments["corpus"] = MemoryCorpus({"train": texts})
    kill_after(10, corpus, tokenizer, tmp_path / "broken")
    seen = []
    write_shards(**arguments, directory=tmp_path / "broken", progress=seen.append)
    write_shards(**arguments, directory=tmp_path / "unbroken")
    assert seen[0] == begins_at
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


@pytest.mark.parametrize("name", ["00000-of-00001.target", "journal.json"])
@pytest.mark.parametrize("damage", ["empty", "flipped"])
def test_a_damaged_unfinished_file_is_begun_anew(corpus, pairs, tokenizer, tmp_path, name, damage):
    kill_after(4, corpus, tokenizer, tmp_path, shards=1)
    path = tmp_path / ".train.unfinished" / name
    content = bytearray(path.read_bytes())
    content[50 if name.endswith("json") else 4] ^= 1
    path.write_bytes(b"" if damage == "empty" else content)
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=1)
    assert read_pairs(tmp_path) == encoded(tokenizer, pairs[:105])


def test_a_journal_that_lacks_a_file_is_not_used(corpus, pairs, tokenizer, tmp_path):
    kill_after(4, corpus, tokenizer, tmp_path, shards=1)
    path = tmp_path / ".train.unfinished" / "journal.json"
    journal = json.loads(path.read_text())
    del journal["sizes"]["00000-of-00001.target"]
    path.write_text(json.dumps(journal))
    write_shards(corpus, "train", tokenizer, str(tmp_path), shards=1)
    assert read_pairs(tmp_path) == encoded(tokenizer, pairs[:105])


# Filters ------------------------------------------------------------------------------------------

BAD, EMPTY, LONG, UNEVEN = (reason + 1 for reason in range(4))


def reasons(filters, *pairs):
    """Reject reasons of pairs of words, one token a word and one for the end."""
    sources, targets = (tf.constant(side) for side in zip(*pairs, strict=True))
    ids = [
        tf.concat([tf.ones_like(words, tf.int32), tf.ones([len(pairs), 1], tf.int32)], axis=1)
        for words in (tf.strings.split(sources), tf.strings.split(targets))
    ]
    return filters.reject_reasons(sources, targets, *ids).numpy().tolist()


def test_bad_and_empty_sides_always_fall_and_limits_count_the_end_in_the_length_alone():
    pairs = [("a", "b"), (b"\xff", "b"), ("a", b"\xed\xa0\x80"), ("", "b"), ("a", " \t\u00a0"),
             (b"\xc3", ""), ("漢", "😀")]  # fmt: skip
    assert reasons(Filters(), *pairs) == [0, BAD, BAD, EMPTY, EMPTY, BAD, 0]
    pairs = [("a b", "c"), ("a b c", "d"), ("a", "b c d e"), ("a b c", "d e f")]
    assert reasons(Filters(max_length=4), *pairs) == [0, 0, LONG, 0]
    assert reasons(Filters(max_ratio=2.0), *pairs) == [0, UNEVEN, UNEVEN, 0]
    assert reasons(Filters(max_length=4, max_ratio=2.0), *pairs) == [0, UNEVEN, LONG, 0]


def test_dropped_pairs_are_counted_and_told_in_one_line(tokenizer, tmp_path):
    rows = [("the man", "der Mann"), (b"\xff", "Mann"), ("", "Mann"), ("man", "  "),
            ("the " * 60, "der " * 60), ("the", "der Mann " * 5)]  # fmt: skip
    filters = Filters(max_length=50, max_ratio=4.0)
    report = write_shards(MemoryCorpus({"train": rows}), "train", tokenizer, tmp_path, filters)
    assert report.kept == 1
    assert list(report.dropped.values()) == [1, 2, 1, 1]
    assert read_pairs(tmp_path) == encoded(tokenizer, rows[:1])
    report = FilterReport([29000, 0, 1234, 0, 0])
    assert str(report) == (
        "29,000 pairs kept; dropped: 0 bad UTF-8, 1,234 empty side, 0 over-length, 0 length ratio"
    )
    assert report.dropped == dict.fromkeys(REASONS, 0) | {"empty side": 1234}
