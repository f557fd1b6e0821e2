import gzip
import json
import os
import pathlib
import runpy
import sys
import warnings

import pytest

from t2t_keras.data.treebank import parse_trees
from t2t_keras.errors import InputError
from t2t_keras.evaluation import bracketing
from t2t_keras.evaluation.bracketing import (
    Parameters,
    read_parameters,
    score_sentences,
    score_trees,
)

ROOT = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(os.environ.get("T2T_SHARED_DATA", ROOT.parent / "shared" / "data"))

# The rules that EVALB's own sample was scored with (sample.prm): COLLINS.prm scores it otherwise.
SAMPLE_RULES = ["# comment", "CUTOFF_LEN 40", "LABELED 1", "DELETE_LABEL_FOR_LENGTH -NONE-"]
DELETED = ("TOP", "-NONE-", ",", ":", "``", "''", "X", "SYM")
SAMPLE_RULES += [
    *(f"DELETE_LABEL {name}" for name in DELETED),
    "EQ_LABEL T TT",
    "EQ_WORD This this",
]
RENAMED = {"error sentences": "errors", "skipped sentences": "skipped"}
RENAMED |= {"2 or less crossing": "two_or_less_crossing"}  # {EVALB's name of a figure: ours}


def trees(*lines):
    return [list(parse_trees([line])) for line in lines]


def figures(gold, test, parameters=None):
    """Returns the figures of one pair: matched, gold, test, crossing."""
    [one] = score_sentences(trees(gold), trees(test), parameters)
    assert one.status == 0
    return one.matched, one.gold, one.test, one.crossing


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """EVALB's own sample: its two files, rules and expected tables."""
    folder = DATA / "evalb"
    if not folder.is_dir():
        pytest.skip(f"EVALB's sample is missing: {folder}")
    rules = tmp_path_factory.mktemp("evalb") / "sample.prm"
    rules.write_text("\n".join(SAMPLE_RULES))
    tables = [
        [line.split("\t") for line in (folder / name).read_text().splitlines()[1:]]
        for name in ("sample.rsl.tsv", "sample.summary.tsv")
    ]
    return str(folder / "sample.gld"), str(folder / "sample.tst"), f"--parameters={rules}", *tables


def test_evalbs_sample(sample, capsys):
    gold, test, rules, sentences, summary = sample
    assert bracketing.main([gold, test, rules, "--per_sentence"]) == 0
    _, *table, figures_of_all = capsys.readouterr().out.splitlines()
    assert [line.split(" ") for line in table] == sentences
    found, expected = json.loads(figures_of_all), {"all": {}, "length_40": {}}
    for figure, *values in summary:
        name = RENAMED.get(figure, figure.removeprefix("bracketing ").replace(" ", "_"))
        for part, value in zip(expected, values, strict=True):
            expected[part][name] = float(value)
    assert found["all"].pop("f1") == 89.12  # 2 · 86 / (98 + 95)
    del found["length_40"]["f1"]
    for part in found:
        assert expected[part].pop("valid_sentences") > 0
    assert found == expected


def test_the_builtin_rules_are_those_of_the_file():
    path = DATA / "evalb" / "collins.prm"
    if not path.exists():
        pytest.skip(f"EVALB's rules are missing: {path}")
    assert read_parameters(path) == Parameters(outer_labels=frozenset())


GOLD = "(S (NP (PRP It)) (VP (VBZ is) (NP (DT a) (NN test))) (. .))"


