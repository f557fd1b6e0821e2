"""Noun phrases: gender, number, case, and the endings that carry them.

Every phrase has `english()`, `english_object()`, `german(case)`, `german_tail()` (its relative
clause, which German may move behind the verb), `person`, `plural`, and `weight`, its place in
the German middle field.
"""

from typing import Any, NamedTuple

from t2t_keras.data.english_german.lexicon import TENS, UNITS, Adjective, Noun

PRONOUN, DEFINITE, INDEFINITE = range(3)
"""The weights: pronouns come first in the middle field, indefinite phrases last."""

# The endings of each case for masculine, feminine, neuter, plural.
_THE = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
    "genitive": ("des", "der", "des", "der"),
}
_THIS = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
    "genitive": ("es", "er", "es", "er"),
}
_A = _THIS | {"nominative": ("", "e", "", "e"), "accusative": ("en", "e", "", "e")}
_STRONG = _THIS | {"genitive": ("en", "er", "en", "er")}
_WEAK = {
    "nominative": ("e", "e", "e", "en"),
    "accusative": ("en", "e", "e", "en"),
    "dative": ("en", "en", "en", "en"),
    "genitive": ("en", "en", "en", "en"),
}
_MIXED = _WEAK | {"nominative": ("er", "e", "es", "en"), "accusative": ("en", "e", "es", "en")}
_WHO = _THE | {
    "dative": ("dem", "der", "dem", "denen"),
    "genitive": ("dessen", "deren", "dessen", "deren"),
}

# English determiner: (German, its endings, the adjective's endings)
_DETERMINERS = {
    "this": ("dies", _THIS, _WEAK),
    "these": ("dies", _THIS, _WEAK),
    "every": ("jed", _THIS, _WEAK),
    "which": ("welch", _THIS, _WEAK),
    "all": ("all", _THIS, _WEAK),
    "many": ("viel", _THIS, _STRONG),
    "some": ("einig", _THIS, _STRONG),
    "a": ("ein", _A, _MIXED),
    "no": ("kein", _A, _MIXED),
    "my": ("mein", _A, _MIXED),
    "your": ("dein", _A, _MIXED),
    "his": ("sein", _A, _MIXED),
    "her": ("ihr", _A, _MIXED),
    "our": ("unser", _A, _MIXED),
    "their": ("ihr", _A, _MIXED),
    "how many": ("wie viel", _THIS, _STRONG),
    "": ("", None, _STRONG),
    "whose": ("", None, _STRONG),
}
_INDEFINITE = {"a", "no", "some", "many", "", "every", "all"}

_CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
    "in das": "ins",
    "an das": "ans",
}


