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


@pytest.mark.parametrize("values", [([0.5], [1]), ([float("nan")], [1]), ([], [])])
def test_what_is_no_log_probability_is_refused(values):
    with pytest.raises(InputError):
        perplexities(["a"], *values)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 23])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_windows_score_each_token_once_with_enough_context(count, stride):
    scored = []
    for window in sliding_windows(count, 8, stride):
        assert window.end - window.start <= 8
        assert window.start == 0 or window.scored - window.start == 8 - stride
        scored.extend(range(window.scored, window.end))
    assert scored == list(range(count))


@pytest.mark.parametrize("stride", [0, 9])
def test_a_stride_outside_the_window_is_refused(stride):
    with pytest.raises(InputError, match="give 1 to 8"):
        list(sliding_windows(20, 8, stride))
