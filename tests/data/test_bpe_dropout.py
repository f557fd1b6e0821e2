"""Cuts under BPE-dropout spell the text, come back by their seed, and come at the right rates."""

import itertools
import pathlib
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from t2t_keras.data import (
    BpeDropout,
    MemoryCorpus,
    RepeatedCorpus,
    shard_writing,
    train_tokenizer,
    write_shards,
)
from t2t_keras.errors import InputError
from tests.data.reading import read_pairs

ROOT = pathlib.Path(__file__).parents[2]
STRANGE = [
    "",
    "  two  spaces ",
    "Cafe\u0301 süß \u00bd \U0001f600",
    b"bad \xff byte",
    "a\tb",
    "▁ x",
]


def cut(tokenizer, texts):
    return tokenizer.encode(texts).to_list()


def test_without_dropout_the_pieces_are_those_of_the_tokenizer(lines, tokenizer):
    texts = lines[:200] + STRANGE
    assert cut(BpeDropout(tokenizer, 0.0), texts) == cut(tokenizer, texts)


def test_without_dropout_real_text_is_cut_as_the_tokenizer_cuts_it(multi30k):
    pairs = list(multi30k.examples("val").as_numpy_iterator())
    texts = [pair[side] for pair in pairs for side in ("source", "target")]
    tokenizer = train_tokenizer("bpe", texts, 2_000)
    assert cut(BpeDropout(tokenizer, 0.0), texts) == cut(tokenizer, texts)


def test_samples_spell_the_text_and_differ(lines):
    rate, tokenizer = 0.2, train_tokenizer("bpe", lines, 310)
    texts = lines[:100] + STRANGE
    first, again, other = (BpeDropout(tokenizer, rate, seed).encode(texts) for seed in (1, 1, 2))
    assert first.to_list() == again.to_list() != other.to_list()
    usual = tokenizer.encode(texts)
    assert first.values.shape[0] > usual.values.shape[0]
    np.testing.assert_array_equal(tokenizer.decode(first), tokenizer.decode(usual))


@pytest.mark.slow
def test_the_same_seed_cuts_alike_in_another_process(lines, tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    code = (
        "import sys\n"
        "from t2t_keras.data import BpeDropout, load_tokenizer\n"
        "ids = BpeDropout(load_tokenizer(sys.argv[1]), 0.3, seed=7).encode(sys.argv[2:])\n"
        "print(ids.to_list())"
    )
    command = [sys.executable, "-c", code, str(tmp_path), *lines[:20]]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert found.splitlines()[-1] == str(cut(BpeDropout(tokenizer, 0.3, seed=7), lines[:20]))


def chances(parts, ids, rate):
    """How likely each cut of a word is, by the rule of the paper's algorithm 1."""
    merges = sorted(
        (ids[a + b], place)
        for place, (a, b) in enumerate(itertools.pairwise(parts))
        if a + b in ids
    )
    found = Counter({parts: rate ** len(merges)})  # all left out
    for better, (_, place) in enumerate(merges):
        merged = (*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :])
        for end, chance in chances(merged, ids, rate).items():
            found[end] += rate**better * (1 - rate) * chance
    return found


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_every_cut_of_a_word_comes_as_often_as_the_paper_has_it(tokenizer, rate):
    pieces = [piece.decode() for piece in tokenizer.pieces(range(tokenizer.vocab_size)).numpy()]
    word = max((piece for piece in pieces if piece.startswith("▁")), key=len)
    expected = chances(tuple(word), {piece: id_ for id_, piece in enumerate(pieces)}, rate)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 3 or rate == 1
    count = 5_000
    found = Counter(
        tuple(pieces[id_] for id_ in row)
        for seed in range(count // 250)  # a more frequent word is not cut anew each time
        for row in cut(BpeDropout(tokenizer, rate, seed), [word[1:]] * 250)
    )
    for parts, chance in expected.items():
        tolerance = 4.5 * np.sqrt(chance * (1 - chance) / count)
        assert found[parts] / count == pytest.approx(chance, abs=tolerance), parts


def test_copies_are_the_split_several_times_over(corpus, pairs):
    copies = RepeatedCorpus(MemoryCorpus({"train": pairs, "val": pairs[:3]}), "train", 3)
    found = [
        (pair["source"].decode(), pair["target"].decode())
        for pair in copies.examples("train").as_numpy_iterator()
    ]
    assert len(copies.examples("train")) == len(found) == 3 * len(pairs)
    assert Counter(found) == Counter(pairs * 3)
    assert len(list(copies.examples("val"))) == 3


def test_every_copy_is_cut_anew_even_where_blocks_are_copies(
    pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 100)
    copies = RepeatedCorpus(MemoryCorpus({"train": pairs[:100]}), "train", 4)
    write_shards(copies, "train", BpeDropout(tokenizer, 0.5), str(tmp_path))
    ids = [source for source, _ in read_pairs(tmp_path)]
    texts = [text.decode() for text in tokenizer.decode(pad(ids)).numpy()]
    assert Counter(texts) == Counter(source for source, _ in pairs[:100] * 4)
    assert len({tuple(row) for row in ids}) > 350


def test_a_preparation_that_was_killed_ends_with_the_bytes_of_an_unbroken_one(
    corpus, pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 70)
    monkeypatch.setattr(shard_writing, "_BLOCKS_PER_JOURNAL_ENTRY", 2)
    arguments = RepeatedCorpus(corpus, "train", 2), "train", BpeDropout(tokenizer, 0.3, seed=5)
    write_shards(*arguments, str(tmp_path / "unbroken"), shards=3)

    def kill(read):
        if read > len(pairs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(*arguments, str(tmp_path / "broken"), shards=3, progress=kill)
    seen = []
    write_shards(*arguments, str(tmp_path / "broken"), shards=3, progress=seen.append)
    assert seen[0] > len(pairs), "it began anew"
    unbroken, broken = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "train").iterdir()}
        for name in ("unbroken", "broken")
    )
    assert unbroken == broken


def test_a_tokenizer_without_merges_and_a_rate_above_1_are_refused(lines, tokenizer):
    with pytest.raises(InputError, match="a wordpiece vocabulary has no merges"):
        BpeDropout(train_tokenizer("wordpiece", lines, 330), 0.1)
    with pytest.raises(InputError, match=r"BPE-dropout is 1\.5: give 0 to 1"):
        BpeDropout(tokenizer, 1.5)


def pad(rows):
    padded = np.zeros([len(rows), max(map(len, rows))], np.int32)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded
