"""Clauses and sentences: verb groups and word order in both languages.

A `Clause` says who does what; `statement` and `question` write it in both languages. The German
finite verb is second in a statement and after a question word, first in a yes/no question, last in
a subordinate clause. Infinitive, participle or separable prefix close a main clause.
"""

import re
from typing import Any, NamedTuple

from pipelines.datasets.english_german.lexicon import DETERMINERS, VERBS
from pipelines.datasets.english_german.phrases import relative_clause, relative_pronoun

BE = VERBS["sein"]
_BE = {"present": ("am", "are", "is", "are"), "past": ("was", "were", "was", "were")}
_WERDEN = ("werden", "werde", "wirst", "wird")


class Clause(NamedTuple):
    """A subject, a verb and its complements.

    `tense` is present, past, perfect or future, with a modal verb present or past. `object` has
    the case of the verb, `recipient` the dative. `complement` is a `Prepositional` or, of "be", an
    adjective; `place` is a `Prepositional`, `time` an adverb, `embedded` an `Embedded` clause.
    "du" has no past.
    """

    subject: Any
    verb: Any
    tense: str = "present"
    modal: Any = None
    negated: bool = False
    object: Any = None
    recipient: Any = None
    complement: Any = None
    place: Any = None
    time: Any = None
    embedded: Any = None


class Embedded(NamedTuple):
    """A subordinate clause after a conjunction."""

    conjunction: Any
    clause: Clause

    @property
    def english(self):
        return f"{self.conjunction.english} {_english_clause(self.clause)}"

    @property
    def german(self):
        return f", {self.conjunction.german} {_german_clause(self.clause)} ,"


class Relative(NamedTuple):
    """A relative clause. The field `gap` of its clause holds the head, which is left out there."""

    clause: Clause
    gap: str

    def english(self, head):
        human = head.kind == "person"
        if self.gap == "subject":
            return f"{'who' if human else 'that'} {_english_clause(self.clause, subject=False)}"
        pronoun = "whom" if human else "that"
        if self.gap == "complement":
            preposition = self.clause.complement.prepositions[0]
            pronoun = f"{preposition} {'whom' if human else 'which'}"
        return f"{pronoun} {_english_clause(self.clause._replace(**{self.gap: None}))}"

    def german(self, head):
        """Returns the German clause without commas."""
        clause = self.clause
        if self.gap == "subject":
            return f"{relative_pronoun(head, 'nominative')} {_german_clause(clause, subject=False)}"
        preposition = clause.complement.prepositions[1] if self.gap == "complement" else ""
        rest = _german_clause(clause._replace(**{self.gap: None}))
        return f"{preposition} {relative_pronoun(head, clause.verb.case)} {rest}"


def _form(subject):
    """Returns the index of the verb form that agrees with a subject: ich, du, er or wir."""
    return 3 if subject.plural else subject.person - 1


def _english_verbs(clause, do):
    """Returns the English auxiliary, empty only without `do`, and the rest of the verb group."""
    base, third, past, participle = clause.verb.english_forms
    is_third, is_past = _form(clause.subject) == 2, clause.tense == "past"
    if clause.modal:
        forms = clause.modal.english_forms
        if not forms[0].endswith(" to"):
            return forms[2 if is_past else 0], base
        base, third, past = (f"{form} {base}" for form in forms)
    elif clause.tense == "future":
        return "will", base
    elif clause.tense == "perfect":
        return "has" if is_third else "have", participle
    elif clause.verb is BE:
        return _BE[clause.tense][_form(clause.subject)], ""
    if do:
        return "did" if is_past else "does" if is_third else "do", base
    return "", past if is_past else third if is_third else base


def _german_verbs(clause):
    """Returns the finite verb and what closes the clause: infinitive, participle or prefix."""
    verb, form = clause.verb, _form(clause.subject)
    infinitive, participle = (verb.prefix + verb.german_forms[index] for index in (0, 5))
    if clause.modal:
        return _finite(clause.modal.german_forms, clause.tense, form), infinitive
    if clause.tense == "future":
        return _finite(_WERDEN, "present", form), infinitive
    if clause.tense == "perfect":
        return _finite(VERBS[verb.auxiliary].german_forms, "present", form), participle
    return _finite(verb.german_forms, clause.tense, form), verb.prefix


