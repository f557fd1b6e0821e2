"""The corpus: its sentence pairs and the split of each."""

import functools
import zlib

from pipelines.datasets.english_german.sampler import Sampler

SPLIT_SIZES = {"train": 160_000, "validation": 1_000, "test": 2_000, "test_long": 1_000}
"""The number of pairs of each split."""
LONGEST = 12
"""Sentences of train, validation and test have at most this many words, of test_long more."""
_SEED = 2017


def sentence_pairs(split):
    """Returns an iterator of the (English, German) pairs of a split, equal everywhere.

    The splits are "train", "validation", "test" and "test_long".
    No sentence of either language is in two splits, and no English sentence has two translations.
    """
    return iter(_corpus()[split])


@functools.cache
def _corpus():
    splits = {name: {} for name in SPLIT_SIZES}  # {split: {English: German}}
    for sampler, names in (
        (Sampler(_SEED), ("train", "validation", "test")),
        (Sampler(_SEED + 1, depth=3, relative_rate=0.4), ("test_long",)),
    ):
        while any(len(splits[name]) < SPLIT_SIZES[name] for name in names):
            english, german = sampler.pair()
            name = _split_of(english, german)
            if name in names and len(splits[name]) < SPLIT_SIZES[name]:
                splits[name][english] = german
    return {name: list(pairs.items()) for name, pairs in splits.items()}


def _split_of(english, german):
    """Returns the split of a pair; all English sentences of a German one are in the same split."""
    lengths = [sentence.count(" ") + 1 for sentence in (english, german)]
    if max(lengths) > LONGEST:
        return "test_long" if min(lengths) > LONGEST and max(lengths) <= 2 * LONGEST else None
    number = zlib.crc32(german.encode()) % 1000
    return "validation" if number < 9 else "test" if number < 28 else "train"
