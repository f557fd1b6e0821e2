"""Perplexities equal their formulas; windows score each token once."""

import math

import pytest

from t2t_keras.errors import InputError
from t2t_keras.evaluation.perplexity import perplexities, sliding_windows


def test_measures_of_a_model_of_known_probabilities():
    # 8 tokens of probability 1/4: ln P = -8 ln 4; "ein Häuschen" has 13 bytes and 2 words.
    found = perplexities(["ein Häuschen", "ja"], [-5 * math.log(4), -3 * math.log(4)], [5, 3])
    assert found.perplexity == pytest.approx(4)
    assert found.words == 3 + 2 and found.word_perplexity == pytest.approx(4 ** (8 / 5))
    assert found.bytes == 14 + 3 and found.bits_per_byte == pytest.approx(16 / 17)
    assert (found.tokens, found.cross_entropy) == (8, pytest.approx(math.log(4)))


def test_a_hopeless_model_is_infinitely_perplexed():
    assert perplexities(["a"], [-2_000.0], [2]).perplexity == math.inf


@pytest.mark.parametrize(("texts", "values", "message"), [
    (["a"], ([0.5], [1]), r"log_probabilities\[0\] is 0.5"),
    (["a"], ([float("nan")], [1]), r"log_probabilities\[0\] is nan"),
    (["a"], ([], []), "no token"),
    ([], ([-1.0], [1]), "no token"),
    ("a text", ([-1.0], [1]), "texts is the string 'a text'"),
    (["a", "b"], ([-1.0, -2.0], [4]), r"shape \(2,\) and tokens \(1,\)"),
    (["a"], (-1.0, 4), r"shape \(\) and tokens \(\)"),
    (["a"], ([-1.0], [2.5]), r"tokens\[0\] is 2.5: give a whole number"),
    (["a", "b"], ([-1.0, -1.0], [2, -2]), r"tokens\[1\] is -2"),
])  # fmt: skip
def test_what_is_no_log_probability_of_texts_is_refused(texts, values, message):
    with pytest.raises(InputError, match=message):
        perplexities(texts, *values)


def test_texts_of_bytes_and_generators_are_measured():
    expected = perplexities(["ä b", "c"], [-3.0, -1.0], [4, 2])
    assert perplexities((text for text in ["ä b".encode(), b"c"]), [-3, -1], [4, 2]) == expected


@pytest.mark.parametrize("count", [1, 7, 8, 9, 23])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_windows_score_each_token_once_with_enough_context(count, stride):
    scored = []
    for window in sliding_windows(count, 8, stride):
        assert window.end - window.start <= 8
        assert window.start == 0 or window.scored - window.start == 8 - stride
        scored.extend(range(window.scored, window.end))
    assert scored == list(range(count))


@pytest.mark.parametrize(("sizes", "message"), [
    ((20, 8, 0), "give 1 to 8"),
    ((20, 8, 9), "give 1 to 8"),
    ((20, 8, 2.0), "stride is 2.0: give a whole number"),
    ((20, 8.5, 2), "length is 8.5: give a whole number"),
    ((-1, 8, 2), "count is -1: give a whole number"),
])  # fmt: skip
def test_windows_of_no_size_are_refused(sizes, message):
    with pytest.raises(InputError, match=message):
        list(sliding_windows(*sizes))
