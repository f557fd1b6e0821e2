"""Random noun phrases and adverbs."""

from t2t_keras.data.english_german.dice import Weighted
from t2t_keras.data.english_german.lexicon import (
    ADJECTIVES,
    CITIES,
    COMPOUND_NOUNS,
    NAMES,
    SIMPLE_NOUNS,
    SUPERLATIVES,
)
from t2t_keras.data.english_german.phrases import (
    HE,
    SHE,
    THEY,
    WE,
    YOU,
    Both,
    I,
    Name,
    NounPhrase,
    Prepositional,
    number_words,
)

BEINGS = ("person", "animal")
PERSON = ("person",)
FURNITURE = ("part",)
PLACE = ("place",)

_ADJECTIVE_KIND = {"person": "b", "animal": "a", "food": "f", "place": "p"}
_SIZES = ("big", "small", "beautiful", "expensive", "cheap", "clean", "dirty", "good", "poor")
_FIRST = {
    kind: tuple(ADJECTIVES[word] for word in _SIZES if kind in ADJECTIVES[word].kinds)
    for kind in "abtfp"
}
_ONLY = {
    kind: tuple(adjective for adjective in ADJECTIVES.values() if kind in adjective.kinds)
    for kind in "abtfp"
}
_SECOND = {
    kind: tuple(adjective for adjective in _ONLY[kind] if adjective.english not in _SIZES)
    for kind in "abtfp"
}
_SUPERLATIVE = {
    kind: tuple(adjective for adjective in SUPERLATIVES.values() if kind in adjective.kinds)
    for kind in "abtfp"
}
_POSSESSIVES = ("my", "your", "his", "her", "our", "their")
_DETERMINERS = Weighted(
    the=34, a=18, possessive=11, this=5, every=3, owner=5,
    the_plural=7, possessive_plural=2, these=2, bare=4, number=12, many=2, some=2, all=2,
)  # fmt: skip
_DEFINITE = Weighted(the=24, possessive=8, this=3, owner=3, the_plural=5, these=1)
# "du" has verb forms of its own, each too rare to be learned if it were drawn as often.
_SUBJECT_PRONOUNS = (I, I, HE, HE, SHE, SHE, WE, WE, THEY, THEY, YOU)
_CITY_NAMES = dict(CITIES)


class City(Name):
    """The name of a city: (English, German)."""

    def german(self, case):
        """Gives the German name, which has no cases."""
        return _CITY_NAMES[self.name]


TIMES = {
    "present": (
        ("today", "heute"), ("now", "jetzt"), ("every day", "jeden Tag"),
        ("in the morning", "am Morgen"), ("in the evening", "am Abend"),
        ("at night", "in der Nacht"), ("in the summer", "im Sommer"),
    ),
    "past": (
        ("yesterday", "gestern"), ("last week", "letzte Woche"), ("in the morning", "am Morgen"),
        ("in the evening", "am Abend"), ("in the summer", "im Sommer"),
    ),
    "perfect": (("today", "heute"), ("this week", "diese Woche"), ("this year", "dieses Jahr")),
    "future": (
        ("tomorrow", "morgen"), ("next week", "nächste Woche"), ("today", "heute"),
        ("in the evening", "am Abend"), ("in the summer", "im Sommer"),
    ),
}  # fmt: skip
_FRONTS = (
    ("perhaps", "vielleicht"), ("unfortunately,", "leider"), ("of course", "natürlich"),
    ("sometimes", "manchmal"), ("often", "oft"),
)  # fmt: skip
_DAYS = (
    ("Monday", "Montag"), ("Tuesday", "Dienstag"), ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"), ("Friday", "Freitag"), ("Sunday", "Sonntag"),
)  # fmt: skip


