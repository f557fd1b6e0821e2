"""Labeled bracketing of trees by the rules of EVALB (Sekine and Collins 1997).

python -m t2t_keras.evaluation.bracketing gold.mrg test.mrg --parameters=COLLINS.prm

Both files contain one tree on each line, with an empty line for a missing parse, or trees over
several lines; plain or .gz. The last line printed is JSON: {"all": {"recall": …}, "length_40":
{…}}. A parameter file names the brackets that don't count; without one, COLLINS.prm's brackets and
the outer brackets ROOT, S1 and VROOT don't count.

Start with `score_trees`.
"""

import argparse
import collections
import dataclasses
import enum
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_keras.data.files import nfc, read_text
from t2t_keras.data.texts import elements, shown
from t2t_keras.data.treebank import CLOSE, OPEN, OUTER_LABELS, WORD, Tree, parse_trees
from t2t_keras.errors import InputError
from t2t_keras.types import StrPath

# Parameters
# ----------


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The settings of an EVALB parameter file; by default COLLINS.prm's."""

    # words with these tags and brackets with these labels are left out
    delete_labels: frozenset = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
    # tags of words that do not count in a sentence's length
    delete_labels_for_length: frozenset = frozenset(["-NONE-"])
    # pairs of labels that count as equal
    equal_labels: frozenset = frozenset([frozenset(["ADVP", "PRT"])])
    equal_words: frozenset = frozenset()  # pairs of words that count as equal
    # tags of quotation marks that are easily confused. If the trees differ in length, such a mark
    # is left out of both trees or kept in both
    quote_labels: frozenset = frozenset()
    labeled: bool = True  # whether labels must agree; False: only spans
    cutoff: int = 40  # longest sentence of the second set of figures, in words
    # labels of brackets around a whole tree that are left out; a parameter file sets none
    outer_labels: frozenset = OUTER_LABELS

    def same_label(self, first, second):
        return first == second or frozenset([first, second]) in self.equal_labels

    def same_word(self, first, second):
        first, second = nfc(first), nfc(second)
        return first == second or frozenset([first, second]) in self.equal_words

    def deletes(self, label):
        """Returns whether brackets of this label are left out."""
        # A bracket without a label is an outer one, see `_Spans`.
        return not label or any(self.same_label(label, name) for name in self.delete_labels)


