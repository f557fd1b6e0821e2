"""Small corpora for the tests of this folder."""

import random

import pytest

from t2t_keras.data import MemoryCorpus, train_tokenizer

_ENGLISH = "the a old green small man woman dog house street sees buys finds and or red"
_GERMAN = "der ein alte grüne kleine Mann Frau Hund Haus Straße sieht kauft findet und süß"


def _sentence(words, rng):
    return " ".join(rng.choices(words.split(), k=rng.randint(1, 12))) + "."


@pytest.fixture(scope="session")
def pairs():
    rng = random.Random(0)
    return [(_sentence(_ENGLISH, rng), _sentence(_GERMAN, rng)) for _ in range(600)]


@pytest.fixture(scope="session")
def lines(pairs):
    return [line for pair in pairs for line in pair]


@pytest.fixture(scope="session")
def tokenizer(lines):
    return train_tokenizer("bpe", lines, 330)


@pytest.fixture(scope="session")
def corpus(pairs):
    return MemoryCorpus({"train": pairs})
