"""Labelled bracketing of trees by the rules of EVALB (Sekine and Collins 1997).

python -m t2t_keras.evaluation.bracketing gold.mrg test.mrg --parameters=COLLINS.prm

Both files hold a tree on each line, an empty line where there is no parse, or trees over several
lines; plain or .gz. The last line printed is JSON: {"all": {"recall": …}, "length_40": {…}}.
"""

import argparse
import itertools
import json
import sys
from typing import NamedTuple

from t2t_keras.data.files import read_text
from t2t_keras.data.treebank import CLOSE, OPEN, WORD, parse_trees
from t2t_keras.errors import InputError
from t2t_keras.evaluation.bracketing_figures import Sentence, Status, summarize
from t2t_keras.evaluation.bracketing_parameters import Parameters, read_parameters


def score_sentences(gold, test, parameters=None):
    """Scores parses.

    Args:
        gold: list of the right trees; each a `Tree`, or a list of `Tree` that follow each other.
        test: list of the parses likewise; None or an empty list where there is none.
        parameters: `Parameters`; those of COLLINS.prm if None.

    Returns:
        List of `Sentence`.

    Raises:
        InputError: if the numbers differ or are 0.
    """
    gold, test = list(gold), list(test)
    if len(gold) != len(test) or not gold:
        raise InputError(
            f"there are {len(gold)} gold and {len(test)} test trees: give as many of both, in the "
            "same order, with an empty line where there is no parse."
        )
    parameters = parameters or Parameters()
    return [_score(*pair, parameters) for pair in zip(gold, test, strict=True)]


def score_trees(gold, test, parameters=None):
    """Sums up the scores of parses; the arguments are those of `score_sentences`.

    Returns:
        Dict of `Summary`: "all", and "length_40" of the sentences of that length at most.

    Example:
        >>> score_trees(gold, test)["all"].f1
        91.3
    """
    parameters = parameters or Parameters()
    return _summaries(score_sentences(gold, test, parameters), parameters.cutoff)


def _summaries(sentences, cutoff):
    short = [sentence for sentence in sentences if sentence.length <= cutoff]
    return {"all": summarize(sentences), f"length_{cutoff}": summarize(short)}


class _Bracket(NamedTuple):
    label: str
    start: int
    end: int

    def crosses(self, other):
        return (
            self.start < other.start < self.end < other.end
            or other.start < self.start < other.end < self.end
        )


class _Spans:
    """A sentence's words and brackets, places counted over all words, deleted ones included."""

    def __init__(self, trees, parameters):
        self.leaves, self._brackets, self._parameters = [], [], parameters
        open_ = []  # numbers of the brackets without an end, innermost last
        for event, tree in itertools.chain.from_iterable(tree.walk() for tree in _forest(trees)):
            if event == WORD:
                self.leaves.append(tree)
            elif event == OPEN:
                open_.append(len(self._brackets))
                self._brackets.append(_Bracket(_plain(tree.label), len(self.leaves), 0))
            elif event == CLOSE:
                number = open_.pop()
                self._brackets[number] = self._brackets[number]._replace(end=len(self.leaves))
        self.kept = [leaf.label not in parameters.delete_labels for leaf in self.leaves]

    def words(self):
        return list(itertools.compress(self.leaves, self.kept))

    def brackets(self):
        """Returns the brackets that count, a list of `_Bracket` between the words that are kept."""
        place = [0, *itertools.accumulate(self.kept)]
        brackets = [b._replace(start=place[b.start], end=place[b.end]) for b in self._brackets]
        return [b for b in brackets if b.start < b.end and not self._parameters.deletes(b.label)]

    def quotes(self):
        """Returns the places of the marks whose tag can be confused."""
        return [
            place
            for place, leaf in enumerate(self.leaves)
            if leaf.label in self._parameters.quote_labels and leaf.children[0] in ("'", '"', "/")
        ]


