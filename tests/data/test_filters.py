"""Each fault is found, and a pair is counted under its first."""

import tensorflow as tf

from t2t_keras.data import FilterReport, Filters
from t2t_keras.data.filters import REASONS

BAD, EMPTY, LONG, UNEVEN = (reason + 1 for reason in range(4))


def _faults(filters, *pairs):
    """Faults of pairs of words, one token a word and one for the end."""
    sources, targets = (tf.constant(side) for side in zip(*pairs, strict=True))
    ids = [
        tf.concat([tf.ones_like(words, tf.int32), tf.ones([len(pairs), 1], tf.int32)], axis=1)
        for words in (tf.strings.split(sources), tf.strings.split(targets))
    ]
    return filters.faults(sources, targets, *ids).numpy().tolist()


def test_bad_and_empty_sides_always_fall():
    pairs = [("a", "b"), (b"\xff", "b"), ("a", b"\xed\xa0\x80"), ("", "b"), ("a", " \t\u00a0"),
             (b"\xc3", ""), ("漢", "😀")]  # fmt: skip
    assert _faults(Filters(), *pairs) == [0, BAD, BAD, EMPTY, EMPTY, BAD, 0]


def test_limits_count_the_end_in_the_length_but_not_in_the_ratio():
    pairs = [("a b", "c"), ("a b c", "d"), ("a", "b c d e"), ("a b c", "d e f")]
    assert _faults(Filters(max_length=4), *pairs) == [0, 0, LONG, 0]
    assert _faults(Filters(max_ratio=2.0), *pairs) == [0, UNEVEN, UNEVEN, 0]
    assert _faults(Filters(max_length=4, max_ratio=2.0), *pairs) == [0, UNEVEN, LONG, 0]
    assert _faults(Filters(), *pairs) == [0, 0, 0, 0]


def test_report_is_one_line_and_json():
    report = FilterReport(29000, dict.fromkeys(REASONS, 0) | {"empty side": 1234})
    assert str(report) == (
        "29,000 pairs kept; dropped: 0 bad UTF-8, 1,234 empty side, 0 over-length, 0 length ratio"
    )
    assert report.as_dict() == {"kept": 29000, "dropped": report.dropped}
