"""The grammar against German written by hand."""

import pytest

from t2t_keras.data.english_german.clauses import (
    Clause,
    Embedded,
    Infinitive,
    Relative,
    joined,
    question,
    statement,
    written,
)
from t2t_keras.data.english_german.lexicon import ADJECTIVES, NOUNS, SUPERLATIVES
from t2t_keras.data.english_german.phrases import (
    SHE,
    THEY,
    WHO,
    YOU,
    I,
    Name,
    NounPhrase,
    Prepositional,
    it,
    number_words,
)
from t2t_keras.data.english_german.verb_lexicon import MODALS, VERBS


def phrase(words, determiner="the", **fields):
    """Gives the noun phrase of "old red book"; a final "+" makes it plural."""
    plural = words.endswith("+")
    *adjectives, noun = words.removesuffix("+").split()
    chosen = tuple((ADJECTIVES | SUPERLATIVES)[word] for word in adjectives)
    return NounPhrase(NOUNS[noun.replace("_", " ")], determiner, plural, chosen, **fields)


def clause(subject, verb, tense="present", **fields):
    return Clause(subject, VERBS[verb], tense, **fields)


def at(english, german, case, words):
    return Prepositional(english, german, case, phrase(words))


def relative(words, gap, subject, verb, **fields):
    """Gives a phrase whose relative clause leaves the gap; the head stands there if not given."""
    head = phrase(words)
    fields = fields or ({gap: head} if gap == "object" else {})
    return head._replace(relative=Relative(clause(subject or head, verb, **fields), gap))


MAN, DOG, BOOK = phrase("man"), phrase("dog"), phrase("book")
SLEEPING = clause(MAN, "schlafen")
IN_GARDEN = at("in", "in", "dative", "garden")
RED = ("red", "rot")
CALLING = Embedded("that", "dass", clause(I, "anrufen", object=MAN))
IT_RED = Embedded("because", "weil", clause(it(NOUNS["table"]), "sein", "past", predicate=RED))

STATEMENTS = [
    # Gender, case and adjective endings: weak, mixed, strong.
    (
        clause(phrase("old man"), "sehen", object=phrase("young woman", "a")),
        "The old man sees a young woman.",
        "Der alte Mann sieht eine junge Frau.",
    ),
    (
        clause(phrase("small child", "a"), "helfen", object=phrase("old man")),
        "A small child helps the old man.",
        "Ein kleines Kind hilft dem alten Mann.",
    ),
    (
        clause(SHE, "kaufen", object=phrase("expensive red coat+", "")),
        "She buys expensive red coats.",
        "Sie kauft teure rote Mäntel.",
    ),
    (
        clause(MAN, "danken", "past", object=phrase("friendly child+", "my")),
        "The man thanked my friendly children.",
        "Der Mann dankte meinen freundlichen Kindern.",
    ),
    (
        clause(phrase("youngest student"), "sehen", object=phrase("boy", "this")),
        "The youngest student sees this boy.",
        "Der jüngste Student sieht diesen Jungen.",
    ),
    # Owners: genitive, weak genitive, names with strong endings.
    (
        clause(phrase("new car", owner=phrase("old teacher")), "sein", predicate=RED),
        "The old teacher's new car is red.",
        "Das neue Auto des alten Lehrers ist rot.",
    ),
    (
        clause(I, "hören", object=phrase("old dog", owner=Name("Anna"))),
        "I hear Anna's old dog.",
        "Ich höre Annas alten Hund.",
    ),
    (
        clause(I, "sehen", object=phrase("door", owner=phrase("house"))),
        "I see the door of the house.",
        "Ich sehe die Tür des Hauses.",
    ),
    # Numbers and compounds.
    (
        clause(phrase("old dog+", "", count=21), "schlafen"),
        "Twenty-one old dogs sleep.",
        "Einundzwanzig alte Hunde schlafen.",
    ),
    (
        clause(BOOK, "liegen", prepositional=at("on", "auf", "dative", "kitchen_table")),
        "The book lies on the kitchen table.",
        "Das Buch liegt auf dem Küchentisch.",
    ),
    # Separable and reflexive verbs; perfect with haben and sein.
    (
        clause(SHE, "anrufen", object=phrase("doctor")),
        "She calls the doctor.",
        "Sie ruft den Arzt an.",
    ),
    (
        clause(SHE, "anrufen", "perfect", object=phrase("doctor")),
        "She has called the doctor.",
        "Sie hat den Arzt angerufen.",
    ),
    (clause(THEY, "aufstehen", "perfect"), "They have got up.", "Sie sind aufgestanden."),
    (clause(I, "beeilen", "past"), "I hurried.", "Ich beeilte mich."),
    (
        clause(YOU, "abholen", "future", object=it(NOUNS["dog"])),
        "You will pick it up.",
        "Du wirst ihn abholen.",
    ),
    # Modals; must not is nicht dürfen.
    (
        clause(MAN, "lesen", modal=MODALS["must"], object=BOOK),
        "The man must read the book.",
        "Der Mann muss das Buch lesen.",
    ),
    (
        clause(MAN, "lesen", modal=MODALS["must"], negated=True, object=BOOK),
        "The man must not read the book.",
        "Der Mann darf das Buch nicht lesen.",
    ),
    (
        clause(MAN, "schlafen", modal=MODALS["have"], negated=True),
        "The man does not have to sleep.",
        "Der Mann muss nicht schlafen.",
    ),
    # Negation: kein for what is indefinite, the place of nicht otherwise.
    (
        clause(MAN, "kaufen", negated=True, object=phrase("new car", "a")),
        "The man does not buy a new car.",
        "Der Mann kauft kein neues Auto.",
    ),
    (
        clause(MAN, "sehen", negated=True, object=DOG, place=IN_GARDEN),
        "The man does not see the dog in the garden.",
        "Der Mann sieht den Hund nicht im Garten.",
    ),
    (
        clause(BOOK, "sein", negated=True, predicate=RED),
        "The book is not red.",
        "Das Buch ist nicht rot.",
    ),
    # Order in the middle field; contractions; two-way prepositions.
    (
        clause(MAN, "geben", object=BOOK, recipient=phrase("woman"), to_recipient=True),
        "The man gives the book to the woman.",
        "Der Mann gibt der Frau das Buch.",
    ),
    (
        clause(MAN, "sehen", "past", object=phrase("dog", "a"), time=("yesterday", "gestern")),
        "The man saw a dog yesterday.",
        "Der Mann sah gestern einen Hund.",
    ),
    (
        clause(SHE, "gehen", prepositional=at("to", "zu", "dative", "old church")),
        "She goes to the old church.",
        "Sie geht zur alten Kirche.",
    ),
    (
        clause(SHE, "legen", object=BOOK, prepositional=at("on", "auf", "accusative", "table")),
        "She puts the book on the table.",
        "Sie legt das Buch auf den Tisch.",
    ),
    (
        clause(BOOK, "kaufen", "perfect", passive=True, time=("today", "heute")),
        "The book has been bought today.",
        "Das Buch ist heute gekauft worden.",
    ),
    # Subordinate clauses.
    (
        clause(SHE, "wissen", complements=(CALLING,)),
        "She knows that I call the man.",
        "Sie weiß, dass ich den Mann anrufe.",
    ),
    (
        clause(
            MAN,
            "kaufen",
            "past",
            object=phrase("table"),
            complements=(IT_RED,),
        ),
        "The man bought the table because it was red.",
        "Der Mann kaufte den Tisch, weil er rot war.",
    ),
    (
        clause(MAN, "versuchen", complements=(Infinitive(clause(MAN, "anrufen", object=SHE)),)),
        "The man tries to call her.",
        "Der Mann versucht, sie anzurufen.",
    ),
    (
        clause(I, "arbeiten", complements=(Infinitive(clause(I, "kaufen", object=BOOK), True),)),
        "I work in order to buy the book.",
        "Ich arbeite, um das Buch zu kaufen.",
    ),
    # Relative clauses: gender of the head, case of the gap; nested; behind the bracket.
    (
        clause(relative("woman", "object", MAN, "helfen"), "lachen"),
        "The woman whom the man helps laughs.",
        "Die Frau, der der Mann hilft, lacht.",
    ),
    (
        clause(
            relative("dog", "object", relative("child", "subject", None, "schlafen"), "lieben"),
            "schwimmen",
        ),
        "The dog that the child who sleeps loves swims.",
        "Der Hund, den das Kind, das schläft, liebt, schwimmt.",
    ),
    (
        clause(
            I, "anrufen", object=relative("child+", "owner", phrase("dog", "whose"), "schlafen")
        ),
        "I call the children whose dog sleeps.",
        "Ich rufe die Kinder an, deren Hund schläft.",
    ),
    (
        clause(
            I,
            "wohnen",
            prepositional=Prepositional(
                "in", "in", "dative", relative("house", "place", MAN, "schlafen", place=IN_GARDEN)
            ),
        ),
        "I live in the house in which the man sleeps.",
        "Ich wohne in dem Haus, in dem der Mann schläft.",
    ),
]


