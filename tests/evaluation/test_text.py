"""Scores of texts, against sacreBLEU's known cases and the scores' own definitions."""

import unicodedata

import numpy as np
import pytest
import sacrebleu

from pipelines.configs import grammar_en_de
from pipelines.tasks import make_task
from t2t_keras.errors import InputError
from t2t_keras.evaluation.text import (
    bleu_by_length,
    bleu_tokenizer,
    compound_split_bleu,
    corpus_scores,
    further_scores,
    label_scores,
    paired_bootstrap,
    split_compounds,
)

# sacreBLEU's own case.
HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = [
    ["The dog bit the man.", "It was not unexpected.", "The man bit him first."],
    ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."],
]

WORDS = np.array(
    ["the", "a", "dog", "cat", "sees", "old", "big", "house", "and", "not", "is", "it"]
)


def corpus(errors, lines=60, seed=0):
    """References of random words, and a copy in which a fraction of the words is wrong."""
    rng = np.random.default_rng(seed)
    references = [WORDS[rng.integers(0, 12, rng.integers(6, 14))] for _ in range(lines)]
    rng = np.random.default_rng(seed + 1)
    wrong = [np.where(rng.random(len(r)) < errors, "wrong", r) for r in references]
    return [" ".join(r) for r in references], [" ".join(w) for w in wrong]


def bleu(hypotheses, references, tokenize="13a"):
    return sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenize).score


@pytest.mark.parametrize(
    ("tokenize", "bleu"), [("13a", 48.530827), ("none", 49.1919566), ("intl", 43.91623493)]
)
def test_bleu_of_the_known_case_under_each_tokenization(tokenize, bleu):
    scores = corpus_scores(HYPOTHESES, REFERENCES, tokenize=tokenize)
    assert scores.bleu == pytest.approx(bleu, abs=1e-6)
    assert {f"tok:{tokenize}", "nrefs:2"} <= set(scores.bleu_signature.split("|"))
    assert scores.sentences == 3