@pytest.mark.parametrize(("test", "expected"), [
    (GOLD, (4, 4, 4, 0)),
    ("(TOP (S (NP (PRP It)) (VP (VBZ is) (NP (DT a) (NN test))) (. .)))", (4, 4, 4, 0)),
    ("( (S-X=2 (NP-SBJ (PRP It)) (VP (VBZ is) (NP (DT a) (NN test)) (. .))))", (4, 4, 4, 0)),
    ("(S (NP (PRP It)) (VP (VBZ is) (NP (NP (DT a) (NN test)))) (. .))", (4, 4, 5, 0)),
    ("(S (NP (PRP It) (VBZ is)) (NP (DT a) (NN test)) (. .))", (2, 4, 3, 1)),
    ("(S (X (PRP It) (VBZ is) (DT a)) (NN test) (. .))", (1, 4, 2, 1)),
    ("(FRAG (PRP It) (VBZ is) (DT a) (NN test) (. .))", (0, 4, 1, 0)),
])  # fmt: skip
def test_brackets_counted_by_hand(test, expected):
    assert figures(GOLD, test) == expected


@pytest.mark.parametrize("outer", ["ROOT", "S1", "VROOT"])
def test_outer_brackets_count_only_by_a_parameter_file(outer):
    gold, test = (f"({outer} ({label} (NP (NN x)) (ROOT (NN y))))" for label in ("S", "FRAG"))
    assert figures(gold, test) == (2, 3, 3, 0)
    assert figures(gold, test, Parameters(outer_labels=frozenset())) == (3, 4, 4, 0)


def test_more_than_one_percent_of_errors_is_a_warning(tmp_path, capsys):
    paths = [str(tmp_path / "gold.mrg"), str(tmp_path / "test.mrg")]
    for count in (1, 2):
        for path, tag in zip(paths, ("$.", "."), strict=True):
            tags = [tag] * count + ["."] * (100 - count)
            pathlib.Path(path).write_text("\n".join(f"(S (NN Käse) ({t} .))" for t in tags))
        assert bracketing.main(paths) == 0
        found = capsys.readouterr()
        assert ("2 of 100 sentences are errors" in found.err) == (count == 2)
        assert json.loads(found.out)["all"]["errors"] == count
    composed, apart = trees("(NŒ (NÉ Käse))", "(NŒ (NE\u0301 Ka\u0308se))")
    [one] = score_sentences([composed], [apart])
    assert (one.status, one.matched, one.correct_tags) == (0, 1, 1)


def test_equal_labels_and_spans_alone():
    gold, test = "(S (ADVP (RB so)) (NN x))", "(S (PRT (RB so)) (NN x))"
    assert figures(gold, test)[0] == 2
    strict = Parameters(equal_labels=frozenset())
    assert figures(gold, test, strict)[0] == 1
    assert figures(gold, test, Parameters(equal_labels=frozenset(), labeled=False))[0] == 2
    # One test bracket matches one gold bracket only.
    assert figures("(S (NP (NP (NN x))) (NN y))", "(S (NP (NN x)) (NN y))") == (2, 3, 2, 0)


def test_figures_of_many_sentences():
    longest, long = ("(S " + "(NN x) " * count + ")" for count in (40, 41))
    gold = trees(GOLD, GOLD, GOLD, GOLD, longest, long)
    summaries = score_trees(gold, trees(GOLD, "", "", "(S (NN x))", longest, long))
    both, short = summaries["all"], summaries["length_40"]
    assert (both.sentences, both.skipped, both.errors, both.recall) == (6, 2, 1, 100.0)
    assert (short.sentences, short.complete_match, both.complete_match) == (5, 100.0, 100.0)
    wrong = "(S (X (PRP It) (VBZ is) (DT a)) (VB test))"
    found = score_trees(trees(GOLD, GOLD), trees(GOLD, wrong))["all"].rounded()
    # 5 of 8 gold brackets, 5 of 6 test brackets; 7 of 8 tags; one crossing in two sentences.
    assert (found["recall"], found["precision"], found["f1"]) == (62.5, 83.33, 71.43)
    assert (found["average_crossing"], found["tagging_accuracy"]) == (0.5, 87.5)


def test_a_confused_quotation_mark_counts_in_both_trees():
    gold = "(S (NP (NNS dogs) (POS ')) (NN x))"
    test = "(S (NP (NNS dogs) ('' ')) (NN x))"
    [one] = score_sentences(trees(gold), trees(test))
    assert one.status == 1
    quotes = Parameters(quote_labels=frozenset(["POS", "''"]))
    assert figures(gold, test, quotes) == (2, 2, 2, 0)
    assert score_sentences(trees(gold), trees(test), quotes)[0].words == 3