def read_parameters(path: StrPath) -> Parameters:
    """Reads an EVALB parameter file. Sets that it does not mention are empty.

    Each line has a name and its value; `#` begins a comment line.

    Raises:
        InputError: if the file can't be read or a value is invalid.
    """
    sets, numbers = {field: set() for field, _ in _SETS.values()}, {}
    for number, line in enumerate(read_text(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *values = nfc(line).split()  # as in trees
        field, count = _SETS.get(name, ("", 1))
        if field and len(values) == count:
            sets[field].add(values[0] if count == 1 else frozenset(values))
        elif name in _NUMBERS and len(values) == 1 and values[0].lstrip("-").isdigit():
            numbers[name] = int(values[0])
        elif field or name in _NUMBERS:
            names = "one name" if count == 1 else f"{count} names"
            wanted = names if field else "a whole number"
            raise InputError(
                f"{path}, line {number}: {name} is {' '.join(values)!r}: give {wanted}."
            )
        else:
            print(f"{path}, line {number}: unknown name {name} is ignored", file=sys.stderr)
    return Parameters(
        **{field: frozenset(values) for field, values in sets.items()},
        labeled=bool(numbers.get("LABELED", 1)),
        cutoff=numbers.get("CUTOFF_LEN", 40),
        outer_labels=frozenset(),
    )


_SETS = {
    "DELETE_LABEL": ("delete_labels", 1),
    "DELETE_LABEL_FOR_LENGTH": ("delete_labels_for_length", 1),
    "EQ_LABEL": ("equal_labels", 2),
    "EQ_WORD": ("equal_words", 2),
    "QUOTE_LABEL": ("quote_labels", 1),
}
"""{name: the field, and the number of values on a line}"""
_NUMBERS = {"LABELED", "CUTOFF_LEN", "DEBUG", "MAX_ERROR"}  # the last two change no figure


# Figures
# -------


class Status(enum.IntEnum):
    """Whether a sentence counts, with EVALB's numbers."""

    VALID = 0
    ERROR = 1  # the words of the trees differ
    SKIPPED = 2  # no parse


class Sentence(NamedTuple):
    """The figures of one sentence, EVALB's columns."""

    length: int  # words of the gold tree, punctuation included
    status: Status  # unless it is VALID, the following counts are 0, except `words`
    matched: int = 0  # brackets in both trees
    gold: int = 0  # brackets of the gold tree
    test: int = 0  # brackets of the test tree
    crossing: int = 0  # brackets of the test tree that cross one of the gold tree
    words: int = 0  # words of the gold tree, without punctuation
    correct_tags: int = 0  # words with the same tag in both trees

    @property
    def recall(self):
        """Percent of the gold brackets."""
        return _percent(self.matched, self.gold)

    @property
    def precision(self):
        """Percent of the test brackets."""
        return _percent(self.matched, self.test)

    @property
    def tagging_accuracy(self):
        """Percent of the words."""
        return _percent(self.correct_tags, self.words)


@dataclasses.dataclass(frozen=True)
class Summary:
    """The figures of many sentences, in percent except for average_crossing and the counts."""

    recall: float  # matched brackets per gold bracket, over all sentences (not their mean)
    precision: float  # matched brackets per test bracket
    f1: float  # harmonic mean of recall and precision
    complete_match: float  # sentences with all brackets correct
    average_crossing: float  # crossing brackets per sentence
    no_crossing: float  # sentences without crossing brackets
    two_or_less_crossing: float  # sentences with at most two
    tagging_accuracy: float  # words with the correct tag
    sentences: int  # number of sentences
    # sentences whose words differ from the gold tree's, excluded from all other figures
    errors: int
    skipped: int  # sentences without a parse, excluded from all other figures

    def rounded(self):
        """Returns a dict of the figures with two decimals, as EVALB prints them."""
        return {name: round(value, 2) for name, value in dataclasses.asdict(self).items()}


def summarize(sentences: Iterable[Sentence]) -> Summary:
    """Adds up the figures of a text's sentences."""
    sentences = list(sentences)
    status = collections.Counter(sentence.status for sentence in sentences)
    valid = [sentence for sentence in sentences if sentence.status == Status.VALID]
    total = Sentence(
        0, Status.VALID, *(sum(column) for column in list(zip(*valid, strict=True))[2:])
    )
    recall, precision = total.recall, total.precision
    complete = sum(one.matched == one.gold == one.test for one in valid)
    return Summary(
        recall=recall,
        precision=precision,
        f1=2 * recall * precision / (recall + precision) if total.matched else 0.0,
        complete_match=_percent(complete, len(valid)),
        average_crossing=total.crossing / max(len(valid), 1),
        no_crossing=_percent(sum(one.crossing == 0 for one in valid), len(valid)),
        two_or_less_crossing=_percent(sum(one.crossing <= 2 for one in valid), len(valid)),
        tagging_accuracy=total.tagging_accuracy,
        sentences=len(sentences),
        errors=status[Status.ERROR],
        skipped=status[Status.SKIPPED],
    )


def _percent(part, whole):
    return 100.0 * part / whole if whole else 0.0


# Scoring
# -------


def score_sentences(
    gold: Sequence,
    test: Sequence,
    parameters: Parameters | None = None,
    gold_punctuation: bool = False,
) -> list[Sentence]:
    """Scores parses, sentence by sentence.

    Args:
        gold: the correct trees; each a `Tree`, or a list of consecutive `Tree`.
        test: the parses in the same form; None or an empty list for a missing parse.
        parameters: None: COLLINS.prm's, with `OUTER_LABELS`.
        gold_punctuation: whether only the gold tree's tags decide which words are left out, if both
            trees have the same words. False: each tree's own tags decide, as in EVALB; if they
            disagree, the sentence is an error.

    Raises:
        InputError: if the counts differ or are 0, or if a sentence is not in this form.
    """
    gold, test = _forests(gold, "gold"), _forests(test, "test")
    if len(gold) != len(test) or not gold:
        raise InputError(
            f"there are {len(gold)} gold and {len(test)} test trees: give equally many, in the "
            "same order, with an empty line where there is no parse."
        )
    parameters = parameters or Parameters()
    return [_score(*pair, parameters, gold_punctuation) for pair in zip(gold, test, strict=True)]


def score_trees(
    gold: Sequence,
    test: Sequence,
    parameters: Parameters | None = None,
    gold_punctuation: bool = False,
) -> dict[str, Summary]:
    """Scores parses; the arguments are the same as for `score_sentences`.

    Returns:
        "all", and "length_N" for sentences of at most N words; N is `cutoff`, by default 40.

    Raises:
        InputError: as `score_sentences`.

    Example:
        >>> from t2t_keras.data.treebank import parse_tree
        >>> gold = [parse_tree("(S (NP (PRP It)) (VP (VBZ works)) (. .))")]
        >>> t2t.score_trees(gold, gold)["all"].f1
        100.0
    """
    parameters = parameters or Parameters()
    sentences = score_sentences(gold, test, parameters, gold_punctuation)
    return _summaries(sentences, parameters.cutoff)


def _summaries(sentences, cutoff):
    short = [sentence for sentence in sentences if sentence.length <= cutoff]
    return {"all": summarize(sentences), f"length_{cutoff}": summarize(short)}


def error_warning(summary):
    """Returns a warning if more than 1 % of a `Summary`'s sentences are errors; None if not."""
    if summary.errors * 100 <= summary.sentences:
        return None
    return (
        f"{summary.errors} of {summary.sentences} sentences are errors, since the words that count "
        "differ in the two trees: no other figure includes them. Do both files hold the same "
        "sentences, and do both tag punctuation as the parameters do?"
    )


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
    """A sentence's words and brackets; positions count all words, deleted ones included."""

    def __init__(self, trees, parameters):
        self.leaves, self._brackets, self._parameters = [], [], parameters
        open_ = []  # indices of the brackets without an end, innermost last
        for event, tree in itertools.chain.from_iterable(tree.walk() for tree in trees):
            if event == WORD:
                self.leaves.append(tree)
            elif event == OPEN:
                label, outer = _plain(tree.label), not open_ or not self._brackets[open_[-1]].label
                if outer and label in parameters.outer_labels:
                    label = ""
                open_.append(len(self._brackets))
                self._brackets.append(_Bracket(label, len(self.leaves), 0))
            elif event == CLOSE:
                index = open_.pop()
                self._brackets[index] = self._brackets[index]._replace(end=len(self.leaves))
        self.kept = [leaf.label not in parameters.delete_labels for leaf in self.leaves]

    def words(self):
        return list(itertools.compress(self.leaves, self.kept))

    def brackets(self):
        """Returns the brackets that count, as spans of the kept words."""
        kept_before = [0, *itertools.accumulate(self.kept)]
        brackets = [
            b._replace(start=kept_before[b.start], end=kept_before[b.end]) for b in self._brackets
        ]
        return [b for b in brackets if b.start < b.end and not self._parameters.deletes(b.label)]

    def quotes(self):
        """Returns the positions of quotation marks whose tags are easily confused."""
        return [
            position
            for position, leaf in enumerate(self.leaves)
            if leaf.label in self._parameters.quote_labels and leaf.children[0] in ("'", '"', "/")
        ]


def _score(gold, test, parameters, gold_punctuation):
    gold, test = _Spans(gold, parameters), _Spans(test, parameters)
    if gold_punctuation and _same_words(gold.leaves, test.leaves, parameters):
        test.kept = gold.kept
    length = sum(leaf.label not in parameters.delete_labels_for_length for leaf in gold.leaves)
    if not any(test.kept):
        return Sentence(length, Status.SKIPPED, words=sum(gold.kept))
    if sum(gold.kept) != sum(test.kept):
        _fix_quotes(gold, test)
    gold_words, test_words = gold.words(), test.words()
    if not _same_words(gold_words, test_words, parameters):
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


def _same_words(gold, test, parameters):
    return len(gold) == len(test) and all(
        parameters.same_word(one.children[0], other.children[0])
        for one, other in zip(gold, test, strict=True)
    )


def _fix_quotes(gold, test):
    """Keeps a quotation mark in both trees if only one tree tags it as deletable."""
    for mark in test.quotes():
        for other in gold.quotes():
            same_position = sum(test.kept[:mark]) == sum(gold.kept[:other])
            if same_position and test.leaves[mark].label != gold.leaves[other].label:
                test.kept[mark] = gold.kept[other] = test.kept[mark] or gold.kept[other]


def _matches(gold, test, parameters):
    """Counts matched brackets; each gold bracket takes the first equal test bracket left."""
    free = list(test)
    for label, *span in gold:
        for other in free:
            is_same = not parameters.labeled or parameters.same_label(label, other.label)
            if span == [*other[1:]] and is_same:
                free.remove(other)
                break
    return len(test) - len(free)


def _plain(label):
    """Truncates a label at the first hyphen or equals sign, as EVALB does: NP-SBJ-1, NP=2."""
    return label.partition("-")[0].partition("=")[0]


def _forests(trees, name):
    """Returns the trees of each sentence."""
    if isinstance(trees, Tree):
        raise InputError(f"{name} is the tree {shown(str(trees))}: give a list of trees.")
    rows = enumerate(elements(trees, name, "a list of trees"))
    return [_forest(row, f"{name}[{i}]") for i, row in rows]


def _forest(trees, name):
    """Returns the trees of a sentence; `name` is its place, for the error."""
    forest = [trees] if isinstance(trees, Tree) else [] if trees is None else trees
    # A list of another type is a tree of another package, such as NLTK's.
    if type(forest) not in (list, tuple) or not all(isinstance(tree, Tree) for tree in forest):
        raise InputError(
            f"{name} is {shown(trees)}, a {type(trees).__name__}: give a Tree, as parse_tree reads "
            "it from a str, or a list of them."
        )
    return list(forest)


# Command
# -------


def read_sentences(path: StrPath) -> list[list[Tree]]:
    """Reads trees from a file.

    Returns:
        For each line its trees, none for an empty line; or, if a tree extends over several lines,
        one tree in each list.

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
    parser.add_argument("gold", metavar="GOLD", help="file of the correct trees, plain or .gz")
    parser.add_argument("test", metavar="TEST", help="file of the parses, plain or .gz")
    parser.add_argument(
        "--parameters",
        help="EVALB parameter file; default: the settings of COLLINS.prm, without outer brackets",
    )
    parser.add_argument(
        "--per_sentence", action="store_true", help="print a table of all sentences first"
    )
    options = parser.parse_args(arguments)
    try:
        parameters = read_parameters(options.parameters) if options.parameters else Parameters()
        gold, test = read_sentences(options.gold), read_sentences(options.test)
        if len(gold) != len(test):  # as `evaluate` reads a treebank: blank lines are no sentences
            gold = [[tree] for trees in gold for tree in trees] or gold
        sentences = score_sentences(gold, test, parameters)
    except InputError as error:
        print("error:", error, file=sys.stderr)
        return 1
    if options.per_sentence:
        print(*_table(sentences), sep="\n")
    summaries = _summaries(sentences, parameters.cutoff)
    if warning := error_warning(summaries["all"]):
        print("warning:", warning, file=sys.stderr)
    print(json.dumps({name: summary.rounded() for name, summary in summaries.items()}))
    return 0