class PhraseSampler:
    """Draws phrases from a `Dice`."""

    def __init__(self, dice):
        self.dice = dice

    def noun(self, kinds):
        """Draws a noun of one of the kinds; furniture is compound half the time."""
        kind = self.dice.choice(kinds)
        if kind == "part" and self.dice.chance(0.6):
            return self.dice.choice(COMPOUND_NOUNS)
        return self.dice.choice(_BY_KIND[kind])

    def adjectives(self, noun, superlative):
        """Draws no, one or two adjectives that suit the noun."""
        dice, kind = self.dice, _ADJECTIVE_KIND.get(noun.kind, "t")
        if superlative and dice.chance(0.06):
            return (dice.choice(_SUPERLATIVE[kind]),)
        if not dice.chance(0.3):
            return ()
        if dice.chance(0.2):
            return (dice.choice(_FIRST[kind]), dice.choice(_SECOND[kind]))
        return (dice.choice(_ONLY[kind]),)

    def noun_phrase(self, kinds, definite=False):
        """Draws a noun phrase without relative clause."""
        dice, noun = self.dice, self.noun(kinds)
        choice = dice.weighted(_DEFINITE if definite else _DETERMINERS)
        plural = choice in _PLURALS
        adjectives = () if choice == "bare" else self.adjectives(noun, choice == "the")
        count, owner = 0, None
        if choice == "owner":
            owner = self._owner(noun)
        elif choice == "number":
            count = dice.between(2, 12) if dice.chance(0.35) else dice.between(2, 99)
        determiner = "the" if choice == "owner" else _SPOKEN.get(choice, choice)
        if determiner == "possessive":
            determiner = dice.choice(_POSSESSIVES)
        return NounPhrase(noun, determiner, plural, adjectives, count, owner)

    def _owner(self, noun):
        dice = self.dice
        if noun.kind == "part" and dice.chance(0.6):
            return NounPhrase(self.noun(PLACE), "the")
        if dice.chance(0.5):
            return Name(dice.choice(NAMES))
        owner = self.noun(PERSON)
        adjectives = self.adjectives(owner, False)[:1]
        determiner = dice.choice(("the", "the", "my", "his", "her"))
        return NounPhrase(owner, determiner, adjectives=adjectives)

    def person(self, definite=False, pronouns=0.25, other_than=None):
        """Draws a person: a pronoun, a name, a noun phrase, or two persons.

        With the subject `other_than`, the person is an object: never "I see me".
        """
        dice = self.dice
        if dice.chance(pronouns):
            pronoun = dice.choice(_SUBJECT_PRONOUNS)
            if other_than is None or pronoun.person == 3 or pronoun.person != other_than.person:
                return pronoun
        if dice.chance(0.16):
            return Name(dice.choice(NAMES))
        if dice.chance(0.1):
            return self._both()
        return self.noun_phrase(PERSON, definite)

    def _both(self):
        dice = self.dice
        first = Name(dice.choice(NAMES)) if dice.chance(0.5) else NounPhrase(self.noun(PERSON))
        second = NounPhrase(self.noun(PERSON), dice.choice(("the", "my", "his")))
        return Both(first, second)

    def being(self, definite=False):
        """Draws a person or an animal."""
        if self.dice.chance(0.25):
            return self.noun_phrase(("animal",), definite)
        return self.person(definite)

    def place(self):
        """Draws "in" and a place, in the dative."""
        if self.dice.chance(0.12):
            return Prepositional("in", "in", "dative", self.city())
        return Prepositional("in", "in", "dative", self.noun_phrase(PLACE, definite=True))

    def city(self):
        """Draws the name of a city."""
        return City(self.dice.choice(CITIES)[0])

    def time(self, tense):
        """Draws an (English, German) adverb of time that suits the tense."""
        dice = self.dice
        if tense != "perfect":
            if dice.chance(0.14):
                english, german = dice.choice(_DAYS)
                return f"on {english}", f"am {german}"
            if dice.chance(0.12):
                english, german = number_words(dice.between(2, 12))
                return f"at {english} o'clock", f"um {german} Uhr"
            if tense == "past" and dice.chance(0.15):
                year = dice.between(1950, 2019)
                return f"in {year}", f"im Jahr {year}"
        return dice.choice(TIMES[tense])

    def front(self, tense):
        """Draws an (English, German) adverb for the first place of a sentence."""
        dice = self.dice
        if dice.chance(0.35):
            return dice.choice(_FRONTS)
        if dice.chance(0.3):
            place = self.place()
            return place.english(), place.german()
        return self.time(tense)


_BY_KIND = {}
for _noun in SIMPLE_NOUNS:
    _BY_KIND[_noun.kind] = (*_BY_KIND.get(_noun.kind, ()), _noun)
_PLURALS = {
    "the_plural", "possessive_plural", "these", "bare", "number", "many", "some", "all",
}  # fmt: skip
_SPOKEN = {
    "the_plural": "the",
    "possessive_plural": "possessive",
    "bare": "",
    "number": "",
}
