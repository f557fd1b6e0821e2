"""The built-in corpus a tenth as large."""

import functools

from pipelines.datasets.english_german import splits


def shrink(patch):
    """Makes all its splits a tenth as large, as long as a MonkeyPatch holds."""
    for split, size in splits.SPLIT_SIZES.items():
        patch.setitem(splits.SPLIT_SIZES, split, size // 10)
    patch.setattr(splits, "_corpus", functools.cache(splits._corpus.__wrapped__))
