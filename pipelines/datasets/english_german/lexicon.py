"""The words of the grammar, one TSV file for each part of speech.

The header of a file names the fields of its rows. Besides the words of both languages they are:

- nouns: `kind` (person, animal, food, text, thing, opening or place), `gender` (m, f or n),
  `oblique` (accusative and dative of the singular), `genitive`.
- adjectives: the `kinds` of noun that they go with; those of group `first` precede those of
  `second`; `stem`, to which endings are added (teuer, ein teures Auto).
- determiners: the paradigms of their own endings and of those of the adjective after them, and the
  weights with which singular and plural phrases draw them.
- pronouns: pronouns, names and question words, with all their forms.
- verbs: the kinds of their subjects, objects and recipients, the `preposition` (English, German)
  and the `case` of the object, an English particle, a separable German `prefix`, the `auxiliary` of
  the German perfect. The forms are base, third person, past, participle; and infinitive, ich, du,
  er, past, participle, without the prefix.
- modals: the same forms without participles, and perhaps without a past.
- adverbs, conjunctions: the `tenses` of their clauses.
"""

import collections
import csv
import importlib.resources

_LISTS = {"kinds", "subjects", "objects", "recipients", "preposition", "tenses"}
_LISTS |= {"english_forms", "german_forms"}
_NUMBERS = {"singular", "plural", "person"}


def _parse(column, cell):
    if column in _LISTS:
        return tuple(filter(None, cell.split(",")))
    return int(cell) if column in _NUMBERS else cell


def read_rows(name, row_class=None):
    """Returns the rows of `name`.tsv, each a `row_class`, by default its own named tuple."""
    text = importlib.resources.files(__package__).joinpath(f"{name}.tsv").read_text("utf-8")
    header, *rows = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    row_class = row_class or collections.namedtuple(name, header)
    return tuple(row_class(*map(_parse, header, row)) for row in rows)


NOUNS = read_rows("nouns")
ADJECTIVES = read_rows("adjectives")
DETERMINERS = {row.english: row for row in read_rows("determiners")}
VERBS = {row.prefix + row.german_forms[0]: row for row in read_rows("verbs")}
MODALS = read_rows("modals")
ADVERBS = read_rows("adverbs")
CONJUNCTIONS = read_rows("conjunctions")
