"""The grammar writes German as a speaker does: trees against sentences written by hand."""

import pytest

from pipelines.datasets.english_german import lexicon
from pipelines.datasets.english_german.clauses import (
    Clause,
    Embedded,
    Relative,
    question,
    statement,
)
from pipelines.datasets.english_german.phrases import WORDS, NounPhrase, Prepositional

ADJECTIVE = {row.english: row for row in lexicon.ADJECTIVES}
ADVERB = {row.english: row for row in lexicon.ADVERBS}
MODAL = {row.english_forms[0]: row for row in lexicon.MODALS}
NOUN = {form: row for row in lexicon.NOUNS for form in (row.english, row.english_plural)}
WORD = {form: row for row in WORDS.values() for form in (row.english, row.english_object)}


def phrase(text, owner=None):
    """Returns the phrase of "my old books", or of a pronoun or name."""
    if text in WORD:
        return WORD[text]
    determiner, *adjectives, noun = text.split(" ")
    if determiner not in lexicon.DETERMINERS:
        determiner, adjectives = "", [determiner, *adjectives]
    plural = noun != NOUN[noun].english
    rows = tuple(ADJECTIVE[adjective] for adjective in adjectives)
    return NounPhrase(NOUN[noun], lexicon.DETERMINERS[determiner], plural, rows, owner)


def clause(subject, verb, tense="present", **fields):
    """Returns a clause; phrases may be given as text."""
    for name in ("object", "recipient"):
        if isinstance(fields.get(name), str):
            fields[name] = phrase(fields[name])
    subject = phrase(subject) if isinstance(subject, str) else subject
    return Clause(subject, lexicon.VERBS[verb], tense, **fields)


def at(english, german, case, text):
    return Prepositional((english, german), case, phrase(text))


def embedded(english, german, inner):
    rows = [row for row in lexicon.CONJUNCTIONS if (row.english, row.german) == (english, german)]
    return Embedded(rows[0], inner)


def relative(text, gap, subject, verb, tense="present", **fields):
    """Returns a phrase with a relative clause in which it has the role `gap`."""
    head = phrase(text)
    if gap == "complement":
        fields[gap] = Prepositional(lexicon.VERBS[verb].preposition, lexicon.VERBS[verb].case, head)
    elif gap == "object":
        fields[gap] = head
    return head._replace(relative=Relative(clause(subject or head, verb, tense, **fields), gap))


YESTERDAY = ADVERB["yesterday"]
IN_GARDEN = at("in", "in", "dative", "the garden")