@pytest.mark.parametrize(("language", "expected"), [
    *(("de", "13a"), ("zha", "13a"), ("zh", "zh"), ("zh_Hant", "zh"), ("ZH-CN", "zh")),
    *(("ja", "ja-mecab"), ("ko", "ko-mecab"), ("th", "char")),
])  # fmt: skip
def test_a_language_has_the_tokenizer_that_is_usual_for_it(language, expected, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert bleu_tokenizer(language) == expected


def test_without_mecab_characters_count(monkeypatch, caplog):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert bleu_tokenizer("ja") == "char"
    assert "pip install 'sacrebleu[ja]'" in caplog.text


def test_chrf_pp_and_ter_by_hand_and_by_sacrebleus_commands():
    # One word is inserted for the 3 of the reference, or one moved by a shift.
    assert further_scores(["a b c d"], ["a b d"])["ter"] == pytest.approx(100 / 3)
    assert further_scores(["c d a b"], ["a b c d"])["ter"] == pytest.approx(25)
    found = further_scores(HYPOTHESES, REFERENCES)
    for name, metric in {"chrf_pp": sacrebleu.CHRF(word_order=2), "ter": sacrebleu.TER()}.items():
        assert found[name] == pytest.approx(metric.corpus_score(HYPOTHESES, REFERENCES).score)
        assert found[f"{name}_signature"] == str(metric.get_signature())
    upper = [line.upper() for line in HYPOTHESES]
    assert further_scores(upper, HYPOTHESES, lowercase=True)["chrf_pp"] == pytest.approx(100)
    assert further_scores(["我喜歡"], ["我喜愛"], "zh")["ter"] == pytest.approx(100 / 3)


def test_chrf_of_one_sentence_by_hand():
    # "ab" against "ac": 1 of 2 letters agrees and 0 of 1 pairs; orders without n-grams are left
    # out. Precision and recall are (1/2 + 0) / 2, and so is their F-score.
    assert corpus_scores(["ab"], ["ac"]).chrf == pytest.approx(25.0)


def test_lowercase_ignores_case_in_both():
    texts = [h.lower() for h in HYPOTHESES], [r.upper() for r in HYPOTHESES]
    assert corpus_scores(*texts).bleu < 50
    same = corpus_scores(*texts, lowercase=True)
    assert (same.bleu, same.chrf) == (pytest.approx(100), pytest.approx(100))
    assert "case:lc" in same.bleu_signature and "case:lc" in same.chrf_signature


def test_texts_in_nfd_are_the_same_texts():
    lines = ["Vögel fliegen über die Wälder und Häuser .", "Die Frau läuft früh zum Bahnhof 한국 ."]
    apart = [unicodedata.normalize("NFD", line) for line in lines]
    for hypotheses, references in ((lines, apart), (apart, lines), (lines, [lines[::-1], apart])):
        scores = corpus_scores(hypotheses, references)
        assert (scores.bleu, scores.chrf) == (pytest.approx(100), pytest.approx(100))
    compared = paired_bootstrap(lines, apart, lines, samples=2)
    assert compared.bleu == compared.baseline_bleu == pytest.approx(100)
    assert bleu_by_length(lines, lines, apart)[0].bleu == pytest.approx(100)
    assert compound_split_bleu(lines, apart) == pytest.approx(100)
    assert label_scores(["é"], ["e\u0301"], ["é", "a"])["classes"]["é"]["correct"] == 1
    task = make_task(grammar_en_de.get_config())
    assert task.score(lines, apart)["exact"] == 1


def test_an_empty_hypothesis_counts_as_a_line():
    scores = corpus_scores(["", "", ""], REFERENCES)
    assert (scores.bleu, scores.chrf) == (0.0, 0.0)


def test_bootstrap_tells_a_better_system_from_an_equal_one():
    references, good = corpus(errors=0.05)
    _, bad = corpus(errors=0.3)
    found = paired_bootstrap(good, bad, references, samples=200)
    assert found.bleu == pytest.approx(bleu(good, references))
    assert found.baseline_bleu == pytest.approx(bleu(bad, references))
    assert found.p_value == pytest.approx(1 / 201)  # no resampled test set reverses the order
    # Changing one sentence that was equally good elsewhere proves nothing.
    other = [references[0], *good[1:-1], bad[-1]]
    assert paired_bootstrap(good, other, references, samples=200).p_value > 0.05
    assert paired_bootstrap(good, list(good), references, samples=200).p_value == 1.0
    perfect = paired_bootstrap(good, references, references, samples=50)
    assert perfect.interval > 0 == perfect.baseline_interval  # 100 of every drawn set


MISSING = [
    ["The dog bit the man.", "It was not unexpected.", None],
    ["The dog had bit.", None, "x y"],
]


def test_several_references_of_which_some_are_missing_as_sacrebleu_takes_them():
    lines = HYPOTHESES
    scores = corpus_scores([line.encode() for line in lines], MISSING)
    assert scores.bleu == pytest.approx(sacrebleu.corpus_bleu(lines, MISSING).score)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(lines, MISSING).score)
    found = paired_bootstrap(lines, lines[::-1], MISSING, samples=5)
    assert found.bleu == pytest.approx(scores.bleu) != found.baseline_bleu
    [group] = bleu_by_length(lines, lines, MISSING, bounds=())
    assert group.bleu == pytest.approx(scores.bleu)


