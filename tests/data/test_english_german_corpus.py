"""The corpus against what it promises."""

import collections
import itertools
import re
import zlib

import pytest

from t2t_keras.data.english_german import SPLIT_SIZES, sentence_pairs
from t2t_keras.data.english_german.dice import Dice
from t2t_keras.data.english_german.lexicon import ADJECTIVES, CITIES, NAMES, NOUNS
from t2t_keras.data.english_german.phrases import number_words
from t2t_keras.data.english_german.sampling import Sampler
from t2t_keras.data.english_german.verb_lexicon import VERBS

# CRC-32 of the first thousand pairs, one "English<tab>German" a line.
CHECKSUMS = {
    "train": 655571145,
    "validation": 2000443979,
    "test": 1167142711,
    "test_long": 2908011184,
}


whole_corpus = pytest.mark.slow  # half a minute; a checksum of the training split sees most changes


@pytest.fixture(scope="module")
def corpus():
    return {split: list(sentence_pairs(split)) for split in SPLIT_SIZES}


@whole_corpus
def test_splits_are_as_large_as_promised_and_disjoint_in_both_languages(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == SPLIT_SIZES
    assert SPLIT_SIZES["train"] >= 100_000
    for side in (0, 1):
        sides = [{pair[side] for pair in pairs} for pairs in corpus.values()]
        assert len(set.union(*sides)) == sum(map(len, sides))


@whole_corpus
def test_every_english_sentence_has_one_german(corpus):
    pairs = [pair for split in corpus.values() for pair in split]
    assert len({english for english, _ in pairs}) == len(set(pairs)) == len(pairs)


def test_the_grammar_is_a_function_beyond_the_corpus():
    sampler, translations = Sampler(Dice(99)), {}
    for _ in range(20_000):
        english, german = sampler.pair()
        assert translations.setdefault(english, german) == german


@whole_corpus
def test_the_long_split_is_longer_than_training(corpus):
    for side in (0, 1):
        longest = max(len(pair[side].split()) for pair in corpus["train"])
        assert min(len(pair[side].split()) for pair in corpus["test_long"]) > longest


@whole_corpus
def test_every_word_of_the_lexicon_is_frequent(corpus):
    sides = ["\n".join(pair[side] for pair in corpus["train"]).lower() for side in (0, 1)]
    english, german = sides
    counts = collections.Counter(re.findall(r"[a-z-]+", english))
    expected = [noun.english.split()[-1] for noun in NOUNS.values()]
    expected += list(ADJECTIVES) + [name.lower() for name in NAMES]
    expected += [city.lower() for city, _ in CITIES] + [number_words(n)[0] for n in range(2, 100)]
    assert {word: counts[word] for word in expected if counts[word] < 100} == {}
    for noun in NOUNS.values():
        assert german.count(noun.german.lower()) >= 100, noun
    for verb in VERBS.values():
        stem = re.sub(r"^(ab|an|auf|aus|ein|mit|zu|zurück)(?=\w{4})", "", verb.participle)
        assert max(german.count(verb.german_past), german.count(stem)) >= 100, verb


@pytest.mark.parametrize(
    "split", [s if s == "train" else pytest.param(s, marks=whole_corpus) for s in SPLIT_SIZES]
)
def test_the_pairs_are_the_same_everywhere(split):
    pairs = itertools.islice(sentence_pairs(split), 1000)
    lines = "\n".join(f"{english}\t{german}" for english, german in pairs)
    assert zlib.crc32(lines.encode()) == CHECKSUMS[split]


def test_two_generations_are_equal():
    first, second = Sampler(Dice(3), depth=2), Sampler(Dice(3), depth=2)
    assert [first.pair() for _ in range(500)] == [second.pair() for _ in range(500)]


@whole_corpus
def test_no_spacing_or_comma_goes_wrong(corpus):
    wrong = re.compile(r"  | [,.?]|,,|,[.?]|^ |[^.?]$|^[a-zäöü]|\b(in dem|zu der|von dem) \w+[.?]")
    for pairs in corpus.values():
        assert [pair for pair in pairs if wrong.search(pair[0]) or wrong.search(pair[1])] == []


def test_an_unknown_split_is_an_error():
    with pytest.raises(KeyError):
        sentence_pairs("dev")
