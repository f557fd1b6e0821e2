"""Random sentence pairs of six kinds: plain, fronted, subordinate, relative, yes/no, wh."""

import random

from pipelines.datasets.english_german import clauses, lexicon
from pipelines.datasets.english_german.phrases import WORDS, NounPhrase, Prepositional


def _by(field, rows):
    """Returns {value: the rows that have it in a field}; a field may hold several values."""
    table = {}
    for row in rows:
        values = getattr(row, field)
        for value in (values,) if isinstance(values, str) else values:
            table.setdefault(value, []).append(row)
    return table


# Lists to choose from; what is listed n times is n times as frequent.
_SENTENCES = 11 * ["plain"] + 9 * ["fronted", "subordinate"] + 7 * ["relative", "yes_no", "wh"]
_BEING = ["person", "person", "animal"]
_SUBJECT = 5 * _BEING + ["food", "text", "thing", "opening", "place"]
_PRESENT = 12 * [("present", None)] + 4 * [("perfect", None), ("future", None)]
_PRESENT += [("present", modal) for modal in lexicon.MODALS]
_PAST = 17 * [("past", None)]
_PAST += [("past", modal) for modal in lexicon.MODALS if len(modal.english_forms) > 2]
_PREPOSITIONS = [("in", "in"), ("in", "in"), ("behind", "hinter")]
_NOUNS = _by("kind", lexicon.NOUNS)
_ADJECTIVES = _by("kinds", lexicon.ADJECTIVES)
_FIRST, _SECOND = (_by("kinds", rows) for rows in _by("group", lexicon.ADJECTIVES).values())
_WORDS = _by("group", WORDS.values())
_PRONOUNS = _WORDS["pronoun"] + [WORDS["I"], WORDS["you"]]
_ADVERBS = {group: _by("tenses", rows) for group, rows in _by("group", lexicon.ADVERBS).items()}
_THAT, *_rows = lexicon.CONJUNCTIONS
_CONJUNCTIONS = _by("tenses", _rows)
_VERBS_OF_OBJECT = _by("objects", lexicon.VERBS.values())
_VERBS = [verb for verb in lexicon.VERBS.values() if "clause" not in verb.objects]
_VERBS_OF_SUBJECT = _by("subjects", _VERBS + 3 * [clauses.BE])
_OBJECT_VERBS = [verb for verb in _VERBS if verb.case and not verb.preposition]
_DETERMINERS = {
    group: [(row, False) for row in rows for _ in range(row.singular)]
    + [(row, True) for row in rows for _ in range(row.plural)]
    for group, rows in _by("group", lexicon.DETERMINERS.values()).items()
}
_DETERMINERS["any"] = [
    pair for group in ("definite", "a", "every", "number") for pair in _DETERMINERS[group]
]


