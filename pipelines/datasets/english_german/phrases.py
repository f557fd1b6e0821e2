"""Noun phrases: gender, number and case, and the endings that show them.

A phrase is a `NounPhrase`, a `Word` (a pronoun or a name) or a `Prepositional`. `english` is its
English text, `german` the German one, of the first two in a case.
"""

from typing import Any, NamedTuple

from pipelines.datasets.english_german.lexicon import DETERMINERS, read_rows

_CASES = ("nominative", "accusative", "dative", "genitive")
# For each case the endings of masculine, feminine, neuter and plural; "-" is the empty ending.
_PARADIGMS = {
    "the": "er ie as ie   en ie as ie   em er em en   es er es er",
    "this": "er e es e   en e es e   em er em en   es er es er",
    "a": "- e - e   en e - e   em er em en   es er es er",
    "strong": "er e es e   en e es e   em er em en   en er en er",
    "mixed": "er e es en   en e es en   en en en en   en en en en",
    "weak": "e e e en   en e e en   en en en en   en en en en",
    "": "- - - -   - - - -   - - - -   - - - -",
}
_ENDINGS = {
    (name, case, column): ending.strip("-")
    for name, endings in _PARADIGMS.items()
    for row, case in enumerate(_CASES)
    for column, ending in enumerate(endings.split()[4 * row : 4 * row + 4])
}
_CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur"}


class Word(NamedTuple):
    """A pronoun, a name or a question word: a phrase whose forms are all listed."""

    group: str
    english: str
    english_object: str
    person: int
    plural: int
    nominative: str
    accusative: str
    dative: str

    kind, relative = "person", None

    def german(self, case):
        return getattr(self, case)


WORDS = {word.english: word for word in read_rows("pronouns", Word)}


class NounPhrase(NamedTuple):
    """A determiner, adjectives and a noun, rows of the lexicon.

    `owner`, a name or a singular noun phrase, replaces the determiner "the". `relative` is the
    `clauses.Relative` whose head this phrase is; `german` leaves it out, see `relative_clause`.
    """

    noun: Any
    determiner: Any = DETERMINERS["the"]
    plural: bool = False
    adjectives: tuple[Any, ...] = ()
    owner: Any = None
    relative: Any = None

    person = 3

    @property
    def group(self):
        return self.determiner.group

    @property
    def kind(self):
        return self.noun.kind

    @property
    def english(self):
        words = [row.english for row in self.adjectives]
        words.append(self.noun.english_plural if self.plural else self.noun.english)
        determiner = f"{self.owner.english}'s" if self.owner else self.determiner.english
        if determiner == "a" and words[0][0] in "aeiou":
            determiner = "an"
        if self.relative:
            words.append(self.relative.english(self))
        return " ".join([determiner, *words]).strip()

    english_object = english

    def german(self, case):
        determiner = self.determiner.german + self.ending(self.determiner.endings, case)
        adjective_endings, genitive = self.determiner.adjective_endings, ""
        if isinstance(self.owner, Word):
            determiner, adjective_endings = f"{self.owner.nominative}s", "strong"
        elif self.owner:
            genitive = self.owner.german("genitive")
        ending = self.ending(adjective_endings, case)
        adjectives = [row.stem + ending for row in self.adjectives]
        return " ".join([determiner, *adjectives, self._german_noun(case), genitive]).strip()

    def ending(self, paradigm, case):
        """Returns the ending of a paradigm that agrees with the phrase in a case."""
        return _ENDINGS[paradigm, case, 3 if self.plural else "mfn".index(self.noun.gender)]

    def _german_noun(self, case):
        noun = self.noun
        if self.plural:
            dative = case == "dative" and noun.german_plural[-1] not in "ns"
            return noun.german_plural + "n" * dative
        forms = (noun.german, noun.oblique, noun.oblique, noun.genitive)
        return forms[_CASES.index(case)]


class Prepositional(NamedTuple):
    """A phrase after an English and a German preposition; in German it is in the case `case`."""

    prepositions: tuple[str, str]
    case: str
    phrase: Any

    @property
    def english(self):
        return f"{self.prepositions[0]} {self.phrase.english_object}"

    @property
    def german(self):
        words = f"{self.prepositions[1]} {self.phrase.german(self.case)}"
        preposition, article, *rest = words.split(" ")
        contraction = _CONTRACTIONS.get(f"{preposition} {article}")
        if contraction and not self.phrase.relative:  # in dem Haus, das …
            return " ".join([contraction, *rest])
        return words


def relative_pronoun(head, case):
    """Returns the German relative pronoun that agrees with its head and has a case."""
    return "denen" if head.plural and case == "dative" else "d" + head.ending("the", case)


def relative_clause(item):
    """Returns the German relative clause of a phrase between commas; empty if it has none."""
    head = getattr(item, "phrase", item)
    relative = getattr(head, "relative", None)
    return f", {relative.german(head)} ," if relative else ""
