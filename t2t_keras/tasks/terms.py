"""Terms: how given phrases of a source must be translated, such as the names of a glossary.

A graph gets the terms of each text as one string: lines of a source phrase, a tab, and its target
phrase. `TermIndex` finds the source phrases in texts. `protection.put_terms` replaces
their translations by their targets. `Terms` contains the terms of a program or a file.

A source phrase matches whole words, with any white space between them. A phrase in lower case
matches any case ("apple pie" also "Apple Pie"), a phrase with a capital letter only its own case.
If phrases overlap, the phrase with more words counts, then the first: "New York" hides "York".
"""

import csv
import html
import re
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.base_tokenizer import valid_utf8
from t2t_keras.data.files import nfc, read_lines
from t2t_keras.data.ragged import keep_where, rows_of
from t2t_keras.data.text_parts import ends_in_row, split_by_pattern
from t2t_keras.data.texts import encode_utf8
from t2t_keras.errors import InputError
from t2t_keras.graphs import after
from t2t_keras.tasks.spans import ALL_MARKS, UNSPACED
from t2t_keras.types import StrPath

_LETTERS = rf"[^\s\p{{Z}}\p{{P}}\p{{S}}\p{{C}}{UNSPACED}]+"
_WORD = (
    rf"\p{{N}}+(?:[.,:/]\p{{N}}+)+|[{UNSPACED}]"
    rf"|{_LETTERS}(?:[\x{{AD}}\x{{200C}}\x{{200D}}\x{{2060}}]+{_LETTERS})*[+#]*|[^\s\p{{Z}}]"
)
"""A pattern of numbers, characters of scripts without spaces, words such as "C++", and others."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_MARKUP = re.compile(r"(?s)<!--.*?-->|<[^<>]*>|[\xad\u200b\u2060]|\[\^?\d{1,3}\]")
_LINE = r"[^\t]*[^\t\s\p{Z}][^\t]*\t[^\t]*[^\t\s\p{Z}][^\t]*"

_SHOWN = 60
"""Characters of a text in a message, which a model server sends in a header of limited size."""

_HASHES = 2**62
_FACTOR = 6_364_136_223_846_793_005  # of the hashes of several words, odd
_INVERSE = pow(_FACTOR, -1, 2**64) - 2**64  # in 64 bits; negative as a signed number


class Terms:
    """The terms of a Python program: {source phrase: target phrase}.

    Raises:
        InputError: if a phrase is not a str, is blank, or has a tab, a line break or a mark.

    Example:
        >>> Terms({"dog": "Hund"}).rows([b"The dog.", b"A cat."])
        [b'dog\\tHund', b'']
    """

    def __init__(self, phrases: Mapping[str, str]):
        if not isinstance(phrases, Mapping):
            raise InputError(
                f"terms is a {type(phrases).__name__}: give a dict of source and target phrases."
            )
        for source, target in phrases.items():
            _check_term("terms", source, target)
        self._lines = [
            (_parts(source), encode_utf8(f"{source}\t{target}"))
            for source, target in phrases.items()
        ]

    @classmethod
    def of(cls, terms: "Mapping[str, str] | Terms") -> "Terms":
        """Returns `Terms` unchanged, or the `Terms` of a mapping."""
        return terms if isinstance(terms, cls) else cls(terms)

    @classmethod
    def read(cls, path: StrPath) -> "Terms":
        """Reads a file, plain or gzipped: a source phrase, a tab and a target phrase on each line.

        Blank lines are left out. A phrase may be quoted, as spreadsheets write it: "5"" disk".

        Raises:
            InputError: if a line has another form, or gives a source phrase a second target.
        """
        phrases, places = {}, {}
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            source, *targets = _fields(line.decode())
            if len(targets) != 1 or not source or not targets[0]:
                raise InputError(
                    f"{path} line {number} is {line.decode()!r}: give a source phrase, a tab and a "
                    "target phrase, each without quotes or between two."
                )
            _check_term(f"{path} line {number}", source, targets[0])
            source = " ".join(nfc(source).split())
            if phrases.setdefault(source, targets[0]) != targets[0]:
                raise InputError(
                    f"{path} gives {source!r} the targets {phrases[source]!r} (line "
                    f"{places[source]}) and {targets[0]!r} (line {number}): keep one of them."
                )
            places.setdefault(source, number)
        return cls(phrases)

    def rows(self, texts):
        """Returns the lines of phrases that each text, bytes, may contain, a list of bytes.

        A document contains a phrase also if markup is inside of it, or entities are: each word of
        the phrase counts, wherever it stands in the text, as it is or without markup.
        """
        rows = []
        for text in texts:
            written = text.decode("utf-8", "replace")
            read = _MARKUP.sub("", html.unescape(_MARKUP.sub("", written)))
            seen = f"{_folded(written)} {_folded(read)}"
            lines = [
                line
                for (longest, *parts), line in self._lines
                if longest in seen and all(part in seen for part in parts)
            ]
            rows.append(b"\n".join(lines))
        return rows


def _fields(line):
    """Returns the fields of a line, a list of str, without quotes; none if quotes do not pair."""
    try:
        [fields] = csv.reader([line], delimiter="\t", strict=True)
    except (csv.Error, ValueError):
        return [""]
    return [field.strip() for field in fields]


def _check_term(place, source, target):
    for phrase in (source, target):
        is_text = isinstance(phrase, str) and phrase.replace("\0", " ").strip()
        if not is_text or phrase.splitlines() != [phrase]:
            raise InputError(
                f"{place} has the term {source!r} with the translation {target!r}: give each as "
                "one line that is not blank."
            )
        if "\t" in phrase:
            raise InputError(f"{place} has {phrase!r}: leave the tab out.")
        if re.search(ALL_MARKS, phrase):
            raise InputError(
                f"{place} has {phrase!r}: leave out the characters U+E000 to U+E0FF, which stand "
                "for protected spans."
            )


def _parts(phrase):
    """Returns words of a phrase, and characters of scripts without spaces, the longest first."""
    parts = re.findall(rf"[^\W_{_UNSPACED}]+|[{_UNSPACED}]", nfc(phrase).casefold())
    return sorted(parts, key=len, reverse=True) or [""]


def _folded(text):
    """Returns text in which each phrase that it may contain can be found."""
    return "".join(nfc(text).casefold().replace("\0", " ").split())


# In the graph -------------------------------------------------------------------------------------


class TermMatches(NamedTuple):
    """The positions of source phrases in texts, as RaggedTensors [texts, (matches)]."""

    starts: tf.RaggedTensor  # int32, characters, in order
    ends: tf.RaggedTensor
    targets: tf.RaggedTensor  # string, the target phrases


class TermIndex:
    """The terms of a batch; finds them in texts in time linear in the words.

    Args:
        terms: string [batch], lines of a source phrase, a tab and a target phrase; "": none.

    Raises:
        InvalidArgumentError: when the graph runs, if a line has another form or a mark, or two
            lines have the same source phrase and different targets.

    Attributes:
        keys: int64 [lines], computed only if all lines are valid.
    """

    def __init__(self, terms):
        different, self._number = tf.unique(terms)  # each glossary is read once
        lines, sources = _lines_and_sources(different)
        words, hashes, _ = _words(sources)
        lower = _words(sources, lower=True)[1]
        lengths = tf.cast(words.row_lengths(), tf.int32)
        rows = rows_of(words)
        sums = tf.math.segment_sum(hashes * _powers(words, _FACTOR), rows)
        is_lower = tf.math.segment_min(tf.cast(hashes == lower, tf.int32), rows) > 0
        keys = _keys(sums, lengths, is_lower, tf.cast(rows_of(lines), tf.int32))
        targets = tf.strings.regex_replace(lines.values, r"^[^\t]*\t[\s\p{Z}]*|[\s\p{Z}]+$", "")
        order = tf.argsort(keys, stable=True)
        keys, targets, given = (tf.gather(x, order) for x in (keys, targets, lines.values))
        differs = tf.pad((keys[1:] == keys[:-1]) & (targets[1:] != targets[:-1]), [[0, 1]])
        differs = differs[: tf.size(keys)]
        self.keys = _require(
            ~differs,
            "terms has the line “{}”, and another target phrase for the same source phrase: give "
            "one.",
            given,
            keys,
        )
        self._targets = targets
        self._lengths = tf.sort(tf.unique(lengths)[0], direction="DESCENDING")

    def find(self, texts, rows):
        """Returns the `TermMatches` of texts, string [texts].

        Args: rows, int32 [texts], the index in the batch of terms of each.
        """
        words, exact, starts = _words(texts)
        lower = _words(texts, lower=True)[1]
        row_of_word = tf.cast(rows_of(words), tf.int32)
        glossary = tf.gather(tf.gather(self._number, rows), row_of_word)
        count = tf.size(exact)
        place = tf.range(count)
        inverse = tf.math.cumprod(tf.fill([count], tf.constant(_INVERSE, tf.int64)), exclusive=True)
        powers = tf.math.cumprod(tf.fill([count], tf.constant(_FACTOR, tf.int64)), exclusive=True)

        def find_length(number, taken, entry, sizes):
            length = self._lengths[number]
            last = place + length - 1
            fits = last < count
            fits &= tf.gather(row_of_word, tf.minimum(last, count - 1)) == row_of_word
            fits &= _sum_between(taken, place, last + 1) == 0
            match = tf.fill([count], -1)
            for is_lower, hashes in ((False, exact), (True, lower)):
                # Factors count from the beginning of all texts, not of the phrase.
                sums = _sum_between(hashes * powers, place, last + 1) * inverse
                keys = _keys(sums, length, is_lower, glossary)
                index = tf.minimum(tf.searchsorted(self.keys, keys), tf.size(self.keys) - 1)
                is_match = (tf.gather(self.keys, index) == keys) & (match < 0)
                match = tf.where(is_match, index, match)
            fits &= match >= 0
            behind = place - length + 1  # where a phrase begins that has this word last

            def take_first(fits, taken, entry, sizes):
                first = fits & (_sum_between(tf.cast(fits, tf.int32), behind, place) == 0)
                covered = _sum_between(tf.cast(first, tf.int32), behind, place + 1)
                taken = tf.maximum(taken, tf.minimum(covered, 1))
                entry = tf.where(first, match, entry)
                sizes = tf.where(first, length, sizes)
                return fits & (_sum_between(taken, place, last + 1) == 0), taken, entry, sizes

            _, *state = tf.while_loop(
                lambda fits, *_: tf.reduce_any(fits), take_first, (fits, taken, entry, sizes)
            )
            return number + 1, *state

        zeros = tf.zeros([count], tf.int32)
        _, _, entry, sizes = tf.while_loop(
            lambda number, *_: number < tf.size(self._lengths) * tf.minimum(count, 1),
            find_length,
            (tf.constant(0), zeros, zeros - 1, zeros),
        )
        is_found = entry >= 0
        last = tf.boolean_mask(place + sizes - 1, is_found)
        begins, ends = tf.unstack(starts, axis=1)
        values = (
            tf.boolean_mask(begins, is_found),
            tf.gather(ends, last),
            tf.gather(self._targets, tf.boolean_mask(entry, is_found)),
        )
        rows = tf.boolean_mask(row_of_word, is_found)
        return TermMatches(
            *(
                tf.RaggedTensor.from_value_rowids(x, rows, tf.size(texts), validate=False)
                for x in values
            )
        )


def _lines_and_sources(terms):
    """Returns the lines of terms that aren't blank, RaggedTensor string [batch, (lines)], and the
    source phrase of each, string [lines]; raises if a line has another form."""
    terms = tf_text.normalize_utf8(tf.strings.regex_replace(valid_utf8(terms), r"\x00", " "), "NFC")
    lines = tf.strings.split(tf.strings.regex_replace(terms, r"\r\n?", "\n"), "\n")
    [lines] = keep_where(~tf.strings.regex_full_match(lines.values, r"[\s\p{Z}]*"), lines)
    sources = _require(
        tf.strings.regex_full_match(lines.values, _LINE),
        "terms has the line “{}”: give a source phrase, a tab and a target phrase.",
        lines.values,
        tf.strings.regex_replace(lines.values, r"\t.*", ""),
    )
    sources = _require(
        ~tf.strings.regex_full_match(lines.values, f"(?s:.*{ALL_MARKS}.*)"),
        "terms has the line “{}”: the characters U+E000 to U+E0FF stand for protected spans; give "
        "a line without them.",
        lines.values,
        sources,
    )
    return lines, sources


def _words(texts, lower=False):
    """Returns the words and other characters of texts.

    Returns:
        RaggedTensor string [texts, (words)]; int64 [words], a number for each different one, in any
        case if lower is True; and int32 [words, 2], the characters where it begins and ends.
    """
    parts, is_word = split_by_pattern(texts, _WORD)
    lengths = tf.strings.length(parts.values, unit="UTF8_CHAR")
    ends = ends_in_row(parts, lengths)
    [words] = keep_where(is_word, parts)
    known = tf.strings.regex_replace(words.values, r"[\x{AD}\x{2060}]", "")
    known = tf_text.normalize_utf8(known, "NFC")
    known = tf.strings.lower(known, "utf-8") if lower else known
    spans = tf.boolean_mask(tf.stack([ends - lengths, ends], axis=1), is_word)
    return words, tf.strings.to_hash_bucket_fast(known, _HASHES) + 1, spans


def _powers(words, factor):
    """Returns the factor to the power of each word's index in its row, int64 [words]."""
    longest = tf.cast(words.bounding_shape(axis=1), tf.int32)
    powers = tf.math.cumprod(tf.fill([longest], tf.constant(factor, tf.int64)), exclusive=True)
    return tf.gather(powers, tf.ragged.range(words.row_lengths()).values)


