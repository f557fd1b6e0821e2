"""Verb groups: person, tense, modal, passive; what stands second and what stands last."""

from typing import NamedTuple

_BE = {"present": ("am", "are", "is", "are"), "past": ("was", "were", "was", "were")}
_HABEN = ("habe", "hast", "hat", "haben")
_SEIN = ("bin", "bist", "ist", "sind")
_WERDEN = ("werde", "wirst", "wird", "werden")
_WURDE = ("wurde", "wurdest", "wurde", "wurden")
_REFLEXIVE = ("mich", "dich", "sich")


class GermanGroup(NamedTuple):
    """The finite verb, what closes a main clause, and what ends a subordinate clause."""

    finite: str
    bracket: str
    final: str


def _form(subject):
    return 3 if subject.plural else subject.person - 1


def _third(base):
    head, space, particle = base.partition(" ")
    if head == "have":
        head = "has"
    elif head.endswith(("s", "sh", "ch", "x", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + space + particle


def english_group(clause, inverted=False):
    """Gives the English auxiliary (empty if there is none) and the rest of the verb group.

    Args:
        clause: a `clauses.Clause`.
        inverted: whether the auxiliary goes before the subject, which calls for "do".

    Returns:
        (auxiliary, rest): "not" stands between them and is the caller's to write.
    """
    verb, tense, modal, subject = clause.verb, clause.tense, clause.modal, clause.subject
    base, past, participle = verb.english
    form = _form(subject)
    passive = " " + participle if clause.passive else ""
    be = clause.passive or verb.frame == "copula"
    if be:
        base, past, participle = "be" + passive, "", "been" + passive
    third = form == 2
    helped = clause.negated or inverted
    if modal is not None:
        return _english_modal(modal, base, third, helped)
    if tense == "future":
        return "will", base
    if tense == "perfect":
        return "has" if third else "have", participle
    if be:
        return _BE[tense][form], passive.strip()
    if helped:
        return _do(tense == "past", third), base
    present = _third(base) if third else base
    return "", past if tense == "past" else present


def _english_modal(modal, base, third, helped):
    text = modal.english[not third]
    if not modal.helped:
        return text, base
    if not helped:
        return "", f"{text} {base}"
    bare = "have to" if text == "had to" else modal.english[1].replace("wanted", "want")
    return _do(modal.past, third), f"{bare} {base}"


def _do(past, third):
    return "did" if past else "does" if third else "do"


def german_group(clause):
    """Gives the German verb group of a `clauses.Clause`."""
    verb, form = clause.verb, _form(clause.subject)
    infinitive = f"{verb.participle} werden" if clause.passive else verb.infinitive
    participle = f"{verb.participle} worden" if clause.passive else verb.participle
    if clause.modal is not None:
        modal = clause.modal
        return _closed((modal.negated if clause.negated else modal.german)[form], infinitive)
    if clause.tense == "future":
        return _closed(_WERDEN[form], infinitive)
    if clause.tense == "perfect":
        moved = clause.passive or verb.auxiliary == "sein"
        return _closed((_SEIN if moved else _HABEN)[form], participle)
    if clause.passive:
        return _closed((_WURDE if clause.tense == "past" else _WERDEN)[form], verb.participle)
    past = clause.tense == "past"
    finite = _past(verb.german_past, form) if past else verb.german_present[form]
    return GermanGroup(finite, verb.prefix, verb.prefix + finite)


def _closed(finite, last):
    return GermanGroup(finite, last, f"{last} {finite}")


def _past(first, form):
    if form == 1:
        return first + ("est" if first[-1] in "tdsß" else "st")
    if form == 3:
        return first + ("n" if first[-1] == "e" else "en")
    return first


def reflexive(subject):
    """Gives the German accusative reflexive pronoun of a subject."""
    return "uns" if subject.plural and subject.person == 1 else _REFLEXIVE[subject.person - 1]