class Sampler:
    """Draws sentence pairs, the same ones for the same arguments.

    It has its own random numbers. All come from `Random.random`, whose values are the same in every
    version of Python. Relative and subordinate clauses nest to `depth`; `relative_rate` is the
    probability of a relative clause wherever one is possible.
    """

    def __init__(self, seed, depth=1, relative_rate=0.05):
        self._random = random.Random(seed).random
        self._depth = depth
        self._relative_rate = relative_rate

    def pair(self):
        """Returns an (English, German) pair of sentences."""
        return getattr(self, f"_{self._choice(_SENTENCES)}")(self._chance(0.4), self._depth)

    def _chance(self, probability):
        return self._random() < probability

    def _choice(self, items):
        return items[int(self._random() * len(items))]

    # The six kinds: (whether the sentence tells of the past, depth) → (English, German).

    def _plain(self, past, depth):
        return clauses.statement(self._clause(past, depth))

    def _fronted(self, past, depth):
        clause = self._clause(past, depth, adverbial=False)
        if clause.verb is clauses.BE or self._chance(0.3):
            return clauses.statement(clause, self._adverb("sentence", clause))
        if clause.complement or self._chance(0.5):
            return clauses.statement(clause, self._adverb("time", clause))
        return clauses.statement(clause, self._place())

    def _subordinate(self, past, depth):
        if self._chance(0.3):
            subject = self._phrase(["person"], past, depth - 1)
            verb = self._choice(_VERBS_OF_OBJECT["clause"])
            embedded = self._embedded(past or self._chance(0.3), depth, _THAT)
            tense, modal = self._tense(past, subject)
            return clauses.statement(clauses.Clause(subject, verb, tense, modal, embedded=embedded))
        main, embedded = self._clause(past, depth - 1, adverbial=False), self._embedded(past, depth)
        if self._chance(0.4):
            return clauses.statement(main, front=embedded)
        return clauses.statement(main._replace(embedded=embedded))

    def _relative(self, past, depth):
        subject = verb = object_ = None
        if self._chance(0.5):
            subject = self._with_relative(self._noun_phrase(_BEING), past, depth)
        else:
            verb = self._choice(_OBJECT_VERBS)
            object_ = self._with_relative(self._noun_phrase(verb.objects), past, depth)
        return clauses.statement(self._clause(past, depth - 1, subject, verb, object_))

    def _yes_no(self, past, depth):
        subject = WORDS["you"] if self._chance(0.25) else None
        return clauses.question(self._clause(past, depth, subject))

    def _wh(self, past, depth):
        asked = self._choice(["subject", "object", "which", "adverb"])
        if asked == "subject":
            return clauses.statement(self._clause(past, depth, WORDS["who"]), mark="?")
        if asked == "adverb":
            clause = self._clause(past, depth, adverbial=False)
            group = "question" if clause.complement or self._chance(0.5) else "where"
            return clauses.question(clause, self._adverb(group, clause))
        verb = self._choice(_OBJECT_VERBS)
        object_ = WORDS["who" if self._choice(verb.objects) in _BEING else "what"]
        if asked == "which":
            object_ = self._noun_phrase(verb.objects, "question")
        return clauses.question(self._clause(past, depth, verb=verb, governed=object_))

    # Clauses and phrases.

    def _clause(self, past, depth, subject=None, verb=None, governed=None, adverbial=True):
        """Draws a clause and what of it is not given; an `adverbial` one may end in place or time.

        `governed` is the object or the phrase after the verb's preposition.
        """
        subject = subject or self._phrase(verb.subjects if verb else _SUBJECT, past, depth)
        verb = verb or self._choice(_VERBS_OF_SUBJECT[subject.kind])
        negated = self._chance(0.12) and subject.group != "every"
        negated = negated and not (governed and governed.group in ("a", "every", "number"))
        clause = clauses.Clause(subject, verb, *self._tense(past, subject), negated)
        if verb is clauses.BE:
            place = subject.kind != "place" and self._chance(0.25)
            predicate = self._place() if place else self._choice(_ADJECTIVES[subject.kind])
            return clause._replace(modal=None, complement=predicate)
        if verb.objects and not governed:
            group = "any"
            if negated:
                group = "a" if not verb.preposition and self._chance(0.4) else "definite"
            governed = self._phrase(verb.objects, past, depth, group, subject)
        if verb.preposition:
            phrase = Prepositional(verb.preposition, verb.case, governed)
            clause = clause._replace(complement=phrase)
        elif verb.objects:
            clause = clause._replace(object=governed)
        if verb.recipients:
            group = "definite" if negated else "any"
            recipient = self._phrase(verb.recipients, past, 0, group, subject)
            clause = clause._replace(recipient=recipient)
        if adverbial and self._chance(0.3) and not (governed and governed.relative):
            if clause.complement or self._chance(0.6):
                return clause._replace(time=self._adverb("time", clause))
            return clause._replace(place=self._place())
        return clause

    def _tense(self, past, subject):
        """Draws a tense and a modal verb or None."""
        if past and subject is WORDS["you"]:
            return "perfect", None
        return self._choice(_PAST if past else _PRESENT)

    def _embedded(self, past, depth, conjunction=None):
        clause = self._clause(past, depth - 1, adverbial=self._chance(0.2))
        if depth > 1 and self._chance(0.5):
            clause = clause._replace(embedded=self._embedded(past, depth - 1))
        return clauses.Embedded(conjunction or self._choice(_CONJUNCTIONS[clause.tense]), clause)

    def _phrase(self, kinds, past, depth, group="any", subject=None):
        """Draws a phrase of one of some kinds; as object of a subject never "I see me"."""
        kind = self._choice(kinds)
        if kind == "person":
            if self._chance(0.35):
                pronoun = self._choice(_PRONOUNS)
                if subject is None or pronoun.person == 3 or pronoun.person != subject.person:
                    return pronoun
            if self._chance(0.15):
                return self._choice(_WORDS["name"])
        phrase = self._noun_phrase([kind], group)
        if depth > 0 and self._chance(self._relative_rate):
            return self._with_relative(phrase, past, depth)
        return phrase

    def _noun_phrase(self, kinds, group="any"):
        kind = self._choice(kinds)
        determiner, plural = self._choice(_DETERMINERS[group])
        tables = ((_FIRST, 0.2), (_SECOND, 0.15))
        adjectives = tuple(self._choice(t[kind]) for t, rate in tables if self._chance(rate))
        owner = None
        if determiner.english == "the" and self._chance(0.2):
            owner = self._choice(_WORDS["name"])
            if self._chance(0.4):
                owner = NounPhrase(self._choice(_NOUNS["person"]))
        return NounPhrase(self._choice(_NOUNS[kind]), determiner, plural, adjectives, owner)

    def _with_relative(self, head, past, depth):
        """Returns the head with a relative clause, and without an owner."""
        head = head._replace(owner=None)
        if self._chance(0.5 if head.kind in _BEING else 0.25):
            clause = self._clause(past, depth - 1, head, adverbial=self._chance(0.3))
            return head._replace(relative=clauses.Relative(clause, "subject"))
        verb = self._choice(_VERBS_OF_OBJECT[head.kind])
        clause = self._clause(past, depth - 1, verb=verb, governed=head, adverbial=False)
        gap = "complement" if verb.preposition else "object"
        return head._replace(relative=clauses.Relative(clause, gap))

    def _place(self):
        phrase = self._noun_phrase(["place"], "definite")
        return Prepositional(self._choice(_PREPOSITIONS), "dative", phrase)

    def _adverb(self, group, clause):
        return self._choice(_ADVERBS[group][clause.tense])
