"""Clauses and sentences: the word order of both languages."""

from typing import Any, NamedTuple

from t2t_keras.data.english_german.phrases import (
    DEFINITE,
    INDEFINITE,
    PRONOUN,
    NounPhrase,
    Prepositional,
    relative_pronoun,
)
from t2t_keras.data.english_german.verb_lexicon import Modal, Verb
from t2t_keras.data.english_german.verbs import english_group, german_group, reflexive


class Clause(NamedTuple):
    """A subject, a verb and what the verb takes.

    `object` stands in the case that the verb asks for, `recipient` in the dative (English puts
    it behind the object if `to_recipient`), `prepositional` close to the verb, `place` and
    `time` (an (English, German) pair) freely; `predicate` is an (English, German) pair;
    `complements` are `Embedded` or `Infinitive` clauses.
    """

    subject: Any
    verb: Verb
    tense: str = "present"
    modal: Modal | None = None
    negated: bool = False
    object: Any = None
    recipient: Any = None
    to_recipient: bool = False
    prepositional: Prepositional | None = None
    predicate: tuple[str, str] | None = None
    place: Prepositional | None = None
    time: tuple[str, str] | None = None
    complements: tuple[Any, ...] = ()
    passive: bool = False


class Embedded(NamedTuple):
    """A subordinate clause behind a conjunction or a question word."""

    conjunction: str
    german_conjunction: str
    clause: Clause

    def english(self):
        """Gives the English clause."""
        return f"{self.conjunction} {english_clause(self.clause)}"

    def german(self):
        """Gives the German clause between commas, its verb at the end."""
        return f" , {self.german_conjunction} {_verb_final(self.clause)} ,"


class Infinitive(NamedTuple):
    """An infinitive clause, whose subject is that of the clause above; or a purpose."""

    clause: Clause
    purpose: bool = False

    def english(self):
        """Gives the English clause."""
        clause = self.clause
        to = "in order to" if self.purpose else "not to" if clause.negated else "to"
        return f"{to} {clause.verb.english[0]}{_english_tail(clause, '')}"

    def german(self):
        """Gives the German clause between commas."""
        middle, moved = _middle(self.clause, "", subject=False)
        um = " um" * self.purpose
        return f" ,{um}{middle} {self.clause.verb.zu_infinitive}{moved} ,"


class Relative(NamedTuple):
    """A relative clause: its `gap` names the role of its head.

    The head itself stands in that role of the clause, where it is not spoken; with the gap
    `owner` the subject of the clause has the determiner "whose" and belongs to the head.
    """

    clause: Clause
    gap: str

    def english(self, head):
        """Gives the English clause behind its head."""
        clause, gap = self.clause, self.gap
        who = "whom" if head.human else "that"
        if gap == "owner":
            return english_clause(clause)
        if gap == "subject":
            return f"{'who' if head.human else 'that'}{english_clause(clause, gap)}"
        if gap == "object":
            return f"{who} {english_clause(clause, gap)}"
        preposition = "to" if gap == "recipient" else getattr(clause, gap).preposition
        which = "whom" if head.human else "which"
        return f"{preposition} {which} {english_clause(clause, gap)}"

    def german(self, head):
        """Gives the German clause without its commas."""
        clause, gap = self.clause, self.gap
        if gap == "owner":
            front = f"{relative_pronoun(head, 'genitive')} {clause.subject.german('nominative')}"
            return f"{front} {_verb_final(clause, 'subject')}"
        if gap == "subject":
            front = relative_pronoun(head, "nominative")
        elif gap == "object":
            front = relative_pronoun(head, _object_case(clause))
        elif gap == "recipient":
            front = relative_pronoun(head, "dative")
        else:
            phrase = getattr(clause, gap)
            front = f"{phrase.german_preposition} {relative_pronoun(head, phrase.case)}"
        return f"{front} {_verb_final(clause, gap)}"


def english_clause(clause, gap="", inverted=False):
    """Gives an English clause; `gap` is the role left out, `inverted` asks a question."""
    auxiliary, rest = english_group(clause, inverted)
    subject = "" if gap == "subject" else clause.subject.english()
    words = [auxiliary, subject] if inverted else [subject, auxiliary]
    if clause.negated:
        if auxiliary == "can" and not inverted:
            words[-1] = "cannot"
        else:
            words.append("not")
    particle = ""
    has_object = clause.object is not None and gap != "object"
    if has_object and " " in clause.verb.english[0] and clause.object.weight == PRONOUN:
        rest, particle = rest.rsplit(" ", 1)  # picks him up
    words.append(rest)
    text = " ".join(word for word in words if word)
    text = " " + text if gap == "subject" else text
    return text + _english_tail(clause, gap, particle)


def _english_tail(clause, gap, particle=""):
    parts = []
    if clause.recipient is not None and gap != "recipient" and not clause.to_recipient:
        parts.append(clause.recipient.english_object())
    if clause.object is not None and gap != "object":
        parts.append(clause.object.english_object())
    if particle:
        parts.append(particle)
    if clause.recipient is not None and gap != "recipient" and clause.to_recipient:
        parts.append("to " + clause.recipient.english_object())
    if clause.predicate is not None:
        parts.append(clause.predicate[0])
    parts.extend(
        getattr(clause, role).english()
        for role in ("prepositional", "place")
        if getattr(clause, role) is not None and gap != role
    )
    if clause.time is not None:
        parts.append(clause.time[0])
    parts.extend(complement.english() for complement in clause.complements)
    return "".join(" " + part for part in parts)


