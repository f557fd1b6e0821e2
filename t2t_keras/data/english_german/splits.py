"""The corpus: which sentence pairs there are, and in which split each one stands."""

import functools
import zlib

from t2t_keras.data.english_german.dice import Dice
from t2t_keras.data.english_german.sampling import Sampler

SPLIT_SIZES = {"train": 240_000, "validation": 1_500, "test": 2_000, "test_long": 1_000}
"""The number of pairs of each split."""
LONGEST = 22
"""Train, validation and test have no sentence of more words, test_long has only such."""
_MOST = 40
_SEED = 2017


def sentence_pairs(split):
    """Gives the pairs of a split, the same ones in the same order everywhere.

    Args:
        split: train, validation, test or test_long.

    Returns:
        An iterator of (English, German) strings. No sentence of either language is in two
        splits, and no English sentence has two translations.

    Raises:
        KeyError: if there is no such split.

    >>> from t2t_keras.data.english_german import sentence_pairs
    >>> english, german = next(sentence_pairs("test"))
    """
    return iter(_corpus()[split])


@functools.cache
def _corpus():
    splits = {name: [] for name in SPLIT_SIZES}
    seen = set()
    sampler = Sampler(Dice(_SEED))
    while any(len(splits[name]) < SPLIT_SIZES[name] for name in ("train", "validation", "test")):
        english, german = sampler.pair()
        if english not in seen and max(_words(english), _words(german)) <= LONGEST:
            seen.add(english)
            _add(splits, _split_of(german), english, german)
    sampler = Sampler(Dice(_SEED + 1), depth=3, nesting=0.5)
    while len(splits["test_long"]) < SPLIT_SIZES["test_long"]:
        english, german = sampler.pair()
        lengths = _words(english), _words(german)
        if english not in seen and min(lengths) > LONGEST and max(lengths) <= _MOST:
            seen.add(english)
            _add(splits, "test_long", english, german)
    return splits


def _add(splits, name, english, german):
    if len(splits[name]) < SPLIT_SIZES[name]:
        splits[name].append((english, german))


def _split_of(german):
    """Puts all English sentences of one German sentence into the same split."""
    share = zlib.crc32(german.encode()) % 1000
    return "validation" if share < 14 else "test" if share < 32 else "train"


def _words(sentence):
    return sentence.count(" ") + 1
