"""The built-in corpus a tenth as large."""

from t2t_keras.data.english_german import splits


def shrink(patch):
    """Makes all its splits a tenth as large, as long as a MonkeyPatch holds."""
    for split, size in splits.SPLIT_SIZES.items():
        patch.setitem(splits.SPLIT_SIZES, split, size // 10)
    patch.setattr(splits, "_corpus", splits._corpus.__wrapped__)