ARRIVED = clause("I", "ankommen", "perfect")
STATEMENTS = [
    # Gender, case and adjective endings: weak, mixed and strong.
    (clause("the old man", "sehen", object="a young woman"),
     "The old man sees a young woman.", "Der alte Mann sieht eine junge Frau."),
    (clause("a small child", "helfen", object="the old man"),
     "A small child helps the old man.", "Ein kleines Kind hilft dem alten Mann."),
    (clause("she", "kaufen", object="expensive black coats"),
     "She buys expensive black coats.", "Sie kauft teure schwarze Mäntel."),
    (clause("the man", "danken", "past", object="my friendly children"),
     "The man thanked my friendly children.", "Der Mann dankte meinen freundlichen Kindern."),
    (clause("two small birds", "folgen", object="this boy"),
     "Two small birds follow this boy.", "Zwei kleine Vögel folgen diesem Jungen."),
    # The owner: a genitive, or a name and a strong ending.
    (clause(phrase("the new car", phrase("the old king")), "sein", complement=ADJECTIVE["red"]),
     "The old king's new car is red.", "Das neue Auto des alten Königs ist rot."),
    (clause("I", "hören", object=phrase("the old dog", phrase("Anna"))),
     "I hear Anna's old dog.", "Ich höre Annas alten Hund."),
    # Separable verbs; perfect with haben and sein; agreement.
    (clause("she", "anrufen", object="the doctor"),
     "She calls the doctor.", "Sie ruft den Arzt an."),
    (clause("you", "anrufen", "perfect", object="the doctor"),
     "You have called the doctor.", "Du hast den Arzt angerufen."),
    (clause("they", "aufstehen", "perfect"), "They have got up.", "Sie sind aufgestanden."),
    (clause("I", "abholen", "future", object="him"),
     "I will pick him up.", "Ich werde ihn abholen."),
    (clause("we", "ankommen", "past"), "We arrived.", "Wir kamen an."),
    # Modal verbs. Negation: kein for what is indefinite, the place of nicht otherwise.
    (clause("he", "schreiben", modal=MODAL["want to"], negated=True, object="the book"),
     "He does not want to write the book.", "Er will das Buch nicht schreiben."),
    (clause("he", "schlafen", "past", modal=MODAL["can"], negated=True, place=IN_GARDEN),
     "He could not sleep in the garden.", "Er konnte nicht im Garten schlafen."),
    (clause("the man", "kaufen", negated=True, object="a new car"),
     "The man does not buy a new car.", "Der Mann kauft kein neues Auto."),
    (clause("the book", "sein", "past", negated=True, complement=ADJECTIVE["new"]),
     "The book was not new.", "Das Buch war nicht neu."),
    # The middle field: pronouns, time, dative, accusative. Contractions; two-way prepositions.
    (clause("he", "geben", "past", object="the book", recipient="the queen", time=YESTERDAY),
     "He gave the queen the book yesterday.", "Er gab gestern der Königin das Buch."),
    (clause("the man", "einladen", "past", object="us", time=YESTERDAY),
     "The man invited us yesterday.", "Der Mann lud uns gestern ein."),
    (clause("she", "gehen", complement=at("to", "zu", "dative", "the old school")),
     "She goes to the old school.", "Sie geht zur alten Schule."),
    (clause("he", "laufen", "past", complement=at("into", "in", "accusative", "the house")),
     "He ran into the house.", "Er lief ins Haus."),
    # Subordinate clauses end in their verb.
    (clause("she", "glauben", embedded=embedded("that", "dass", clause("I", "anrufen"))),
     "She believes that I call.", "Sie glaubt, dass ich anrufe."),
    (clause("he", "lachen", embedded=embedded("if", "wenn", clause("she", "aufstehen"))),
     "He laughs if she gets up.", "Er lacht, wenn sie aufsteht."),
    (clause("he", "lachen", embedded=embedded("because", "weil", ARRIVED)),
     "He laughs because I have arrived.", "Er lacht, weil ich angekommen bin."),
    # Relative clauses: the gender of the head, the case of its role; after the closing verb.
    (clause(relative("the woman", "object", "the man", "helfen"), "lachen"),
     "The woman whom the man helps laughs.", "Die Frau, der der Mann hilft, lacht."),
    (clause("I", "einladen", object=relative("the girls", "complement", "he", "sprechen")),
     "I invite the girls with whom he speaks.", "Ich lade die Mädchen ein, mit denen er spricht."),
    (clause("I", "sehen", negated=True, object=relative("the dog", "subject", None, "schlafen")),
     "I do not see the dog that sleeps.", "Ich sehe den Hund, der schläft, nicht."),
]  # fmt: skip


BEFORE = embedded("when", "als", clause("the man", "aufwachen", "past"))
CALL = clause("the man", "anrufen", "past", object="her")
SENTENCES = [
    # The verb is second after an adverb, a place and a clause.
    (statement(CALL, YESTERDAY),
     "Yesterday the man called her.", "Gestern rief der Mann sie an."),
    (statement(CALL, IN_GARDEN),
     "In the garden the man called her.", "Im Garten rief der Mann sie an."),
    (statement(clause("the dog", "schlafen", "past"), BEFORE),
     "When the man woke up, the dog slept.", "Als der Mann aufwachte, schlief der Hund."),
    (question(clause("the man", "sehen", object="the dog")),
     "Does the man see the dog?", "Sieht der Mann den Hund?"),
    (question(clause("the man", "helfen", object="who")),
     "Who does the man help?", "Wem hilft der Mann?"),
    (question(clause("she", "sehen", "past", object="which small dog")),
     "Which small dog did she see?", "Welchen kleinen Hund sah sie?"),
    (statement(clause("who", "sehen", "perfect", object="the dog"), mark="?"),
     "Who has seen the dog?", "Wer hat den Hund gesehen?"),
    (question(clause("Anna", "schlafen", "future"), ADVERB["when"]),
     "When will Anna sleep?", "Wann wird Anna schlafen?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "english", "german"),
    [(statement(tree), *texts) for tree, *texts in STATEMENTS] + SENTENCES,
)
def test_german_written_by_hand(found, english, german):
    assert found == (english, german)