def _object_case(clause):
    return "dative" if clause.verb.frame == "dative" else "accusative"


def _negated_by_kein(phrase):
    return (
        isinstance(phrase, NounPhrase)
        and phrase.determiner in ("a", "")
        and not phrase.count
        and phrase.owner is None
    )


def _middle(clause, gap, subject, open_subject=False):
    """Gives what stands between the brackets of a German clause.

    Args:
        clause: the clause.
        gap: the role that is spoken elsewhere.
        subject: whether the subject stands here.
        open_subject: whether a relative clause of the subject may move as well.

    Returns:
        (middle, moved): the words, each after a space; then the relative clause that moves
        behind the closing bracket because its head is the last phrase before it.
    """
    items = []
    if subject:
        phrase = clause.subject
        items.append((phrase.german("nominative"), phrase.german_tail()))
    if clause.verb.reflexive:
        before = bool(items) and clause.subject.weight != PRONOUN
        items.insert(0 if before else len(items), (reflexive(clause.subject), ""))
    fixed = 0 if open_subject else len(items)
    object_, recipient = clause.object, clause.recipient
    kein = clause.negated and gap != "object" and _negated_by_kein(object_)
    if kein:
        object_ = object_._replace(determiner="no")
    phrases = [(recipient, "dative")] if recipient is not None and gap != "recipient" else []
    if object_ is not None and gap != "object":
        phrases.append((object_, _object_case(clause)))

    def spoken(weight):
        return [
            (phrase.german(case), phrase.german_tail())
            for phrase, case in phrases
            if phrase.weight == weight
        ]

    items += spoken(PRONOUN)[::-1]  # er gibt es ihr, but dem Kind das Buch
    items += spoken(DEFINITE)
    if clause.time is not None:
        items.append((clause.time[1], ""))
    if clause.negated and not kein:
        items.append(("nicht", ""))
    if clause.place is not None and gap != "place":
        items.append((clause.place.german(), clause.place.german_tail()))
    items += spoken(INDEFINITE)
    if clause.predicate is not None:
        items.append((clause.predicate[1], ""))
    if clause.prepositional is not None and gap != "prepositional":
        items.append((clause.prepositional.german(), clause.prepositional.german_tail()))
    moved = ""
    if len(items) > fixed:
        text, moved = items[-1]
        items[-1] = (text, "")
    return "".join(f" {text}{tail}" for text, tail in items), moved


def _complements(clause):
    return "".join(complement.german() for complement in clause.complements)


def _verb_final(clause, gap=""):
    middle, moved = _middle(clause, gap, subject=gap != "subject")
    return f"{middle} {german_group(clause).final}{moved}{_complements(clause)}"


def _verb_first(clause, gap=""):
    """Gives the German clause from its finite verb on."""
    group = german_group(clause)
    middle, moved = _middle(clause, gap, subject=gap != "subject", open_subject=True)
    return f" {group.finite}{middle} {group.bracket}{moved}{_complements(clause)}"


def statement(clause, front=None, before=None):
    """Gives a main clause in both languages, without capital and full stop.

    Args:
        clause: the main clause.
        front: an (English, German) adverb before it; the German verb stays second.
        before: an `Embedded` clause before it.

    Returns:
        (english, german)
    """
    english = english_clause(clause)
    if before is not None:
        return f"{before.english()}, {english}", f"{before.german()} {_verb_first(clause)}"
    if front is not None:
        return f"{front[0]} {english}", f"{front[1]} {_verb_first(clause)}"
    subject = clause.subject.german("nominative") + clause.subject.german_tail()
    return english, subject + _verb_first(clause, "subject")


def question(clause, asked=("", ""), gap=""):
    """Gives a direct question in both languages.

    Args:
        clause: what is asked about.
        asked: (English, German) question phrase; empty for a question of yes or no.
        gap: the role of the question phrase, left out of the clause.
    """
    english = f"{asked[0]} {english_clause(clause, gap, inverted=True)}"
    return english, asked[1] + _verb_first(clause, gap)


def joined(first, conjunction, second):
    """Joins two main clauses by an (English, German) conjunction with its comma, if any."""
    return tuple(
        f"{left} {link} {right}"
        for left, link, right in zip(first, conjunction, second, strict=True)
    )


def written(pair, mark="."):
    """Writes both sentences as text: commas, spaces, the capital and the final mark."""
    return tuple(_written(text, mark) for text in pair)


def _written(text, mark):
    text = " ".join(f"{text} {mark}".split())
    text = text.replace(" ,", ",").replace(" " + mark, mark)
    while ",," in text:
        text = text.replace(",,", ",")
    text = text.replace("," + mark, mark).removeprefix(", ")
    return text[0].upper() + text[1:]