def _keys(sums, lengths, is_lower, glossaries):
    """Returns numbers that differ between phrases, of words, case and glossary: int64 [phrases]."""
    lengths, is_lower, glossaries = (tf.cast(x, tf.int64) for x in (lengths, is_lower, glossaries))
    return (sums + (2 * lengths + is_lower) * 0x9E3779B97F4A7C1) * _FACTOR + glossaries * _INVERSE


def _sum_between(values, starts, ends):
    """Returns the sum of values, integers [words], from each start up to its end."""
    sums = tf.pad(tf.cumsum(values), [[1, 0]])
    starts, ends = (tf.clip_by_value(x, 0, tf.size(values)) for x in (starts, ends))
    return tf.gather(sums, ends) - tf.gather(sums, starts)


def ask(graph, *inputs, **named):
    """Returns graph(*inputs, **named); raises InputError if the graph refuses the terms."""
    try:
        return graph(*inputs, **named)
    except tf.errors.InvalidArgumentError as error:
        sentence = re.search(r"terms .*\.(?=\])", error.message)
        if sentence is None:
            raise
        raise InputError(sentence[0]) from error


def _require(condition, message, lines, value):
    """Returns a value; raises InvalidArgumentError with the first line whose condition is False."""
    first = tf.concat([tf.boolean_mask(lines, ~condition), [""]], axis=0)[0]
    first = tf.strings.substr(first, 0, _SHOWN, unit="UTF8_CHAR")
    # Those that TensorFlow would escape: backslashes, plain quotes, tabs.
    for pattern, shown in ((r"\\", " "), ("'", "’"), ('"', "”"), (r"\t", " → ")):
        first = tf.strings.regex_replace(first, pattern, shown)
    before, behind = message.split("{}")
    message = tf.strings.join([before, first, behind])
    check = tf.debugging.Assert(tf.reduce_all(condition), [message])
    return after([check], value)
