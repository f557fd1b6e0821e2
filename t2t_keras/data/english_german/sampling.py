"""Random sentences, each kind by its own method."""

from t2t_keras.data.english_german.clause_sampling import (
    GOODS,
    OBJECTS,
    QUALITY,
    STATES,
    THINGS,
    ClauseSampler,
    may_be_negated,
    quality_pair,
)
from t2t_keras.data.english_german.clauses import (
    Clause,
    Embedded,
    Infinitive,
    joined,
    question,
    statement,
    written,
)
from t2t_keras.data.english_german.dice import Weighted
from t2t_keras.data.english_german.lexicon import ADJECTIVES
from t2t_keras.data.english_german.phrase_sampling import BEINGS, PERSON
from t2t_keras.data.english_german.phrases import (
    INDEFINITE,
    WHAT,
    WHO,
    NounPhrase,
    it,
    number_words,
)
from t2t_keras.data.english_german.verb_lexicon import FRAMES, VERBS

_SENTENCES = Weighted(
    plain=36, fronted=18, after=9, before=6, told=7, infinitive=8, yes_no=8, wh=9, linked=5,
    copula=8, compared=3, aged=3, passive=6, existing=3, joined=3, costing=2,
)  # fmt: skip
_COMPARABLE = tuple(
    adjective
    for adjective in ADJECTIVES.values()
    if "b" in adjective.kinds and adjective.german_comparative != "-"
)
_ASKED = tuple(
    VERBS[name]
    for name in (
        "sehen", "kaufen", "brauchen", "kennen", "besuchen", "anrufen", "haben", "helfen",
        "geben", "gehen", "schlafen", "arbeiten", "wohnen", "lesen", "essen", "fressen", "folgen",
    )
)  # fmt: skip
"""The verbs that a question begins with: each capital form is frequent enough to be learned."""


