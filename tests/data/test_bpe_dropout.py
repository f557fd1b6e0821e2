"""Cuts under BPE-dropout spell the text, come back by their seed, and come at the right rates."""

import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

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


def test_samples_spell_the_text_and_differ(lines):
    rate, tokenizer = 0.2, train_tokenizer("bpe", lines, 310)
    texts = lines[:100] + STRANGE
    first, again, other = (BpeDropout(tokenizer, rate, seed).encode(texts) for seed in (1, 1, 2))
    assert first.to_list() == again.to_list() != other.to_list()
    usual = tokenizer.encode(texts)
    assert first.values.shape[0] > usual.values.shape[0]
    np.testing.assert_array_equal(tokenizer.decode(first), tokenizer.decode(usual))


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


def test_copies_are_the_split_several_times_over_and_cut_anew(
    pairs, tokenizer, tmp_path, monkeypatch
):
    copies = RepeatedCorpus(MemoryCorpus({"train": pairs[:100], "val": pairs[:3]}), "train", 4)
    assert len(copies.examples("train")) == 400 and len(list(copies.examples("val"))) == 3
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 100)  # each block is a copy
    write_shards(copies, "train", BpeDropout(tokenizer, 0.5), str(tmp_path))
    ids = [source for source, _ in read_pairs(tmp_path)]
    texts = tokenizer.decode(tf.ragged.constant(ids, tf.int32)).numpy()
    assert Counter(text.decode() for text in texts) == Counter(s for s, _ in pairs[:100] * 4)
    assert len(set(ids)) > 350


def test_a_tokenizer_without_merges_and_a_rate_above_1_are_refused(lines, tokenizer):
    with pytest.raises(InputError, match="a wordpiece vocabulary has no merges"):
        BpeDropout(train_tokenizer("wordpiece", lines, 330), 0.1)
    with pytest.raises(InputError, match=r"BPE-dropout is 1\.5: give 0 to 1"):
        BpeDropout(tokenizer, 1.5)