def test_trees_over_several_lines_and_gzipped(tmp_path, capsys, monkeypatch):
    gold, test = tmp_path / "gold.mrg", tmp_path / "test.gz"
    gold.write_text("\n( (S (NP (PRP It) )\n  (VP (VBZ is)) (-NONE- *)))\n(X (NN x))\n")
    test.write_bytes(gzip.compress(b"(S (NP (PRP It)) (VP (VBZ is)))\n\n"))
    monkeypatch.setattr(sys, "argv", ["", str(gold), str(test)])
    with warnings.catch_warnings(), pytest.raises(SystemExit, match="0"):
        warnings.simplefilter("error")
        runpy.run_module("t2t_keras.evaluation.bracketing", run_name="__main__")  # python -m
    scores = json.loads(capsys.readouterr().out)["all"]
    assert (scores["f1"], scores["skipped"], scores["sentences"]) == (100.0, 1, 2)


@pytest.mark.parametrize(("gold", "test", "message"), [
    ("(S (NN x))\n", "(S (NN x))\n\n(S (NN x))\n", "1 gold and 3 test"),
    ("(S (NN x))\n", "(S (NN x)\n", "test.mrg, line 1: 1 brackets are not closed"),
    ("(S (NN x))\n(S (NN x)))\n", "(S (NN x))\n\n", "gold.mrg, line 2: a ')' too many"),
    ("(S (NN x))\n(S x (NN y))\n", "\n\n", "gold.mrg, line 2: bracket (S"),
    ("(S (NN x))\nx\n", "\n\n", "gold.mrg, line 2: 'x' outside"),
])  # fmt: skip
def test_bad_files_are_named_in_one_line(tmp_path, capsys, gold, test, message):
    paths = [tmp_path / "gold.mrg", tmp_path / "test.mrg"]
    paths[0].write_text(gold), paths[1].write_text(test)
    assert bracketing.main([str(path) for path in paths]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert bracketing.main([str(tmp_path / "none"), str(paths[0])]) == 1


IT, DOG = "(S (NP (PRP It)) (VP (VBZ works)))", "(S (NP (NN dog)) (VP (VBZ sleeps)))"


@pytest.mark.parametrize("gold", [f"{IT}\n\n{DOG}\n", f"{IT}\n{DOG}\n\n", f"{IT} {DOG}\n"])
def test_parses_of_a_treebank_are_scored_whatever_its_lines(tmp_path, capsys, gold):
    paths = tmp_path / "gold.mrg", tmp_path / "parses"
    paths[0].write_text(gold), paths[1].write_text(f"{IT}\n{DOG}\n")  # a line for each tree
    assert bracketing.main([str(path) for path in paths]) == 0
    all_ = json.loads(capsys.readouterr().out)["all"]
    assert (all_["f1"], all_["sentences"], all_["skipped"]) == (100, 2, 0)


class TreeOfAnotherPackage(list):
    """A list of its children, as NLTK's."""


@pytest.mark.parametrize("trees", [[IT], IT, [TreeOfAnotherPackage()], [[IT]], [b"(S (NN x))"]])
def test_what_is_no_tree_is_refused(trees):
    with pytest.raises(InputError, match=r"^gold(\[0\])? is .*: give a "):
        score_trees(trees, trees)


def test_bad_parameters(tmp_path):
    path = tmp_path / "x.prm"
    for line, message in (("EQ_LABEL A", "line 1: EQ_LABEL is 'A'"), ("LABELED x", "whole number")):
        path.write_text(line)
        with pytest.raises(InputError, match=message):
            read_parameters(path)
    path.write_text("UNHEARD_OF x\n")
    none = frozenset()
    assert read_parameters(path) == Parameters(none, none, none, outer_labels=none)
