"""Perplexities equal their formulas."""

import math

import pytest

from t2t_keras.errors import InputError
from t2t_keras.evaluation.perplexity import perplexities


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