def _finite(forms, tense, form):
    if tense == "past":
        past = forms[4]
        return past if form < 3 else past + ("n" if past[-1] == "e" else "en")
    if form < 3:
        return forms[1 + form]
    return "sind" if forms[0] == "sein" else forms[0]


def _english_clause(clause, subject=True, inverted=False):
    """Returns an English clause, with or without its subject; inverted, the auxiliary is first."""
    auxiliary, verb = _english_verbs(clause, do=clause.negated or inverted)
    words = [clause.subject.english if subject else "", auxiliary]
    if inverted:
        words.reverse()
    objects = [phrase.english_object for phrase in (clause.recipient, clause.object) if phrase]
    if clause.object and clause.object.group == "pronoun":  # picks him up, but picks up the boy
        objects.append(clause.verb.particle)
    else:
        objects.insert(0, clause.verb.particle)
    words += ["not" if clause.negated else "", verb, *objects]
    ends = (clause.complement, clause.place, clause.time, clause.embedded)
    words += [item.english for item in ends if item]
    return " ".join(filter(None, words)).replace("can not", "cannot")


def _german_subject(clause):
    return clause.subject.german("nominative") + relative_clause(clause.subject)


def _german_clause(clause, front=None, subject=True):
    """Returns a German clause; its finite verb is last, or second after the text `front`.

    The order of the other words is: subject, pronouns (accusative before dative), time, dative,
    accusative, "nicht", place, complement; "kein" replaces "nicht ein". After the verbs are the
    relative clause of the last one of these, unless that is the subject, and the embedded clause.
    """
    finite, closing = _german_verbs(clause)
    words = [_german_subject(clause)] if subject else []
    object_, nicht = clause.object, clause.negated
    if nicht and object_ and object_.group == "a":
        object_, nicht = object_._replace(determiner=DETERMINERS["no"]), False
    phrases = [(clause.recipient, "dative"), (object_, clause.verb.case)]
    phrases = [(phrase, phrase.german(case)) for phrase, case in phrases if phrase]
    words += [text for phrase, text in reversed(phrases) if phrase.group == "pronoun"]
    items = [(clause.time, clause.time.german)] if clause.time else []
    items += [(phrase, text) for phrase, text in phrases if phrase.group != "pronoun"]
    items += [(None, "nicht")] if nicht else []
    items += [(item, item.german) for item in (clause.place, clause.complement) if item]
    words += [text + relative_clause(item) for item, text in items[:-1]]
    words += [text for _, text in items[-1:]]
    rest = [relative_clause(items[-1][0])] if items else []
    rest += [clause.embedded.german] if clause.embedded else []
    if front is not None:
        order = [front, finite, *words, closing]
    elif closing == clause.verb.prefix:
        order = [*words, closing + finite]
    else:
        order = [*words, closing, finite]
    return " ".join([*order, *rest])


def statement(clause, front=None, mark="."):
    """Returns the English and the German statement.

    It begins with `front`, an adverb, a `Prepositional` or an `Embedded` clause, or the subject.
    """
    english = _english_clause(clause)
    if front:
        english = f"{front.english}{',' if isinstance(front, Embedded) else ''} {english}"
        german = _german_clause(clause, front.german + relative_clause(front))
    else:
        german = _german_clause(clause, _german_subject(clause), subject=False)
    return _written(english, mark), _written(german, mark)


def question(clause, adverb=None):
    """Returns the English and the German question, with inversion.

    It asks for the `adverb`, else for an object of group `question`, else for yes or no.
    """
    english, german = (adverb.english, adverb.german) if adverb else ("", "")
    if clause.object and clause.object.group == "question":
        english, german = clause.object.english, clause.object.german(clause.verb.case)
        clause = clause._replace(object=None)
    english = f"{english} {_english_clause(clause, inverted=True)}"
    return _written(english, "?"), _written(_german_clause(clause, german), "?")


def _written(text, mark):
    """Returns a sentence with a capital, a final mark, and single spaces and commas."""
    text = re.sub("( ?,)+", ",", " ".join(text.split())).strip(", ")
    return text[0].upper() + text[1:] + mark
