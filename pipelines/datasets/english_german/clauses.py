"""Clauses and sentences: verb groups and word order in both languages.

A `Clause` says who does what; `statement` and `question` write it in both languages. The German
finite verb is second in a statement and after a question word, first in a yes/no question, last in
a subordinate clause. Infinitive, participle or separable prefix close a main clause.
"""

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
        """The English clause."""
        return f"{self.conjunction.english} {english_clause(self.clause)}"

    @property
    def german(self):
        """The German clause between commas."""
        return f", {self.conjunction.german} {_verb_last(self.clause)} ,"


class Relative(NamedTuple):
    """A relative clause. The field `gap` of its clause holds the head, which is left out there."""

    clause: Clause
    gap: str

    def english(self, head):
        """Returns the English clause."""
        human = head.kind == "person"
        if self.gap == "subject":
            return f"{'who' if human else 'that'} {english_clause(self.clause, subject=False)}"
        pronoun = "whom" if human else "that"
        if self.gap == "complement":
            preposition = self.clause.complement.prepositions[0]
            pronoun = f"{preposition} {'whom' if human else 'which'}"
        return f"{pronoun} {english_clause(self.clause._replace(**{self.gap: None}))}"

    def german(self, head):
        """Returns the German clause without commas."""
        clause = self.clause
        if self.gap == "subject":
            return f"{relative_pronoun(head, 'nominative')} {_verb_last(clause, subject=False)}"
        preposition = clause.complement.prepositions[1] if self.gap == "complement" else ""
        rest = _verb_last(clause._replace(**{self.gap: None}))
        return f"{preposition} {relative_pronoun(head, clause.verb.case)} {rest}"


def _form(subject):
    """Returns the index of the verb form that agrees with a subject: ich, du, er or wir."""
    return 3 if subject.plural else subject.person - 1


def english_verbs(clause, do):
    """Returns the English auxiliary, perhaps empty, and the rest of the verb group.

    With `do` there is an auxiliary, as a negation and a question need it.
    """
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


def german_verbs(clause):
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


def english_clause(clause, subject=True, inverted=False):
    """Returns an English clause, with or without its subject; inverted, the auxiliary is first."""
    auxiliary, verb = english_verbs(clause, do=clause.negated or inverted)
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


def _middle_and_rest(clause, subject):
    """Returns the German words between the finite and the closing verb and those after both.

    Between are: subject, pronouns (accusative before dative), time, dative, accusative, "nicht",
    place, complement; "kein" replaces "nicht ein". After are the relative clause of the last one of
    these, unless that is the subject, and the embedded clause.
    """
    words, object_, nicht = [], clause.object, clause.negated
    if subject:
        words.append(clause.subject.german("nominative") + relative_clause(clause.subject))
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
    moved = relative_clause(items[-1][0]) if items else ""
    embedded = clause.embedded.german if clause.embedded else ""
    return " ".join(words), f"{moved} {embedded}"


def _verb_last(clause, subject=True):
    finite, closing = german_verbs(clause)
    last = closing + finite if closing == clause.verb.prefix else f"{closing} {finite}"
    middle, rest = _middle_and_rest(clause, subject)
    return f"{middle} {last} {rest}"


def _verb_second(front, clause, subject=True):
    finite, closing = german_verbs(clause)
    middle, rest = _middle_and_rest(clause, subject)
    return f"{front} {finite} {middle} {closing} {rest}"


def statement(clause, front=None, mark="."):
    """Returns the English and the German statement.

    Args:
        clause: `Clause`.
        front: an adverb, a `Prepositional` or an `Embedded` clause to begin with; None: the
            subject.
        mark: the final mark: "?" if the subject is a question word.
    """
    english = english_clause(clause)
    if front:
        english = f"{front.english}{',' if isinstance(front, Embedded) else ''} {english}"
        german = _verb_second(front.german + relative_clause(front), clause)
    else:
        subject = clause.subject.german("nominative") + relative_clause(clause.subject)
        german = _verb_second(subject, clause, subject=False)
    return _written(english, mark), _written(german, mark)


def question(clause, adverb=None):
    """Returns the English and the German question, with inversion.

    Args:
        clause: `Clause`. An object of group `question` is asked for.
        adverb: the question word; None: the object is asked for, or yes or no.
    """
    english, german = (adverb.english, adverb.german) if adverb else ("", "")
    if clause.object and clause.object.group == "question":
        english, german = clause.object.english, clause.object.german(clause.verb.case)
        clause = clause._replace(object=None)
    english = f"{english} {english_clause(clause, inverted=True)}"
    return _written(english, "?"), _written(_verb_second(german, clause), "?")


def _written(text, mark):
    """Returns a sentence with a capital, a final mark, and single spaces and commas."""
    text = " ".join(text.split()).replace(" ,", ",")
    while ",," in text:
        text = text.replace(",,", ",")
    text = text.strip(", ")
    return text[0].upper() + text[1:] + mark
