"""Placeholders: reserved tokens, their marks in a text, and training pairs with both."""

import collections
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import BpeDropout, MemoryCorpus, train_tokenizer
from t2t_keras.data.language_template import DirectionEncoder
from t2t_keras.data.placeholders import (
    MarkedCorpus,
    MarkedTokenizer,
    learn_counterparts,
    mark_of,
    mark_pair,
)
from t2t_keras.errors import InputError

MARKS = "".join(map(mark_of, range(1, 64)))
A, B, C, D = MARKS[:4]
TEXTS = [f"the {A} dog, {B}.", f"{B}", f"a{A}b{C}", "the old man", f" {A} {B} ", f"é{C}ß", ""]


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def reserving(request, lines):
    return train_tokenizer(
        request.param, lines, 330 if request.param != "unigram" else 303, placeholders=3
    )


def marked(tokenizer):
    return MarkedTokenizer(tokenizer, tokenizer.placeholder_ids)


def test_placeholders_count_in_the_vocabulary_and_are_at_most_63(lines):
    message = r"99996 .*\(without the tokens of 2 languages and 2 placeholders\)"
    with pytest.raises(InputError, match=message):
        train_tokenizer("bpe", lines, 100_000, languages=["de", "en"], placeholders=2)
    for count in (-1, 64, 2.5, True):
        with pytest.raises(InputError, match=f"placeholders is {count}: give a whole number from"):
            train_tokenizer("bpe", lines, 330, placeholders=count)


def test_marks_are_tokens_and_come_back(reserving):
    tokenizer = marked(reserving)
    ids = tokenizer.encode(TEXTS)
    first = reserving.placeholder_ids.start
    placeholders = [[i - first for i in row if i >= first] for row in ids.to_list()]
    assert placeholders == [[0, 1], [1], [0, 2], [], [0, 1], [2], []]
    stripped = [re.sub(" +", " ", text).strip() for text in TEXTS]
    assert [text.decode() for text in tokenizer.decode(ids).numpy()] == stripped
    plain = ["the old man", D, "<ph1>"]  # the fourth has no token
    assert tokenizer.encode(plain).to_list() == reserving.encode(plain).to_list()
    assert tokenizer.encode([]).to_list() == []
    found = tokenizer.encode_with_offsets(TEXTS)
    assert found.ids.to_list() == ids.to_list()
    for text, *row in zip(TEXTS, *(part.to_list() for part in found), strict=True):
        for token, start, end in zip(*row, strict=True):
            if token in reserving.placeholder_ids:
                assert text[start:end] == mark_of(token - reserving.placeholder_ids.start + 1)


def test_bytes_of_a_mark_are_none(reserving):
    """Tokens of bytes that a model puts together are not a placeholder."""
    spelled = [4 + byte for byte in A.encode()]
    tokenizer, first = marked(reserving), reserving.placeholder_ids.start
    rng = np.random.default_rng(0)
    rows = [[*spelled, first], [4 + 0xEE, first + 1, *spelled[1:]], [first, *spelled, *spelled]]
    rows += rng.choice([*spelled, 4 + 0xE2, 270, first], [40, 9]).tolist()
    for row in rows:
        [text] = tokenizer.decode(tf.constant([row], tf.int32)).numpy()
        wanted = [mark_of(i - first + 1) for i in row if i >= first]
        assert re.findall("[\ue000-\ue0ff]", text.decode()) == wanted


def test_bpe_dropout_never_makes_a_placeholder_and_keeps_those_of_marks():
    tokenizer = train_tokenizer("bpe", ["<ph <ph <ph1 1> 1> ph1> <ph1"] * 50, 274, placeholders=2)
    sampled = BpeDropout(tokenizer, 0.5)
    texts = [f"<ph1> 1> {B}<ph"] * 200
    assert np.all(sampled.encode(texts).flat_values.numpy() < 272)
    encoder = MarkedTokenizer(sampled, tokenizer.placeholder_ids)
    ids = encoder.encode(texts)
    assert np.sum(ids.flat_values.numpy() >= 272) == np.sum(ids.flat_values.numpy() == 273) == 200
    assert len({tuple(row) for row in ids.to_list()}) > 20
    assert len({e.fingerprint() for e in (encoder, marked(tokenizer), tokenizer, sampled)}) == 4
    directed = DirectionEncoder(encoder, 5)
    assert directed.encode(texts).to_list() == [[5, *row] for row in ids.to_list()]


# Training pairs -----------------------------------------------------------------------------------

NUMBERS = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def number_pairs(count, seed=0):
    """Pairs of digits in words, some with a name and a number."""
    rng = random.Random(seed)
    for _ in range(count):
        digits = [rng.randrange(10) for _ in range(rng.randint(2, 6))]
        source, target = ([words[d] for d in digits] for words in (WORDS, NUMBERS))
        if rng.random() < 0.3:
            for side in (source, target):
                side.insert(1, "Oslo" if len(digits) % 2 else "3.14")
        yield " ".join(source) + ".", " ".join(target) + "."


def found_pairs(pairs, fraction=0.5, seed=1, placeholders=5):
    corpus = MarkedCorpus(
        MemoryCorpus({"train": pairs, "val": pairs[:9]}), "train", placeholders, fraction, seed
    )
    return [
        [
            tuple(pair[side].decode("utf-8", "surrogateescape") for side in ("source", "target"))
            for pair in corpus.examples(split).as_numpy_iterator()
        ]
        for split in ("train", "val")
    ]