class Sampler(ClauseSampler):
    """Draws sentence pairs; the arguments are those of `ClauseSampler`."""

    def pair(self):
        """Draws an (English, German) pair of sentences."""
        kind = self.dice.weighted(_SENTENCES)
        past = self.dice.chance(0.45)
        pair = getattr(self, "_" + kind)(past, self.depth)
        return written(pair, "?" if kind in ("yes_no", "wh") else ".")

    # Sentences; each takes (past, depth) and gives (english, german).

    def _plain(self, past, depth):
        return statement(self.clause(past, depth))

    def _fronted(self, past, depth):
        clause = self.clause(past, depth, adverbs=False)
        return statement(clause, front=self.phrases.front(clause.tense))

    def _after(self, past, depth):
        main = self.clause(past, depth - 1, adverbs=self.dice.chance(0.3))
        return statement(main._replace(complements=(self._adverbial(past, depth - 1),)))

    def _before(self, past, depth):
        main = self.clause(past, depth - 1, adverbs=self.dice.chance(0.3))
        return statement(main, before=self._adverbial(past, depth - 1))

    def _adverbial(self, past, depth):
        """Draws a clause with because, although, when, if, while or before."""
        dice = self.dice
        choices = [("because", "weil"), ("because", "weil"), ("although", "obwohl")]
        choices += [("when", "als" if past else "wenn")] * 2
        choices += [("while", "während"), ("before", "bevor")]
        if not past:
            choices += [("if", "wenn")] * 2
        conjunction = dice.choice(choices)
        tense = None
        if conjunction[0] in ("when", "while", "before", "if"):
            tense = ("past" if past else "present", None)
        clause = self.clause(past, depth, adverbs=dice.chance(0.4), tense=tense)
        if clause.time == ("every day", "jeden Tag"):
            clause = clause._replace(time=None)
        return Embedded(*conjunction, clause)

    def _told(self, past, depth):
        """That, whether or a question word under a verb of speech or thought."""
        dice = self.dice
        subject = self.related(self.phrases.person(), past, depth - 1, 0.6)
        tense = ("past" if past else dice.choice(("present", "present", "perfect")), None)
        frame = dice.choice(("that", "that", "whether"))
        verb = dice.choice(FRAMES[frame])
        if verb.infinitive == "wissen" and dice.chance(0.5):
            frame = "whether"
        inner_past = past or dice.chance(0.3)
        if depth > 1 and dice.chance(0.6):
            inner = self._told_clause(past, depth - 1)
        else:
            inner = self.clause(inner_past, depth - 1, adverbs=dice.chance(0.5))
        if frame == "that":
            link = ("that", "dass")
        elif inner.complements or inner.time or inner.place or dice.chance(0.4):
            link = ("whether", "ob") if dice.chance(0.5) else ("if", "ob")
        else:
            link = self._question_word(inner)
        clause = Clause(subject, verb, *tense, complements=(Embedded(*link, inner),))
        front = self.phrases.front(clause.tense) if dice.chance(0.15) else None
        return statement(clause, front=front)

    def _told_clause(self, past, depth):
        dice = self.dice
        subject = self.phrases.person()
        verb = dice.choice(FRAMES["that"])
        inner = self.clause(past, depth, adverbs=dice.chance(0.5))
        tense = "past" if past else "present"
        return Clause(subject, verb, tense, complements=(Embedded("that", "dass", inner),))

    def _question_word(self, clause):
        """Draws a question word that the clause can be asked with."""
        choices = [("why", "warum")]
        if clause.tense != "perfect":
            choices += [("when", "wann")]
        if clause.verb.frame == "none":
            choices += [("where", "wo")]
        return self.dice.choice(choices)

    def _infinitive(self, past, depth):
        dice = self.dice
        subject = self.related(self.phrases.person(), past, depth, 0.6)
        inner = self.clause(past, depth - 1, subject, dice.chance(0.3), ("present", None))
        purpose = dice.chance(0.35)
        if purpose:
            inner = inner._replace(negated=False)
            if inner.time and inner.time[0].startswith("at "):  # never "um um sechs Uhr"
                inner = inner._replace(time=None)
            main = self.clause(past, 0, subject, adverbs=dice.chance(0.3))
        else:
            tense, modal = self.tense(past)
            main = Clause(subject, dice.choice(FRAMES["infinitive"]), tense, modal)
        inner = Infinitive(inner, purpose)
        front = None
        if main.time is None and dice.chance(0.2):
            front = self.phrases.front(main.tense)
        return statement(main._replace(complements=(inner,)), front=front)

    def _yes_no(self, past, depth):
        if self.dice.chance(0.35):
            return question(self._state(past, depth))
        clause = self.clause(past, depth)
        while (
            clause.tense in ("present", "past") and not clause.modal and clause.verb not in _ASKED
        ):
            clause = self.clause(past, depth)
        return question(clause)

    def _wh(self, past, depth):
        dice, phrases = self.dice, self.phrases
        choice = dice.choice(("who", "whom", "which_subject", "which", "adverb", "where"))
        if choice == "who":
            return statement(self.clause(past, depth, subject=WHO, affirmative=True))
        if choice == "which_subject":
            noun = phrases.noun(BEINGS)
            plural = dice.chance(0.3)
            determiner = "how many" if plural and dice.chance(0.5) else "which"
            subject = NounPhrase(noun, determiner, plural, phrases.adjectives(noun, False))
            return statement(self.clause(past, 0, subject=subject, affirmative=True))
        if choice in ("adverb", "where"):
            clause = self.clause(past, depth, adverbs=False, affirmative=True)
            if choice == "adverb":
                return question(clause, asked=self._question_word(clause))
            subject = phrases.being()
            going = dice.chance(0.5)
            verbs = FRAMES["direction"] if going else FRAMES["location"] + FRAMES["none"][:5]
            clause = Clause(subject, dice.choice(verbs), *self.tense(past))
            asked = ("where", "wohin" if going else "wo")
            return question(self.cleared(clause), asked)
        frame = dice.choice(("any", "goods", "person", "dative", "food"))
        clause = Clause(phrases.person(), dice.choice(FRAMES[frame]), *self.tense(past))
        if choice == "which":
            noun = phrases.noun(PERSON if frame == "dative" else OBJECTS[frame])
            plural = dice.chance(0.4)
            determiner = "how many" if plural and dice.chance(0.6) else "which"
            asked = NounPhrase(noun, determiner, plural, phrases.adjectives(noun, False))
        else:
            asked = WHAT if frame in ("goods", "food") else WHO
        case = "dative" if frame == "dative" else "accusative"
        clause = self.cleared(clause._replace(object=asked))
        return question(clause, (asked.english_object(), asked.german(case)), "object")

    def _linked(self, past, depth):
        """A clause whose "it" takes the gender of the thing in the main clause."""
        dice, phrases = self.dice, self.phrases
        frame = dice.choice(("goods", "goods", "own", "machine"))
        noun = phrases.noun(OBJECTS[frame])
        thing = NounPhrase(
            noun,
            dice.choice(("the", "the", "a", "my", "this")),
            False,
            phrases.adjectives(noun, False),
        )
        person = phrases.person(definite=True)
        verb = dice.choice(FRAMES[frame])
        main = Clause(person, verb, *self.tense(past), object=thing)
        if verb.infinitive in STATES:
            main = main._replace(modal=None)
        tense = "past" if past else "present"
        if dice.chance(0.6):
            quality = dice.choice(QUALITY["a" if noun.kind == "animal" else "t"])
            negated = dice.chance(0.2)
            inner = Clause(
                it(noun), VERBS["sein"], tense, negated=negated, predicate=quality_pair(quality)
            )
        else:
            verb = VERBS[dice.choice(("mögen", "brauchen", "finden", "mitnehmen", "zurückbringen"))]
            inner = Clause(phrases.person(definite=True), verb, *self.tense(past), object=it(noun))
            if verb.infinitive in STATES:
                inner = inner._replace(modal=None)
        conjunction = dice.choice((("because", "weil"), ("although", "obwohl")))
        inner = Embedded(*conjunction, self.cleared(inner))
        return statement(self.cleared(main)._replace(complements=(inner,)))

    def _copula(self, past, depth):
        return statement(self._state(past, depth))

    def _state(self, past, depth):
        """Draws a clause about what or where somebody or something is."""
        dice, phrases = self.dice, self.phrases
        thing = dice.chance(0.5)
        subject = phrases.noun_phrase(THINGS) if thing else phrases.being()
        subject = self.related(subject, past, depth)
        tense = "past" if past else "present"
        if not thing and dice.chance(0.3):
            clause = Clause(subject, VERBS["sein"], tense, prepositional=phrases.place())
        elif thing and subject.noun.kind in ("text", "flat", "upright") and dice.chance(0.6):
            frame = "standing" if subject.noun.kind == "upright" else "lying"
            verb = FRAMES[frame][0]
            clause = Clause(subject, verb, tense, prepositional=self.beside("dative"))
        else:
            quality = dice.choice(QUALITY["t" if thing else "b"])
            clause = Clause(subject, VERBS["sein"], tense, predicate=quality_pair(quality))
        negated = dice.chance(0.2) and may_be_negated(subject)
        return clause._replace(negated=negated)

    def _compared(self, past, depth):
        phrases = self.phrases
        quality = self.dice.choice(_COMPARABLE)
        subject = self.related(phrases.being(definite=True), past, depth)
        other = self.related(phrases.noun_phrase(BEINGS, definite=True), past, depth)
        english = f"{quality.english_comparative} than {other.english()}"
        german = f"{quality.german_comparative} als {other.german('nominative')}"
        if self.dice.chance(0.3):
            english = f"as {quality.english} as {other.english()}"
            german = f"so {quality.german} wie {other.german('nominative')}"
        predicate = (english, german + other.german_tail())
        tense = "past" if past else "present"
        return statement(Clause(subject, VERBS["sein"], tense, predicate=predicate))

    def _aged(self, past, depth):
        subject = self.related(self.phrases.being(definite=True), past, depth)
        english, german = number_words(self.dice.between(2, 99))
        predicate = (f"{english} years old", f"{german} Jahre alt")
        tense = "past" if past else "present"
        return statement(Clause(subject, VERBS["sein"], tense, predicate=predicate))

    def _passive(self, past, depth):
        dice, phrases = self.dice, self.phrases
        frame = dice.choice(("any", "goods", "person", "text", "food"))
        verb = dice.choice(FRAMES[frame])
        if verb.infinitive in STATES:
            verb = VERBS["sehen"]
        subject = self.related(phrases.noun_phrase(OBJECTS[frame], definite=True), past, depth)
        tense = "past" if past else dice.choice(("present", "perfect"))
        clause = Clause(subject, verb, tense, negated=dice.chance(0.1), passive=True)
        if dice.chance(0.5):
            clause = clause._replace(prepositional=self.agent())
        if dice.chance(0.3):
            return statement(clause, front=phrases.time(tense))
        return statement(clause._replace(time=phrases.time(tense)))

    def _existing(self, past, depth):
        phrases = self.phrases
        kinds = (*BEINGS, *THINGS)
        phrase = phrases.noun_phrase(kinds)
        while phrase.weight != INDEFINITE or phrase.determiner in ("every", "all"):
            phrase = phrases.noun_phrase(kinds)
        place = phrases.place()
        tense = "past" if past else "present"
        clause = Clause(phrase, VERBS["sein"], tense)
        _, german = statement(clause, front=(place.english(), place.german()))
        be = ("were" if past else "are") if phrase.plural else ("was" if past else "is")
        return f"there {be} {phrase.english()} {place.english()}", german

    def _joined(self, past, depth):
        first = statement(self.clause(past, depth - 1, adverbs=self.dice.chance(0.3)))
        second = statement(self.clause(past, depth - 1, adverbs=self.dice.chance(0.3)))
        link = self.dice.choice((("and", "und"), (", but", ", aber")))
        return joined(first, link, second)

    def _costing(self, past, depth):
        subject = self.related(self.phrases.noun_phrase(GOODS, definite=True), past, depth)
        euros = str(self.dice.between(2, 999))
        verb = FRAMES["cost"][0]
        tense = "past" if past and not subject.plural else "present"  # they cost: no past
        predicate = (f"{euros} euros", f"{euros} Euro")
        return statement(Clause(subject, verb, tense, predicate=predicate))
