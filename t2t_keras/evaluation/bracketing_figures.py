"""The figures of EVALB: of one sentence, and of many."""

import collections
import dataclasses
import enum
from typing import NamedTuple


class Status(enum.IntEnum):
    """What became of a sentence; the numbers are EVALB's."""

    VALID = 0
    ERROR = 1  # the words are not the same
    SKIPPED = 2  # there is no parse


class Sentence(NamedTuple):
    """The figures of one sentence, EVALB's columns.

    Attributes:
        length: words of the gold tree, punctuation included.
        status: `Status`; what follows is 0 unless it is valid, but for words.
        matched: brackets in both trees.
        gold: brackets of the gold tree.
        test: brackets of the test tree.
        crossing: brackets of the test tree that cross one of the gold tree.
        words: words of the gold tree, punctuation left out.
        correct_tags: words that have the same tag.
    """

    length: int
    status: Status
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0

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
    """The figures of many sentences; but for the counts and average_crossing in percent.

    Attributes:
        recall: matched brackets of the gold trees' (over all sentences, not their mean).
        precision: matched brackets of the test trees'.
        f1: harmonic mean of both.
        complete_match: sentences with all brackets right.
        average_crossing: crossing brackets of a sentence.
        no_crossing: sentences without a crossing bracket.
        two_or_less_crossing: sentences with two at most.
        tagging_accuracy: words with the right tag.
        sentences: number of all.
        errors: sentences whose words are not those of the gold tree; they count nowhere else.
        skipped: sentences without a parse; they count nowhere else.
    """

    recall: float
    precision: float
    f1: float
    complete_match: float
    average_crossing: float
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float
    sentences: int
    errors: int
    skipped: int

    def rounded(self):
        """Returns a dict with two decimals, as EVALB prints them."""
        return {name: round(value, 2) for name, value in dataclasses.asdict(self).items()}


def summarize(sentences):
    """Returns the `Summary` of `Sentence` figures."""
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