def _score(gold, test, parameters):
    gold, test = _Spans(gold, parameters), _Spans(test, parameters)
    length = sum(leaf.label not in parameters.delete_labels_for_length for leaf in gold.leaves)
    if not any(test.kept):
        return Sentence(length, Status.SKIPPED, words=sum(gold.kept))
    if sum(gold.kept) != sum(test.kept):
        _fix_quotes(gold, test)
    gold_words, test_words = gold.words(), test.words()
    same = len(gold_words) == len(test_words) and all(
        parameters.same_word(one.children[0], other.children[0])
        for one, other in zip(gold_words, test_words, strict=True)
    )
    if not same:
        return Sentence(length, Status.ERROR, words=len(gold_words))
    gold_brackets, test_brackets = gold.brackets(), test.brackets()
    return Sentence(
        length,
        Status.VALID,
        matched=_matches(gold_brackets, test_brackets, parameters),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=sum(any(b.crosses(other) for other in gold_brackets) for b in test_brackets),
        words=len(gold_words),
        correct_tags=sum(
            parameters.same_label(one.label, other.label)
            for one, other in zip(gold_words, test_words, strict=True)
        ),
    )


def _fix_quotes(gold, test):
    """Keeps a quotation mark in both trees that only one of them tags as one to leave out."""
    for mark in test.quotes():
        for other in gold.quotes():
            same_place = sum(test.kept[:mark]) == sum(gold.kept[:other])
            if same_place and test.leaves[mark].label != gold.leaves[other].label:
                test.kept[mark] = gold.kept[other] = test.kept[mark] or gold.kept[other]


def _matches(gold, test, parameters):
    """Returns how many gold brackets have a test bracket of their own; the first free one is it."""
    free = list(test)
    for bracket in gold:
        for place, other in enumerate(free):
            if bracket[1:] == other[1:] and (
                not parameters.labeled or parameters.same_label(bracket.label, other.label)
            ):
                del free[place]
                break
    return len(test) - len(free)


def _plain(label):
    """Cuts a label where EVALB does, at the first hyphen or equals sign: NP-SBJ-1, NP=2."""
    return label.partition("-")[0].partition("=")[0]


def _forest(trees):
    if trees is None:
        return []
    return trees if isinstance(trees, list) else [trees]


def read_sentences(path):
    """Reads what is to be scored.

    Args:
        path: a file with the trees of a sentence on each line, or with trees over several lines.

    Returns:
        List of a list of `Tree` for each line, empty for an empty line; or for each tree, if one
        goes over several lines.

    Raises:
        InputError: if the file can't be read or its brackets don't match.
    """
    lines = list(read_text(path))
    if all(line.count("(") == line.count(")") for line in lines):
        return [list(parse_trees([line], path, number)) for number, line in enumerate(lines, 1)]
    return [[tree] for tree in parse_trees(lines, path)]


def _table(sentences):
    """Yields the lines of EVALB's table."""
    yield "id length status recall precision matched gold test crossing words tags accuracy"
    for number, one in enumerate(sentences, start=1):
        yield (
            f"{number} {one.length} {one.status:d} {one.recall:.2f} {one.precision:.2f} "
            f"{one.matched} {one.gold} {one.test} {one.crossing} {one.words} {one.correct_tags} "
            f"{one.tagging_accuracy:.2f}"
        )


def main(arguments=None):
    """Scores two files of trees; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m t2t_keras.evaluation.bracketing", description=__doc__.splitlines()[0]
    )
    parser.add_argument("gold", metavar="GOLD", help="file of the right trees, plain or .gz")
    parser.add_argument("test", metavar="TEST", help="file of the parses, likewise")
    parser.add_argument("--parameters", help="EVALB parameter file; without it, COLLINS.prm")
    parser.add_argument(
        "--per_sentence", action="store_true", help="print a table of all sentences first"
    )
    options = parser.parse_args(arguments)
    try:
        parameters = read_parameters(options.parameters) if options.parameters else Parameters()
        gold, test = read_sentences(options.gold), read_sentences(options.test)
        sentences = score_sentences(gold, test, parameters)
    except InputError as error:
        print("error:", error, file=sys.stderr)
        return 1
    if options.per_sentence:
        print(*_table(sentences), sep="\n")
    summaries = _summaries(sentences, parameters.cutoff)
    print(json.dumps({name: summary.rounded() for name, summary in summaries.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
