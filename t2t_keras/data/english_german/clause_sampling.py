"""Random clauses: which verbs go with which subjects, objects and places."""

from t2t_keras.data.english_german.clauses import Clause, Relative
from t2t_keras.data.english_german.dice import Weighted
from t2t_keras.data.english_german.lexicon import ADJECTIVES
from t2t_keras.data.english_german.phrase_sampling import (
    BEINGS,
    FURNITURE,
    PERSON,
    PLACE,
    PhraseSampler,
)
from t2t_keras.data.english_german.phrases import YOU, NounPhrase, Prepositional
from t2t_keras.data.english_german.verb_lexicon import FRAMES, MODALS, VERBS

GOODS = ("text", "flat", "clothes", "upright", "vehicle", "part", "food")
THINGS = GOODS[:-1]
OBJECTS = {
    "any": (*BEINGS, "text", "vehicle", "part", "place"),
    "goods": GOODS,
    "own": ("animal", *THINGS),
    "being": BEINGS,
    "person": PERSON,
    "text": ("text",),
    "opening": ("part",),
    "clothes": ("clothes",),
    "machine": ("vehicle",),
    "food": ("food",),
    "feed": ("food",),
}
_OPENINGS = ("door", "window")
_PERSON_FRAMES = Weighted(
    none=12, any=12, goods=14, being=6, person=11, text=4, opening=4, clothes=2, machine=2,
    food=4, dative=9, give=7, wait=2, think=2, speak=2, play=2, dream=2, joy=2, remember=2,
    direction=8, location=2, laying=2, placing=2, own=3,
)  # fmt: skip
_ANIMAL_FRAMES = Weighted(none=8, any=5, being=4, feed=5, dative=2, direction=3, play=1)
_ANIMAL_VERBS = {
    "none": tuple(VERBS[name] for name in ("schlafen", "schwimmen", "aufwachen")),
    "any": tuple(VERBS[name] for name in ("sehen", "finden", "mögen")),
    "dative": (VERBS["folgen"],),
    "direction": tuple(VERBS[name] for name in ("gehen", "laufen")),
}
_PREPOSITIONS = {
    "wait": ("for", "auf", "accusative"),
    "think": ("of", "an", "accusative"),
    "speak": ("with", "mit", "dative"),
    "play": ("with", "mit", "dative"),
    "dream": ("of", "von", "dative"),
    "joy": ("to", "auf", "accusative"),
    "remember": ("", "an", "accusative"),
}
_ON = (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"))
_MODAL_PRESENT = tuple(MODALS[name] for name in ("can", "must", "should", "want", "have"))
_MODAL_PAST = tuple(MODALS[name] for name in ("could", "had", "wanted"))
STATES = ("mögen", "kennen", "brauchen", "haben")
"""Verbs that take no modal here, and no passive."""
_QUANTIFIED = {"every", "all", "many", "some", "no"}
QUALITY = {
    kind: tuple(adjective for adjective in ADJECTIVES.values() if kind in adjective.kinds)
    for kind in "abt"
}


class ClauseSampler:
    """Draws clauses.

    Args:
        dice: a `Dice`.
        depth: how deep clauses may nest.
        nesting: the probability that a noun phrase takes a relative clause where it may.
    """

    def __init__(self, dice, depth=1, nesting=0.13):
        self.dice = dice
        self.phrases = PhraseSampler(dice)
        self.depth = depth
        self._nesting = nesting

    def tense(self, past):
        """Draws (tense, modal)."""
        dice = self.dice
        if dice.chance(0.16):
            modals = _MODAL_PAST if past else _MODAL_PRESENT
            return ("past" if past else "present"), dice.choice(modals)
        if past:
            return "past", None
        return ("present" if dice.chance(0.72) else dice.choice(("perfect", "future"))), None

    def clause(self, past, depth, subject=None, adverbs=True, tense=None, affirmative=False):
        """Draws a clause.

        Args:
            past: whether it is told in the past.
            depth: how deep relative clauses may nest in it.
            subject: its subject; a random being if None.
            adverbs: whether place or time may end it.
            tense: (tense, modal) to use.
            affirmative: whether it must not be negated.
        """
        dice = self.dice
        if subject is None:
            subject = self.related(self.phrases.being(), past, depth, 0.6)
        animal = isinstance(subject, NounPhrase) and subject.noun.kind == "animal"
        frame = dice.weighted(_ANIMAL_FRAMES if animal else _PERSON_FRAMES)
        verbs = FRAMES[frame]
        verb = dice.choice(_ANIMAL_VERBS.get(frame, verbs) if animal else verbs)
        tense, modal = tense or self.tense(past)
        if modal is not None and verb.infinitive in STATES:
            modal = None
        negated = not affirmative and dice.chance(0.13) and may_be_negated(subject)
        clause = Clause(subject, verb, tense, modal, negated)
        clause = self._completed(clause, frame)
        clause = self.cleared(clause)
        if adverbs and dice.chance(0.3):
            if dice.chance(0.55):
                clause = clause._replace(time=self.phrases.time(clause.tense))
            if clause.prepositional is None and clause.predicate is None and dice.chance(0.5):
                clause = clause._replace(place=self.phrases.place())
        elif not negated:
            clause = self._with_relative(clause, past, depth)
        return clause

    def _completed(self, clause, frame):
        """Adds the complements that the frame of the verb asks for."""
        dice, phrases, negated = self.dice, self.phrases, clause.negated
        added = {}
        if frame in OBJECTS:
            added = {"object": self._object(frame, negated, clause.subject)}
        elif frame == "dative":
            added = {"object": phrases.person(True, 0.2, clause.subject)}
        elif frame == "give":
            added = {
                "object": self._phrase(GOODS, negated),
                "recipient": phrases.person(True, 0.25, clause.subject),
                "to_recipient": dice.chance(0.3),
            }
        elif frame in _PREPOSITIONS:
            kinds = ("text", "person") if frame == "joy" else ("person", "person", "animal")
            phrase = phrases.noun_phrase(kinds, definite=negated or frame == "remember")
            added = {"prepositional": Prepositional(*_PREPOSITIONS[frame], phrase)}
        elif frame == "direction":
            return self._directed(clause)
        elif frame == "location":
            added = {"prepositional": phrases.place()}
        elif frame in ("laying", "placing"):
            kinds = ("text", "flat") if frame == "laying" else ("upright",)
            thing = self._phrase(kinds, negated)
            added = {"object": thing, "prepositional": self.beside("accusative")}
        return clause._replace(**added)

    def cleared(self, clause):
        """Gives a modal where the past is unclear (they put) or unusual (du kauftest)."""
        if not (_unclear(clause) or _unusual(clause)):
            return clause
        modals = _MODAL_PAST if clause.tense == "past" else _MODAL_PRESENT
        return clause._replace(modal=self.dice.choice(modals))

    def _directed(self, clause):
        dice, phrases = self.dice, self.phrases
        if dice.chance(0.2):
            return clause._replace(predicate=("home", "nach Hause"))
        if dice.chance(0.25):
            phrase = Prepositional("to", "nach", "dative", phrases.city())
        elif dice.chance(0.5):
            kinds = dice.choice((PLACE, PERSON))
            place = phrases.noun_phrase(kinds, definite=True)
            phrase = Prepositional("to", "zu", "dative", place)
        else:
            place = phrases.noun_phrase(PLACE, definite=True)
            phrase = Prepositional("into", "in", "accusative", place)
        return clause._replace(prepositional=phrase)

    def beside(self, case):
        english, german = self.dice.choice(_ON)
        phrase = self.phrases.noun_phrase(FURNITURE, definite=True)
        while english in ("on", "under") and phrase.noun.english.endswith((*_OPENINGS, "lamp")):
            phrase = self.phrases.noun_phrase(FURNITURE, definite=True)
        return Prepositional(english, german, case, phrase)

    def _object(self, frame, negated, subject):
        dice = self.dice
        if frame in ("being", "person") and dice.chance(0.6):
            return self.phrases.person(negated, 0.3, subject)
        phrase = self._phrase(OBJECTS[frame], negated)
        if frame == "opening":
            while not phrase.noun.english.endswith(_OPENINGS):
                phrase = self._phrase(OBJECTS[frame], negated)
        return phrase

    def _phrase(self, kinds, negated):
        """Draws a phrase which may stand under negation, where "a" and bare become "kein"."""
        if negated and self.dice.chance(0.4):
            plural = self.dice.chance(0.4)
            noun = self.phrases.noun(kinds)
            adjectives = self.phrases.adjectives(noun, False)
            return NounPhrase(noun, "" if plural else "a", plural, adjectives)
        phrase = self.phrases.noun_phrase(kinds, definite=negated)
        if not negated and phrase.determiner in ("a", "every") and self.dice.chance(0.08):
            phrase = phrase._replace(determiner="no")
        return phrase

    def related(self, phrase, past, depth, factor=1.0):
        """Gives the phrase, perhaps with a relative clause."""
        if depth == 0 or not isinstance(phrase, NounPhrase) or phrase.owner is not None:
            return phrase
        if not self.dice.chance(self._nesting * factor):
            return phrase
        return phrase._replace(relative=self._relative(phrase, past, depth - 1))

    def _with_relative(self, clause, past, depth):
        """Gives the last phrase of the clause a relative clause, perhaps."""
        if clause.prepositional is not None:
            prepositional = clause.prepositional
            phrase = self.related(prepositional.phrase, past, depth, 1.5)
            return clause._replace(prepositional=prepositional._replace(phrase=phrase))
        role = "recipient" if clause.to_recipient else "object"
        if getattr(clause, role) is None:
            return clause
        return clause._replace(**{role: self.related(getattr(clause, role), past, depth, 1.5)})

    def _relative(self, head, past, depth):
        dice, phrases = self.dice, self.phrases
        kind = head.noun.kind
        subject = self.related(phrases.person(definite=True), past, depth)
        tense = self.tense(past)
        clause = Clause(subject, VERBS["sehen"], *tense)
        if kind == "place" and dice.chance(0.5):
            verb = dice.choice((*FRAMES["location"], *FRAMES["none"][:5]))
            place = Prepositional("in", "in", "dative", head)
            return Relative(clause._replace(verb=verb, place=place), "place")
        if kind == "person" and dice.chance(0.3):
            return self._relative_of_person(head, clause, past)
        if kind in BEINGS and dice.chance(0.6):
            inner = self.clause(past, depth, subject=head, adverbs=dice.chance(0.5))
            return Relative(inner, "subject")
        if kind not in BEINGS and dice.chance(0.3):
            quality = dice.choice(QUALITY["t"])
            tense = "past" if past else "present"
            clause = Clause(head, VERBS["sein"], tense, predicate=quality_pair(quality))
            if kind in ("food", "place"):
                clause = Clause(head, VERBS[dice.choice(("zeichnen", "sehen"))], tense)
                clause = clause._replace(passive=True, prepositional=self.agent())
            return Relative(clause, "subject")
        frames = [frame for frame, kinds in OBJECTS.items() if kind in kinds]
        frames = [frame for frame in frames if frame not in ("feed", "opening", "machine")]
        verb = dice.choice(FRAMES[dice.choice(frames)])
        negated = dice.chance(0.12) and may_be_negated(subject)
        clause = clause._replace(verb=verb, object=head, negated=negated)
        if verb.infinitive in STATES:
            clause = clause._replace(modal=None)
        return Relative(self.cleared(clause), "object")

    def _relative_of_person(self, head, clause, past):
        """Gives "with whom", "to whom" or "whose"."""
        dice = self.dice
        choice = dice.choice(("prepositional", "recipient", "owner"))
        if choice == "prepositional":
            frame = dice.choice(("wait", "speak", "play"))
            phrase = Prepositional(*_PREPOSITIONS[frame], head)
            return Relative(clause._replace(verb=FRAMES[frame][0], prepositional=phrase), choice)
        if choice == "recipient":
            thing = self.phrases.noun_phrase(THINGS)
            verb = dice.choice(FRAMES["give"])
            clause = clause._replace(verb=verb, object=thing, recipient=head)
            return Relative(clause._replace(to_recipient=True), choice)
        owned = self.phrases.noun(BEINGS)
        adjectives = self.phrases.adjectives(owned, False)
        subject = NounPhrase(owned, "whose", dice.chance(0.2), adjectives)
        return Relative(self.clause(past, 0, subject, adverbs=False), choice)

    def agent(self):
        person = self.phrases.person(definite=True, pronouns=0.1)
        return Prepositional("by", "von", "dative", person)


def quality_pair(adjective):
    return adjective.english, adjective.german


def may_be_negated(subject):
    """Says whether "not" and "nicht" mean the same behind this subject."""
    return not (
        isinstance(subject, NounPhrase)
        and (subject.count or subject.determiner in _QUANTIFIED | {"how many", "whose", ""})
    )


def _unclear(clause):
    """Says whether English has one form for present and past here (they put, they read)."""
    base, past, _ = clause.verb.english
    third = clause.subject.person == 3 and not clause.subject.plural
    spoken_bare = clause.modal is None and not clause.negated and not third
    return base == past and spoken_bare and clause.tense in ("present", "past")


def _unusual(clause):
    """Says whether German would avoid this simple past, that of du."""
    return clause.subject is YOU and clause.tense == "past" and clause.modal is None