A, AB = ["a"], ["a", "b"]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: corpus_scores(AB, A), "2 hypotheses but 1 references"),
    (lambda: corpus_scores(A, [A, AB]), "1 hypotheses but 2 references"),
    (lambda: corpus_scores(A, []), "1 hypotheses but 0 references"),
    (lambda: corpus_scores([], []), "no hypotheses"),
    (lambda: corpus_scores(A, A, "14a"), "tokenize is '14a': give one of .*13a"),
    (lambda: corpus_scores(AB, [["a", None], [None, None]]), r"references\[1\] is None"),
    (lambda: corpus_scores(AB, ["a", None]), r"references\[1\] is None"),
    (lambda: corpus_scores(A, None), "references is a NoneType"),
    (lambda: corpus_scores(["a", float("nan")], AB), r"hypotheses\[1\] is nan"),
    (lambda: paired_bootstrap([], [], []), "no translations to score"),
    (lambda: paired_bootstrap(AB, A, AB), "2 translations, 1 of the baseline"),
    (lambda: paired_bootstrap(A, A, A, samples=0), "samples is 0"),
    (lambda: bleu_by_length([], [], []), "no sources to score"),
    (lambda: bleu_by_length(A, AB, AB), "there are 1 sources, 2 translations"),
    (lambda: bleu_by_length(A, A, A, bounds=(9, 5)), r"bounds are \[9, 5\]: give rising"),
    (lambda: label_scores(["a", "c"], AB, AB), "predictions has 'c': give one of"),
    (lambda: label_scores([0, 1], [0, 1], [0, 1]), r"predictions\[0\] is 0, of type int"),
    (lambda: label_scores([], [], AB), "0 predictions and 0 references"),
    (lambda: label_scores(A, AB, AB), "1 predictions and 2 references"),
    (lambda: bleu_tokenizer(None), r"language\[0\] is None"),
])  # fmt: skip
def test_what_has_no_score_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_groups_of_length_are_scored_apart_and_lose_no_sentence():
    references, hypotheses = corpus(errors=0.1)
    sources = [" ".join("x" * (1 + i % 12)) for i in range(len(references))]
    groups = bleu_by_length(sources, hypotheses, references, bounds=(4, 8))
    assert [(g.shortest, g.longest) for g in groups] == [(0, 4), (5, 8), (9, None)]
    assert sum(g.sentences for g in groups) == len(references)
    middle = [i for i in range(len(references)) if 4 <= i % 12 < 8]
    chosen, right = ([lines[i] for i in middle] for lines in (hypotheses, references))
    expected = sacrebleu.corpus_bleu(chosen, [right])
    assert groups[1].bleu == pytest.approx(expected.score)
    assert groups[1].length_ratio == pytest.approx(expected.sys_len / expected.ref_len)


def test_compounds_are_split_as_in_the_literature():
    # The example that Stanford's NMT page gives of the convention.
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert split_compounds("- a - b-") == "- a - b-"
    pytest.importorskip("sacremoses")
    texts = "Das ist ein Nord-Süd-Weg, sagt er oft.", "Das ist der Nord-Ost-Weg, sagt er oft."
    tokens = "Das ist {} Nord ##AT##-##AT## {} ##AT##-##AT## Weg , sagt er oft ."
    split = tokens.format("ein", "Süd"), tokens.format("der", "Ost")
    found, expected = compound_split_bleu(texts[:1], texts[1:]), bleu(split[:1], split[1:], "none")
    assert found == pytest.approx(expected) and found > 10


def test_accuracy_and_counts_by_hand():
    found, right = np.array(["a", "b", "b", "a"]), np.array(["a", "a", "b", "a"])  # or lists
    scores = label_scores(found, right, ["a", "b", "c"])
    assert scores == {
        "accuracy": 0.75,
        "classes": {
            "a": {"texts": 3, "found": 2, "correct": 2},
            "b": {"texts": 1, "found": 2, "correct": 1},
            "c": {"texts": 0, "found": 0, "correct": 0},
        },
    }


def test_a_tokenizer_whose_model_cannot_be_had_is_named_with_its_place(monkeypatch, tmp_path):
    from sacrebleu.tokenizers import tokenizer_spm  # noqa: PLC0415

    def fail(*_):
        raise OSError("no network")

    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", fail)
    message = r"tokenizer 'flores200' does not work here \(no network\): it downloads a model to /"
    for score in (corpus_scores, lambda *args: paired_bootstrap(args[0], *args)):
        with pytest.raises(InputError, match=message):
            score(["a"], ["a"], "flores200")
