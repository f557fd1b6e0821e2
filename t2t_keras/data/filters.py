"""Which sentence pairs are left out of training, and how many for which reason."""

import dataclasses

import tensorflow as tf

REASONS = ("bad UTF-8", "empty side", "over-length", "length ratio")
"""Why a pair is dropped; a pair with several faults counts under the first of them."""


@dataclasses.dataclass(frozen=True)
class Filters:
    """The limits that a sentence pair must keep.

    Pairs that are not valid UTF-8 or have nothing but white space on a side are always dropped.

    Args:
        max_length: most tokens of a side, the end included; None for no limit.
        max_ratio: how many times longer than the other a side may be, in tokens without the
            end; None for no limit.
    """

    max_length: int | None = None
    max_ratio: float | None = None

    def faults(self, source_texts, target_texts, source_ids, target_ids):
        """Finds each pair's first fault.

        Args:
            source_texts: string `[batch]`.
            target_texts: string `[batch]`.
            source_ids: RaggedTensor int32 `[batch, (length)]`, ending with the end.
            target_ids: likewise.

        Returns:
            int32 `[batch]`: 0 for a good pair, else one more than the index in `REASONS`.
        """
        lengths = tf.stack([source_ids.row_lengths(), target_ids.row_lengths()])  # [2, batch]
        longest, shortest = tf.reduce_max(lengths, axis=0), tf.reduce_min(lengths, axis=0)
        good = tf.zeros_like(longest, tf.bool)
        over_length = good if self.max_length is None else longest > self.max_length
        uneven = (
            good
            if self.max_ratio is None
            else tf.cast(longest - 1, tf.float32)
            > self.max_ratio * tf.cast(shortest - 1, tf.float32)
        )
        bad = _is_bad(source_texts) | _is_bad(target_texts)
        # No piece but the end is left of a side that is all spaces.
        empty = _is_blank(source_texts) | _is_blank(target_texts) | (shortest <= 1)
        faults = tf.stack([good, bad, empty, over_length, uneven])  # [1 + reasons, batch]
        return tf.argmax(tf.cast(faults, tf.int32), axis=0, output_type=tf.int32)


@dataclasses.dataclass(frozen=True)
class FilterReport:
    """How many pairs were kept, and how many were dropped for each reason.

    Args:
        kept: number of pairs.
        dropped: number of pairs by reason, every one of `REASONS`.
    """

    kept: int
    dropped: dict

    def as_dict(self):
        """The counts as JSON can hold them."""
        return {"kept": self.kept, "dropped": dict(self.dropped)}

    def __str__(self):
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return f"{self.kept:,} pairs kept; dropped: {dropped}"


def _is_bad(texts):
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore") != texts


def _is_blank(texts):
    return tf.strings.regex_full_match(texts, r"[\s\p{Z}]*")