def number_words(number):
    """Gives a number from 2 to 99 in English and in German words."""
    if number < 20:
        return tuple(UNITS[number])
    tens, unit = TENS[number // 10 - 2], UNITS[number % 10]
    if number % 10 == 0:
        return tuple(tens)
    return f"{tens[0]}-{unit[0]}", f"{unit[1]}und{tens[1]}"


def relative_pronoun(phrase, case):
    """Gives the German relative pronoun that agrees with `phrase` and stands in `case`."""
    return _WHO[case][phrase.column]


class NounPhrase(NamedTuple):
    """Determiner, number, adjectives, noun, then an owner or a relative clause.

    `owner` (a Name or a singular NounPhrase) takes the place of the determiner; `relative` is a
    `clauses.Relative` whose head this phrase is.
    """

    noun: Noun
    determiner: str = "the"
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    count: int = 0
    owner: Any = None
    relative: Any = None

    person = 3

    @property
    def column(self):
        """The column of the tables of endings."""
        return 3 if self.plural else "mfn".index(self.noun.gender)

    @property
    def weight(self):
        """The place in the middle field."""
        indefinite = self.determiner in _INDEFINITE and self.owner is None
        return INDEFINITE if indefinite else DEFINITE

    @property
    def human(self):
        """Whether English asks who rather than which."""
        return self.noun.kind == "person"

    def english(self):
        """Gives the English phrase as subject."""
        noun = self.noun.english_plural if self.plural else self.noun.english
        words = [adjective.english for adjective in self.adjectives] + [noun]
        if self.count:
            words.insert(0, number_words(self.count)[0])
        owned_by_person = self.owner is not None and self.owner.human
        if owned_by_person:
            words.insert(0, self.owner.english() + "'s")
        elif self.determiner == "a":
            words.insert(0, "an" if words[0][0] in "aeiou" else "a")
        elif self.determiner:
            words.insert(0, self.determiner)
        if self.owner is not None and not owned_by_person:
            words.append("of " + self.owner.english())
        if self.relative is not None:
            words.append(self.relative.english(self))
        return " ".join(words)

    english_object = english

    def german(self, case):
        """Gives the German phrase in a case, without its relative clause."""
        column, words = self.column, []
        if self.owner is not None and self.owner.is_name:
            words.append(self.owner.english() + "s")
            endings = _STRONG
        elif self.determiner == "the":
            words.append(_THE[case][column])
            endings = _WEAK
        else:
            determiner, own_endings, endings = _DETERMINERS[self.determiner]
            if own_endings:
                words.append(determiner + own_endings[case][column])
        if self.count:
            words.append(number_words(self.count)[1])
        ending = endings[case][column]
        words.extend(adjective.stem + ending for adjective in self.adjectives)
        words.append(self._german_noun(case))
        if self.owner is not None and not self.owner.is_name:
            words.append(self.owner.german("genitive"))
        return " ".join(words)

    def german_tail(self):
        """Gives the German relative clause between commas, or nothing."""
        return "" if self.relative is None else f" , {self.relative.german(self)} ,"

    is_name = False

    def _german_noun(self, case):
        noun = self.noun
        if self.plural:
            dative = case == "dative" and noun.german_plural[-1] not in "ns"
            return noun.german_plural + "n" * dative
        if case == "nominative":
            return noun.german
        return noun.genitive if case == "genitive" else noun.oblique


class Name(NamedTuple):
    """The name of a person."""

    name: str

    person, plural, weight, human, is_name = 3, False, DEFINITE, True, True

    def english(self):
        """Gives the name."""
        return self.name

    english_object = english

    def german(self, case):
        """Gives the name, which has no cases."""
        return self.name

    def german_tail(self):
        """Gives nothing."""
        return ""


class Pronoun(NamedTuple):
    """A personal pronoun with its German forms in nominative, accusative and dative."""

    subject: str
    object: str
    person: int
    plural: bool
    cases: tuple[str, str, str]

    weight, human, is_name = PRONOUN, True, False

    def english(self):
        """Gives the form of the subject."""
        return self.subject

    def english_object(self):
        """Gives the form of the object."""
        return self.object

    def german(self, case):
        """Gives the form of the case."""
        return self.cases[("nominative", "accusative", "dative").index(case)]

    def german_tail(self):
        """Gives nothing."""
        return ""


def _pronoun(subject, object_, person, plural, german):
    return Pronoun(subject, object_, person, plural, tuple(german.split()))


I = _pronoun("I", "me", 1, False, "ich mich mir")  # noqa: E741
YOU = _pronoun("you", "you", 2, False, "du dich dir")
HE = _pronoun("he", "him", 3, False, "er ihn ihm")
SHE = _pronoun("she", "her", 3, False, "sie sie ihr")
WE = _pronoun("we", "us", 1, True, "wir uns uns")
THEY = _pronoun("they", "them", 3, True, "sie sie ihnen")
WHO = _pronoun("who", "who", 3, False, "wer wen wem")
WHAT = _pronoun("what", "what", 3, False, "was was was")
_IT = {"m": "er ihn ihm", "f": "sie sie ihr", "n": "es es ihm"}


def it(noun):
    """Gives the pronoun "it" with the gender of the noun that it stands for."""
    return _pronoun("it", "it", 3, False, _IT[noun.gender])


class Both(NamedTuple):
    """Two phrases joined by "and", neither with a relative clause."""

    first: Any
    second: Any

    person, plural, weight, human, is_name = 3, True, DEFINITE, True, False

    def english(self):
        """Gives the English phrase."""
        return f"{self.first.english()} and {self.second.english()}"

    english_object = english

    def german(self, case):
        """Gives the German phrase in a case."""
        return f"{self.first.german(case)} und {self.second.german(case)}"

    def german_tail(self):
        """Gives nothing."""
        return ""


class Prepositional(NamedTuple):
    """A preposition, in German with its case, and a phrase."""

    preposition: str
    german_preposition: str
    case: str
    phrase: Any

    def english(self):
        """Gives the English phrase."""
        return f"{self.preposition} {self.phrase.english_object()}"

    def german(self):
        """Gives the German phrase, contracted (im, zur) unless a relative clause follows."""
        text = f"{self.german_preposition} {self.phrase.german(self.case)}"
        if self.phrase.is_name or getattr(self.phrase, "determiner", "") != "the":
            return text
        preposition, article, rest = text.split(" ", 2)
        contracted = _CONTRACTIONS.get(f"{preposition} {article}")
        if contracted is None or self.phrase.relative is not None:
            return text
        return f"{contracted} {rest}"

    def german_tail(self):
        """Gives the relative clause of the phrase."""
        return self.phrase.german_tail()
