"""Sampled pieces spell the text, come back by their seed, and are cut at the rate asked for."""

from collections import Counter

import numpy as np
import pytest

from t2t_keras.data import (
    Copies,
    MemoryCorpus,
    SubwordSampler,
    learn_tokenizer,
    read_shards,
    shard_blocks,
    shard_writing,
    write_shards,
)
from t2t_keras.errors import InputError

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
    assert cut(SubwordSampler(tokenizer, 0.0), texts) == cut(tokenizer, texts)


def test_without_dropout_real_text_is_cut_as_the_tokenizer_cuts_it(multi30k):
    pairs = list(multi30k.examples("val").as_numpy_iterator())
    texts = [pair[side] for pair in pairs for side in ("source", "target")]
    tokenizer = learn_tokenizer("bpe", texts, 2_000)
    assert cut(SubwordSampler(tokenizer, 0.0), texts) == cut(tokenizer, texts)


@pytest.mark.parametrize(("kind", "rate"), [("bpe", 0.2), ("unigram", 0.3)])
def test_samples_spell_the_text_and_differ(lines, kind, rate):
    tokenizer = learn_tokenizer(kind, lines, 310)
    texts = lines[:100] + STRANGE
    first, again, other = (
        SubwordSampler(tokenizer, rate, seed).encode(texts) for seed in (1, 1, 2)
    )
    assert first.to_list() == again.to_list() != other.to_list()
    usual = tokenizer.encode(texts)
    assert first.values.shape[0] > usual.values.shape[0]
    np.testing.assert_array_equal(tokenizer.decode(first), tokenizer.decode(usual))


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_a_single_merge_is_left_out_at_the_rate(rate):
    count = 4_000
    tokenizer = learn_tokenizer("bpe", ["bc" * 9], 4 + 256 + 3 + 1)  # ids, bytes, ▁ b c, one merge
    assert len(cut(tokenizer, ["bc"])[0]) == 2
    lengths = SubwordSampler(tokenizer, rate).encode(["bc"] * count).row_lengths().numpy()
    tolerance = 4 * np.sqrt(rate * (1 - rate) / count)
    assert np.mean(lengths == 3) == pytest.approx(rate, abs=tolerance)


def test_copies_are_the_split_several_times_over(corpus, pairs):
    copies = Copies(MemoryCorpus({"train": pairs, "val": pairs[:3]}), "train", 3)
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
    monkeypatch.setattr(shard_blocks, "PAIRS_AT_A_TIME", 100)
    copies = Copies(MemoryCorpus({"train": pairs[:100]}), "train", 4)
    write_shards(copies, "train", SubwordSampler(tokenizer, 0.5), str(tmp_path))
    ids = [pair["source"] for pair in read_shards(str(tmp_path), "train").as_numpy_iterator()]
    texts = [text.decode() for text in tokenizer.decode(pad(ids)).numpy()]
    assert Counter(texts) == Counter(source for source, _ in pairs[:100] * 4)
    assert len({tuple(row) for row in ids}) > 350


def test_a_preparation_that_was_killed_ends_with_the_bytes_of_an_unbroken_one(
    corpus, pairs, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_blocks, "PAIRS_AT_A_TIME", 70)
    monkeypatch.setattr(shard_writing, "_BLOCKS_A_JOURNAL", 2)
    arguments = Copies(corpus, "train", 2), "train", SubwordSampler(tokenizer, 0.3, seed=5)
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


def test_what_cannot_be_sampled_is_refused(lines, tokenizer):
    with pytest.raises(InputError, match="a wordpiece vocabulary can't be cut at random"):
        SubwordSampler(learn_tokenizer("wordpiece", lines, 330), 0.1)
    with pytest.raises(InputError, match=r"sampling is 1\.5: give 0 to 1"):
        SubwordSampler(tokenizer, 1.5)


def pad(rows):
    padded = np.zeros([len(rows), max(map(len, rows))], np.int32)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded
