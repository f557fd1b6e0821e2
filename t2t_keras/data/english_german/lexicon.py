"""Nouns, adjectives, names and numbers, with the forms that no rule gives."""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun in both languages.

    `kind` decides where it may stand; `gender` is one of m, f, n; `oblique` is the singular
    accusative and dative (weak nouns: den Jungen).
    """

    kind: str
    english: str
    english_plural: str
    gender: str
    german: str
    genitive: str
    oblique: str
    german_plural: str


class Adjective(NamedTuple):
    """An adjective: `stem` takes the endings (teur-er), `german` stands in the predicate."""

    kinds: str
    english: str
    german: str
    stem: str
    english_comparative: str
    german_comparative: str


def rows(table):
    """Splits a table into the words of its lines."""
    return [line.split() for line in table.strip().splitlines()]


def words(text):
    """Gives an entry of several words its spaces."""
    return text.replace("_", " ")


# kind  english[/plural]  gender  german  genitive (or weak form)  plural
_NOUNS = """
person man/men m Mann Mannes Männer
person woman/women f Frau - Frauen
person child/children n Kind Kindes Kinder
person girl n Mädchen Mädchens Mädchen
person boy m Junge =Jungen Jungen
person student m Student =Studenten Studenten
person teacher m Lehrer Lehrers Lehrer
person doctor m Arzt Arztes Ärzte
person neighbor m Nachbar =Nachbarn Nachbarn
person friend m Freund Freundes Freunde
person sister f Schwester - Schwestern
person brother m Bruder Bruders Brüder
person mother f Mutter - Mütter
person father m Vater Vaters Väter
person daughter f Tochter - Töchter
person son m Sohn Sohnes Söhne
person queen f Königin - Königinnen
person king m König Königs Könige
person guest m Gast Gastes Gäste
animal dog m Hund Hundes Hunde
animal cat f Katze - Katzen
animal horse n Pferd Pferdes Pferde
animal bird m Vogel Vogels Vögel
animal cow f Kuh - Kühe
animal lion m Löwe =Löwen Löwen
animal mouse/mice f Maus - Mäuse
animal duck f Ente - Enten
animal pig n Schwein Schweins Schweine
food apple m Apfel Apfels Äpfel
food cake m Kuchen Kuchens Kuchen
food egg n Ei Eies Eier
food pear f Birne - Birnen
food sausage f Wurst - Würste
food tomato/tomatoes f Tomate - Tomaten
text book n Buch Buches Bücher
text letter m Brief Briefes Briefe
text newspaper f Zeitung - Zeitungen
flat key m Schlüssel Schlüssels Schlüssel
flat picture n Bild Bildes Bilder
flat map f Karte - Karten
flat knife/knives n Messer Messers Messer
flat spoon m Löffel Löffels Löffel
clothes coat m Mantel Mantels Mäntel
clothes dress/dresses n Kleid Kleides Kleider
clothes shirt n Hemd Hemdes Hemden
upright bottle f Flasche - Flaschen
upright cup f Tasse - Tassen
upright glass/glasses n Glas Glases Gläser
upright plate m Teller Tellers Teller
upright vase f Vase - Vasen
vehicle car n Auto Autos Autos
vehicle bicycle n Fahrrad Fahrrads Fahrräder
vehicle ship n Schiff Schiffes Schiffe
vehicle train m Zug Zuges Züge
part lamp f Lampe - Lampen
part door f Tür - Türen
part window n Fenster Fensters Fenster
part table m Tisch Tisches Tische
part chair m Stuhl Stuhls Stühle
part bed n Bett Bettes Betten
place house n Haus Hauses Häuser
place garden m Garten Gartens Gärten
place kitchen f Küche - Küchen
place school f Schule - Schulen
place city/cities f Stadt - Städte
place village n Dorf Dorfes Dörfer
place forest m Wald Waldes Wälder
place church/churches f Kirche - Kirchen
place museum n Museum Museums Museen
place hotel n Hotel Hotels Hotels
place room n Zimmer Zimmers Zimmer
place office n Büro Büros Büros
"""

_COMPOUND_FIRST = {"kitchen": "Küchen", "garden": "Garten", "school": "Schul", "office": "Büro"}
_COMPOUND_LAST = ("lamp", "door", "window", "table", "chair")


def _noun(kind, english, gender, german, genitive, german_plural):
    singular, _, plural = english.partition("/")
    weak = genitive.removeprefix("=") if genitive.startswith("=") else ""
    return Noun(
        kind,
        singular,
        plural or singular + "s",
        gender,
        german,
        weak or (german if genitive == "-" else genitive),
        weak or german,
        german_plural,
    )


def _compound(first, noun):
    stem = _COMPOUND_FIRST[first]
    return noun._replace(
        english=f"{first} {noun.english}",
        english_plural=f"{first} {noun.english_plural}",
        **{
            form: stem + getattr(noun, form).lower()
            for form in ("german", "genitive", "oblique", "german_plural")
        },
    )


SIMPLE_NOUNS = tuple(_noun(*row) for row in rows(_NOUNS))
COMPOUND_NOUNS = tuple(
    _compound(first, noun)
    for first in _COMPOUND_FIRST
    for noun in SIMPLE_NOUNS
    if noun.english in _COMPOUND_LAST
)
NOUNS = {noun.english: noun for noun in SIMPLE_NOUNS + COMPOUND_NOUNS}

# kinds (b person, a animal, t thing, f food, p place)  english  german[/stem]  comparatives
_ADJECTIVES = """
abtp old alt older älter
ab young jung younger jünger
tp new neu newer neuer
abtfp big groß bigger größer
abtfp small klein smaller kleiner
abtp beautiful schön more_beautiful schöner
t red rot - -
t blue blau - -
t green grün - -
at white weiß - -
at black schwarz - -
tf expensive teuer/teur more_expensive teurer
tf cheap billig cheaper billiger
tp clean sauber cleaner sauberer
tp dirty schmutzig dirtier schmutziger
t heavy schwer heavier schwerer
ab happy glücklich happier glücklicher
ab sad traurig sadder trauriger
ab tired müde - -
ab friendly freundlich friendlier freundlicher
ab poor arm poorer ärmer
ab smart klug smarter klüger
ab lazy faul lazier fauler
ab brave mutig braver mutiger
ab strong stark stronger stärker
ab sick krank - -
ab hungry hungrig hungrier hungriger
p dark dunkel/dunkl darker dunkler
p quiet ruhig quieter ruhiger
f fresh frisch fresher frischer
f good gut better besser
"""


def _adjective(kinds, english, german, english_comparative, german_comparative):
    german, _, stem = german.partition("/")
    return Adjective(
        kinds,
        words(english),
        german,
        stem or german.removesuffix("e"),
        words(english_comparative),
        german_comparative,
    )


_SUPERLATIVES = """
abtp oldest ältest - -
ab youngest jüngst - -
tp newest neuest - -
abtfp biggest größt - -
abtfp smallest kleinst - -
abtp most_beautiful schönst - -
tf cheapest billigst - -
"""

ADJECTIVES = {row[1]: _adjective(*row) for row in rows(_ADJECTIVES)}
SUPERLATIVES = {
    adjective.english: adjective for adjective in (_adjective(*row) for row in rows(_SUPERLATIVES))
}

NAMES = ("Anna", "Clara", "Emma", "Julia", "Laura", "Lena", "Maria", "Sophie")
NAMES += ("Jan", "Karl", "Martin", "Oskar", "Otto", "Paul", "Peter", "Tom")
CITIES = (
    ("Berlin", "Berlin"),
    ("Cologne", "Köln"),
    ("Hamburg", "Hamburg"),
    ("Munich", "München"),
    ("Vienna", "Wien"),
    ("Zurich", "Zürich"),
)

# The numbers below twenty, then the tens from twenty on.
_NUMBERS = """
zero null
one ein
two zwei
three drei
four vier
five fünf
six sechs
seven sieben
eight acht
nine neun
ten zehn
eleven elf
twelve zwölf
thirteen dreizehn
fourteen vierzehn
fifteen fünfzehn
sixteen sechzehn
seventeen siebzehn
eighteen achtzehn
nineteen neunzehn
twenty zwanzig
thirty dreißig
forty vierzig
fifty fünfzig
sixty sechzig
seventy siebzig
eighty achtzig
ninety neunzig
"""

UNITS = rows(_NUMBERS)[:20]
TENS = rows(_NUMBERS)[20:]