@pytest.mark.parametrize(("tree", "english", "german"), STATEMENTS)
def test_german_written_by_hand(tree, english, german):
    assert written(statement(tree)) == (english, german)


def test_verb_second_after_adverb_and_clause():
    fronted = statement(clause(MAN, "anrufen", "past", object=SHE), front=("yesterday", "gestern"))
    assert written(fronted) == ("Yesterday the man called her.", "Gestern rief der Mann sie an.")
    before = Embedded("when", "als", clause(MAN, "aufwachen", "past"))
    pair = statement(clause(DOG, "freuen", "past"), before=before)
    assert written(pair)[1] == "Als der Mann aufwachte, freute sich der Hund."


def test_questions():
    seen = clause(MAN, "sehen", object=DOG)
    assert written(question(seen), "?") == ("Does the man see the dog?", "Sieht der Mann den Hund?")
    whom = question(clause(MAN, "helfen", object=WHO), ("who", "wem"), "object")
    assert written(whom, "?") == ("Who does the man help?", "Wem hilft der Mann?")
    who = statement(clause(WHO, "sehen", "perfect", object=DOG))
    assert written(who, "?") == ("Who has seen the dog?", "Wer hat den Hund gesehen?")
    which = phrase("small dog", "which")
    asked = which.english(), which.german("accusative")
    english, german = written(question(seen._replace(object=which), asked, "object"), "?")
    assert english == "Which small dog does the man see?"
    assert german == "Welchen kleinen Hund sieht der Mann?"


def test_main_clauses_joined():
    pair = joined(statement(SLEEPING), (", but", ", aber"), statement(clause(I, "lachen")))
    assert written(pair) == ("The man sleeps, but I laugh.", "Der Mann schläft, aber ich lache.")


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [(7, "seven", "sieben"), (16, "sixteen", "sechzehn"), (30, "thirty", "dreißig"),
     (47, "forty-seven", "siebenundvierzig"), (71, "seventy-one", "einundsiebzig")],
)  # fmt: skip
def test_numbers(number, english, german):
    assert number_words(number) == (english, german)