def words_at_marks(text, original):
    """The words of the original that marks replace or enclose, a list of (marks, word)."""
    tokens, others = (
        re.findall(rf"[{MARKS}]|\d+(?:\.\d+)*|[^\W\d]+(?:-[^\W\d]+)*|\S", x)
        for x in (text, original)
    )
    found, others = [], iter(others)
    while tokens:
        token, other = tokens.pop(0), next(others)
        if token in MARKS:
            is_enclosed = tokens[:1] == [other] and tokens[1:2] and tokens[1] in MARKS
            found.append((token + (tokens.pop(1) if is_enclosed else ""), other))
            token = tokens.pop(0) if is_enclosed else other
        assert token == other
    assert next(others, None) is None
    return found


def test_marked_pairs_have_the_same_marks_for_words_that_translate_each_other():
    pairs = list(number_pairs(2_000))
    train, validation = found_pairs(pairs)
    assert validation == pairs[:9]
    assert len(train) == len(pairs)
    changed = [(new, old) for new, old in zip(train, pairs, strict=True) if new != old]
    assert 0.4 < len(changed) / len(pairs) < 0.55  # some pairs have no word that stands once
    kinds = collections.Counter()
    for new, old in changed:
        source, target = (dict(words_at_marks(*texts)) for texts in zip(new, old, strict=True))
        assert source.keys() == target.keys() and "".join(source) == "".join(
            sorted("".join(source))
        )
        for marks, word in source.items():
            if word in WORDS:
                assert target[marks] == NUMBERS[WORDS.index(word)]
            else:
                assert target[marks] == word and word in ("Oslo", "3.14")
            kinds[len(marks), word in WORDS] += 1
            assert old[0].count(word) == old[1].count(target[marks]) == 1
    assert min(kinds.values()) > 30 and len(kinds) == 4
    every = collections.Counter(re.findall(f"[{MARKS}]", "".join(source for source, _ in train)))
    assert sorted(every) == list(MARKS[:5]) and min(every.values()) > 0.7 * max(every.values())


def test_what_is_drawn_depends_on_the_seed_and_marks_of_the_texts_are_no_placeholders():
    pairs = list(number_pairs(300))
    half = found_pairs(pairs)
    assert half == found_pairs(pairs) != found_pairs(pairs, seed=2)
    every = found_pairs(pairs, fraction=1.0)[0]
    assert all(one in (pair, all_) for one, pair, all_ in zip(half[0], pairs, every, strict=True))
    train, _ = found_pairs([(f"a {A}", f"b {B}"), (b"\xff 7 x", b"\xff 7 y")], fraction=1.0)
    assert train[0] == ("a \ufffd", "b \ufffd")
    assert all(re.fullmatch(f"\udcff [{MARKS} 7]+ .", text) for text in train[1])


def test_only_names_and_numbers_count_as_alike():
    def marked_words(source, target, placeholders=63, counterparts=()):
        found = set()
        for seed in range(50):
            texts = mark_pair(source, target, dict(counterparts), placeholders, random.Random(seed))
            for text, original in zip(texts, (source, target), strict=True):
                found |= {word for _, word in words_at_marks(text, original)}
            assert re.findall(f"[{MARKS}]", texts[0]) == sorted(re.findall(f"[{MARKS}]", texts[1]))
        return found

    assert marked_words("In Oslo in 1999", "In Oslo in 1999") == {"Oslo", "1999"}
    assert marked_words("He met Jo-Ann, Jo", "Jo-Ann traf er") == {"Jo-Ann"}
    assert marked_words("a 7 and 7", "7 und 7") == set()
    assert marked_words("the dog", "der Hund", counterparts=[("dog", "Hund")]) == {"dog", "Hund"}
    assert marked_words("有3只", "3 Stück") == {"3"}
    assert marked_words("", "") == set()
    # One placeholder encloses nothing.
    [text, _] = mark_pair("x 1 2 3", "y 1 2 3", {}, 1, random.Random(0))
    assert len(re.findall(A, text)) == 1 and len(text) == len("x 1 2 3")


def test_counterparts_are_those_of_the_highest_dice_coefficient():
    rng, pairs = random.Random(3), []
    for _ in range(300):
        words = rng.choices("abcdefgh", k=rng.randint(1, 5))
        other = [w.upper() if rng.random() < 0.8 else rng.choice("ABCDEFGH") for w in words]
        pairs.append((" ".join(words), " ".join(other)))
    pairs.append(("rare", "selten"))
    has = [
        np.array([[c in text.split() for c in s] for text in side])
        for side, s in zip(zip(*pairs, strict=True), ("abcdefgh", "ABCDEFGH"), strict=True)
    ]
    both = has[0].T.astype(int) @ has[1]
    dice = 2 * both / (has[0].sum(0)[:, np.newaxis] + has[1].sum(0)) * (both >= 5)
    best = (dice >= 0.5) & (dice == dice.max(1, keepdims=True)) & (dice == dice.max(0))
    expected = {"abcdefgh"[s]: "ABCDEFGH"[t] for s, t in np.argwhere(best)}
    assert learn_counterparts(pairs) == expected and len(expected) > 4
    assert learn_counterparts([]) == {}
