import dataclasses

import pytest

from t2t_keras.errors import InputError
from t2t_keras.evaluation.bleu import corpus_scores

# sacreBLEU's own case.
HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = [
    ["The dog bit the man.", "It was not unexpected.", "The man bit him first."],
    ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."],
]


@pytest.mark.parametrize(
    ("tokenize", "bleu"), [("13a", 48.530827), ("none", 49.1919566), ("intl", 43.91623493)]
)
def test_bleu_of_the_known_case_under_each_tokenization(tokenize, bleu):
    scores = corpus_scores(HYPOTHESES, REFERENCES, tokenize=tokenize)
    assert scores.bleu == pytest.approx(bleu, abs=1e-6)
    assert f"tok:{tokenize}" in scores.bleu_signature
    assert "nrefs:2" in scores.bleu_signature
    assert scores.sentences == 3


def test_chrf_of_one_sentence_by_hand():
    # "ab" against "ac": 1 of 2 letters agrees and 0 of 1 pairs; orders without n-grams are left
    # out. Precision and recall are (1/2 + 0) / 2, and so is their F-score.
    assert corpus_scores(["ab"], ["ac"]).chrf == pytest.approx(25.0)


def test_lowercase_ignores_case_in_both():
    lower = corpus_scores([h.lower() for h in HYPOTHESES], [r.upper() for r in HYPOTHESES])
    same = corpus_scores(
        [h.lower() for h in HYPOTHESES], [r.upper() for r in HYPOTHESES], lowercase=True
    )
    assert lower.bleu < same.bleu
    assert (same.bleu, same.chrf) == (pytest.approx(100), pytest.approx(100))
    assert "case:lc" in same.bleu_signature
    assert "case:lc" in same.chrf_signature


def test_an_empty_hypothesis_counts_as_a_line():
    scores = corpus_scores(["", "", ""], REFERENCES)
    assert dataclasses.astuple(scores)[:2] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("hypotheses", "references", "options", "message"),
    [
        (["a", "b"], ["a"], {}, "2 hypotheses but 1 references"),
        (["a"], [["a"], ["a", "b"]], {}, "1 hypotheses but 2 references"),
        (["a"], [], {}, "1 hypotheses but 0 references"),
        ([], [], {}, "no hypotheses"),
        (["a"], ["a"], {"tokenize": "14a"}, "tokenize is '14a': give one of .*13a"),
    ],
)
def test_what_cannot_be_scored_is_refused(hypotheses, references, options, message):
    with pytest.raises(InputError, match=message):
        corpus_scores(hypotheses, references, **options)
