"""Spans: the parts of a document that are not translated, such as markup and placeholders.

`mask` replaces each span of a text by a mark, one character that says how the span acts on the
ends of sentences and on words; `KINDS` is the table of all kinds of spans and their marks. An
entity of a letter, digit or punctuation mark, such as `&uuml;`, becomes its character, with a mark
before it. All of this runs in the graph, by string operations only; `join_lines` prepares files.
"""

import collections
import functools
import html
import html.entities
import itertools
import re

import tensorflow as tf

from t2t_keras.data.placeholders import MAX_PLACEHOLDERS, mark_of
from t2t_keras.data.ragged import keep_where
from t2t_keras.data.text_parts import in_order, join_parts, order_in_row, split_by_pattern

INLINE = "\ue000"
"""A closing tag, emoji or note: belongs to the sentence and to the word before it."""
OPENING = "\ue040"
"""An opening tag: as `INLINE`, but belongs to the word behind it."""
BLOCK = "\ue041"
"""Ends a sentence, and stands outside of sentences."""
SPACE = "\ue042"
"""White space, such as `&nbsp;`: read as a space, whose place it takes in a translation."""
GAP = "\ue043"
"""A closing and an opening tag between two words: as `SPACE`."""
CHARACTER = "\ue044"
"""Stands before a character that an entity of the text stands for."""
WORD = "\ue080"
"""Stands for a word, such as a placeholder or an address."""
_SYMBOL, _LESS, _GREATER = _SYMBOLS = "\ue045\ue046\ue047"
"""Entities of other characters, before kinds are found in a text."""

ALL_MARKS = "[\ue000-\ue0ff]"
"""A pattern of all marks; where a text has one of them itself, it is a span."""
NUMBERED = f"[{mark_of(1)}-{mark_of(MAX_PLACEHOLDERS)}]"
"""A pattern of the marks of placeholders, which a sentence has in the place of `WORD`."""
PLACED = f"[{INLINE}{OPENING}{SPACE}{GAP}{WORD}]"
"""A pattern of the marks inside of sentences."""
_CHARACTER = rf"{CHARACTER}(?s:.)"
_MASKED = f"[{INLINE}{OPENING}{BLOCK}{SPACE}{GAP}{WORD}]|{_CHARACTER}"

# RE2 patterns, whose \w and \b know ASCII alone
_SPACED = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Devanagari}"
"""Scripts whose words have spaces around them, so that no word touches an e-mail address."""
LETTER = rf"[{_SPACED}\p{{Hangul}}\p{{N}}]"
"""A pattern of the letters and digits whose words have spaces around them."""
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts that are written without spaces between words, inside of brackets of a pattern."""

# Markup
_PHRASING = (
    "a abbr acronym area audio b bdi bdo big blink bold button canvas cite code color data del dfn "
    "em embed font i iframe img input ins italic kbd label link map mark math meta meter nobr "
    "noscript object output picture progress q rb rp rt rtc ruby s samp script slot small span "
    "strike strong style sub sup svg template time tt u underline var video wbr "
    "bpt bx ec ept ex g it mrk pc ph sc x"
)
"""Phrasing elements of HTML (https://html.spec.whatwg.org/#phrasing-content) without <br>, <select>
and <textarea>; former ones; tags of messages of programs; inline elements of XLIFF."""
_BLOCKS = (
    "address article aside base blockquote body br caption center col colgroup dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head "
    "header hgroup hr html legend li main menu nav ol optgroup option p param plural search "
    "section select source string string-array summary table tbody td textarea tfoot th thead "
    "title tr track trans-unit ul"
)
"""Some of the elements that are not phrasing: all others are blocks, too, but capital letters or a
hyphen make a name that of a component, which is phrasing."""


def _names(names, *patterns):
    return rf"(?:(?i:{names.replace(' ', '|')}){''.join(f'|{x}' for x in patterns)})"


_PREFIXED = "xliff:g|o:p|st1:[a-z]+|c:out|fmt:[a-z]+"  # of strings of Android, Word, Java
_PHRASING = _names(_PHRASING, "[A-Z][a-z]+[A-Za-z]*", r"[A-Za-z]+-[-\w.]+", _PREFIXED)
_NAME = r"[A-Za-z][\w:.-]*"
_VALUE = r"\"[^\"]*\"|'[^']*'|\{[^{}]*\}|[^\s\"'=<>`{}][^\s\"'=<>`]*"
_REST = rf"(?:(?:\s+[^\s\"'<>/=]+(?:\s*=\s*(?:{_VALUE}))?)*\s*/?>|[\s/=][^<>]*>)"  # of a tag
_OPEN_TAG, _CLOSE_TAG = rf"<(?:{_PHRASING}{_REST}|\d+>)", rf"</(?:{_PHRASING}|\d+)\s*>"
_ANY_TAG = rf"</?{_NAME}{_REST}"
_ESCAPED_REST = rf"(?:\s[^<>{_LESS}{_GREATER}\n]*=[^<>{_LESS}{_GREATER}\n]*|\s*/)?{_GREATER}"


def _elements(names):
    return "|".join(rf"(?is:<{x}{_REST}.*?</{x}\s*>)" for x in names.split())


# Placeholders
def _braces(inside, depth=6):
    """Returns a pattern of braces, balanced up to a depth; inside: the pattern of their text."""
    inner = f"|{_braces(inside, depth - 1)}" if depth > 1 else ""
    return rf"\{{(?:{inside}{inner})*\}}"


_ICU = r"(?:number|date|time|spellout|ordinal|duration|plural|select|selectordinal|choice)"
_QUOTED = r"\"[^\"\n]*\"|'[{}]+'|"
_MESSAGE, _ON_A_LINE = _braces("[^{}]").removeprefix(r"\{"), _braces(rf"{_QUOTED}[^{{}}\n]")
_LATEX = (
    r"\\(?:[a-mo-qsu-z][a-z]+|(?:nabla|neq?|ni|not|nu|ref|rho|right|rm|tau|text|textbf|textit|theta"
    r"|times|to|top|tilde)\b)"
)

# Addresses, by the rules of GitHub's autolinks and linkify-it: they end at white space, quotes and
# full-width marks, at other marks only behind their last letter, at brackets that they do not open.
_NOT_IN_URL = r"\s\p{Z}\x{E000}-\x{E043}\x{E045}-\x{E0FF}<>\"()\[\]{}"
_URL_END = (
    rf"{_NOT_IN_URL}\x{{E044}}“”„«»‘’….,;:!?*_~'|&\\^`،؛؟।॥۔"
    r"\x{3000}-\x{303F}\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF20}\x{FF3B}-\x{FF40}\x{FF5B}-\x{FF65}"
)
_INSIDE = f"[^{_NOT_IN_URL}]*"
_URL = (
    rf"(?:(?:[.,;:!?*_~'|&^]|{CHARACTER}&)*(?:[^{_URL_END}]|\({_INSIDE}(?:\({_INSIDE}\){_INSIDE})*\)"
    rf"|\[{_INSIDE}\]|[$#%]?\{{{_INSIDE}\}}))+"
)
_MAIL_LETTER = rf"{_SPACED}\p{{Inherited}}\p{{N}}"
_MAIL = rf"-{_MAIL_LETTER}_"
_HOST = rf"(?:[{_MAIL_LETTER}](?:[-{_MAIL_LETTER}]*[{_MAIL_LETTER}])?\.)+"
_DOMAINS = "com|org|net|edu|gov|info|biz|io|dev|app|eu|de|ch|uk|fr|nl|pl|ru|ua|cz|jp|cn|br"

_PICTURE = (
    r"(?:[\p{S}\p{P}ℹ]\x{FE0F}|[\x{1F000}-\x{1F1E5}\x{1F200}-\x{1FAFF}\x{2600}-\x{27BF}"
    r"\x{2B00}-\x{2BFF}\x{231A}\x{231B}\x{23E9}-\x{23F3}\x{23F8}-\x{23FA}])"
)

KINDS = {
    "label": (
        BLOCK,
        r"(?m:^)[ \t]*(?:\(?\p{Nd}{1,3}[.)]|[-–—*•·●▪◦‣+]|#{1,6}|>+)[ \t]+(?:\[[ xX]\][ \t]+)?"
        r"|(?m:^)(?:[\d:]+[.,]?\d* --> [^\n]*|\[\d+(?::\d\d)+(?:[.,]\d+)?\][ \t]*)",
    ),
    "comment": (
        INLINE,
        r"<!--(?:-?>|(?s:.*?)--!?>)|<%#(?s:.*?)%>|\{%(?s:.*?)%\}|\{#[^{}\n]*#\}"
        r"|\{\{[#/^!][^{}\n]*\}\}|</?[#@][a-z]\w*(?:\s[^<>]*)?/?>",
    ),
    "output of a program": (
        WORD, r"<\?(?:=|(?:php)?\s+(?:echo|print)\b)(?s:.*?)\?>|<%[=-](?s:.*?)%>",
    ),
    "declaration": (
        BLOCK,
        r"<!\[CDATA\[|\]\]>|<\?(?s:.*?)\?>|<%(?s:.*?)%>|<!DOCTYPE[^<>\[]*\[(?s:.*?)\]\s*>"
        r"|<![A-Za-z\[][^<>]*>|<(?:!--|\?(?:php|=)?|%)",
    ),
    "raw block": (BLOCK, _elements("script style pre")),
    "picture": (INLINE, _elements("svg")),
    "code": (WORD, _elements("code math") + r"|`{1,2}[^`'\n]+`{1,2}"),
    "note": (
        INLINE,
        rf"(?i:<sup{_REST})(?:{_ANY_TAG}|[^<>\p{{L}}])*?[a-z]?(?:{_ANY_TAG}|[^<>\p{{L}}])*?</sup>"
        r"|\[\d{1,3}(?:[,–-] ?\d{1,3})*\]",
    ),
    "address in brackets": (
        WORD, r"<(?:[A-Za-z][A-Za-z0-9+.-]*://|mailto:|tel:)[^\s<>]+>|<[^\s<>@]+@[^\s<>@]+>",
    ),
    "block tag": (BLOCK, rf"</?{_names(_BLOCKS)}{_REST}"),
    "tags between words": (GAP, rf"(?:{_CLOSE_TAG})+(?:{_OPEN_TAG})+"),
    "closing tag": (
        INLINE, rf"{_CLOSE_TAG}|<(?i:wbr|img|input){_REST}|<(?:{_PHRASING}|\d+)(?:\s[^<>]*)?/>",
    ),
    "opening tag": (OPENING, _OPEN_TAG),
    "other tag": (BLOCK, _ANY_TAG),
    "escaped block tag": (
        BLOCK,
        rf"{_LESS}/{_names(_BLOCKS)}{_GREATER}(?:{_LESS}{_names(_BLOCKS)}{_ESCAPED_REST})*",
    ),
    "escaped tag": (INLINE, rf"{_LESS}/?{_NAME}{_ESCAPED_REST}"),
    "space": (SPACE, SPACE),
    "symbol": (WORD, f"[{_SYMBOL}{_LESS}{_GREATER}]"),
    "address": (
        WORD,
        rf"(?i:[a-z][a-z0-9+.-]*://|www\.|(?:mailto|tel|sms|magnet|urn):|data:[a-z]+/){_URL}"
        rf"|[{_MAIL}](?:[{_MAIL}.+%'&=]*[{_MAIL}])?@[{_MAIL}]+(?:\.[{_MAIL}]+)+(?::[\w./~-]*\w)?"
        rf"|(?://)?(?i:{_HOST}[a-z]{{2,}})(?::\d+)?/(?:{_URL})?"
        rf"|{_HOST}(?:(?:ac|co|com|edu|gov|org)\.[a-z]{{2}}|{_DOMAINS}|COM|ORG|NET)\b"
        r"|localhost:\d+|[A-Za-z]:\\[^\s<>\"]*",
    ),
    "message": (WORD, rf"\{{\s*[\w.]+\s*,\s*{_ICU}\s*,{_MESSAGE}|[$#%@]?{_ON_A_LINE}"),
    "no placeholder": ("", r"\$\d+(?:[.,]\d+)+|\$\d\d+|[A-Za-z0-9_]+[:@]+|\d+%"),
    "placeholder": (
        WORD,
        r"\[\[[^\[\]\n]*\]\]|\$t\([^()\n]*\)|%\([\p{L}\p{M}\p{N}_]+\)[-+#0-9.]*[a-z]|\$\([\w.]+\)"
        r"|%<\w+>[-+#0-9.]*[a-z]|%(?:\d+\$)?(?:#@\w+)?@|%%\w+%%|%%"
        r"|%(?:\d+\$)?[-+#0,]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hlLzjtq])?[A-Za-z]\b"
        r"|%[A-Za-z_][\w.]*%|%L?(?:[1-9]\d?|n)\b|__[A-Za-z0-9]\w*?__|\$\d\b"
        r"|\$[A-Za-z_]\w*(?:\$\B|(?:(?:\.|->)[a-z_]\w*|\[\w*\])*)|:[a-z][\w+-]*:\B"
        r"|:[A-Za-z_]\w+|@(?:\.\w+)?:(?:\([\w.]+\)|[\w.]*\w)|@[A-Za-z_]\w*",
    ),
    "command": (WORD, _LATEX),
    "line end": (BLOCK, r"(?:\\[nrt])+"),
    "emoji": (
        INLINE,
        r"[#*0-9]\x{FE0F}?\x{20E3}|[\x{1F1E6}-\x{1F1FF}]{2}|"
        rf"{_PICTURE}(?:[\x{{FE0E}}\x{{FE0F}}\x{{200D}}\x{{E0020}}-\x{{E007F}}]|{_PICTURE})*",
    ),
}  # fmt: skip
"""{kind: (its mark, its RE2 pattern)}. Where several begin at one place the first one counts. The
mark "" is for what is no span, though another kind would begin in it."""

_ENTITY = r"&(?:amp;)*(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);"
_READ, _SYNTAX = r"[\p{L}\p{M}\p{N}\p{P}\p{Cf}]", r"[#%*@\[\]\\_{}]"
"""Characters that a sentence is read with where an entity stands for them, and those of them that
might begin another kind of span."""
_IGNORED = r"[\x{AD}\x{200B}\x{2060}]"
"""Characters of entities inside of words, which the model does not read."""


def mask(texts, pattern=""):
    """Replaces spans by marks, and entities of characters by a mark and the character.

    Args:
        texts: string [batch]; bytes that are not UTF-8 count as U+FFFD.
        pattern: str, an RE2 pattern of additional spans, which stand for words.

    Returns:
        string [batch], valid UTF-8; and string [marks], the originals of all marks, in order.
        `unmask` puts them back.
    """
    texts, entities = _decode_entities(texts)
    own = f"(?:{pattern})|" if pattern else ""
    kinds = "|".join(kind for _, kind in KINDS.values())
    parts, is_match = split_by_pattern(texts, f"{CHARACTER}?(?:{own}{kinds})")
    found = tf.boolean_mask(parts.values, is_match)
    marks = tf.fill(tf.shape(found), WORD)
    # A part is of the first kind that matches it.
    for mark, kind in reversed(KINDS.values()):
        marks = tf.where(tf.strings.regex_full_match(found, f"{CHARACTER}?(?:{kind})"), mark, marks)
    if pattern:
        marks = tf.where(tf.strings.regex_full_match(found, f"(?:{pattern})"), WORD, marks)
    marks = in_order("", is_match, marks)  # [parts]
    is_span = marks != ""
    inner, is_entity = split_by_pattern(parts.values, f"[{SPACE}{_SYMBOLS}]|{_CHARACTER}")
    inner = inner.with_values(in_order(inner.values, is_entity, entities))
    spans = tf.boolean_mask(join_parts(inner, inner.values), is_span)
    spans = tf.RaggedTensor.from_row_lengths(spans, tf.cast(is_span, tf.int64), validate=False)
    alone = is_entity & ~tf.gather(is_span, inner.value_rowids())
    [entities] = keep_where(alone, inner)
    masked = join_parts(parts, tf.where(is_span, marks, parts.values))
    return masked, tf.concat([spans, entities], axis=1).values


def unmask(pieces, stands_for):
    """Replaces marks by the spans and entities that they stand for.

    Args:
        pieces: string [pieces], the parts of masked texts.
        stands_for: string [marks], the originals that `mask` returned.

    Returns:
        string [pieces]; and two RaggedTensors string [pieces, (marks)], the marks of each piece and
        their originals.
    """
    parts, is_mark = split_by_pattern(pieces, _MASKED)
    values = in_order(parts.values, is_mark, stands_for)
    marks, spans = keep_where(is_mark, parts, parts.with_values(values))
    return join_parts(parts, values), marks, spans


def put_spans(translations, marks, spans):
    """Replaces the marks of translations by the spans of their sentences.

    Args:
        translations: string [rows]. The mark of placeholder k becomes the k-th of the spans that
            stand for words. Any other mark becomes the next span of its kind. A mark without a
            span is removed.
        marks, spans: RaggedTensors string [rows, (marks)], of the sentences; see `unmask`.

    Returns:
        string [rows].
    """
    parts, is_mark = split_by_pattern(translations, f"{PLACED}|{NUMBERED}")
    found, rows = tf.where(is_mark, "", parts.values), parts.value_rowids()
    is_numbered = is_mark & tf.strings.regex_full_match(parts.values, NUMBERED)
    is_word = is_mark & (parts.values == WORD)
    is_placed = is_mark & ~is_numbered & ~is_word
    for kind, is_kind, number in (
        (WORD, is_word, order_in_row(parts, is_word)),
        (WORD, is_numbered, number_of(parts.values, is_numbered) - 1),
        (f"[{INLINE}{OPENING}{SPACE}{GAP}]", is_placed, order_in_row(parts, is_placed)),
    ):
        matches = tf.strings.regex_full_match(marks.values, kind)
        [of_kind] = keep_where(matches, spans)
        starts, counts = (
            tf.gather(tf.cast(x, tf.int32), rows)
            for x in (of_kind.row_starts(), of_kind.row_lengths())
        )
        place = tf.where(is_kind & (number < counts), starts + number, tf.size(of_kind.values))
        found = tf.where(is_kind, tf.gather(tf.concat([of_kind.values, [""]], 0), place), found)
    return join_parts(parts, found)


def as_read(sentences):
    """Returns masked sentences without the marks before characters of entities."""
    return tf.strings.regex_replace(sentences, f"{CHARACTER}{_IGNORED}|{CHARACTER}", "")


def escape(translations, texts, rows):
    """Escapes `&` and `<` in translations in the way of their texts.

    Args:
        translations: string [translations]. If a text writes `&amp;`, so does its translation; if
            it contains tags or entities, no translation contains more of them.
        texts: string [batch].
        rows: integers [translations], the index of the text of each.
    """
    has, replace = tf.strings.regex_full_match, tf.strings.regex_replace
    is_markup = tf.gather(has(texts, r"(?s:.*(?:<[A-Za-z/!?]|&#?\w+;).*)"), rows)
    writes_all = tf.gather(has(texts, "(?s:.*&(?:amp|#38|#[xX]26);.*)"), rows)
    escaped = tf.where(
        writes_all,
        replace(translations, "&", "&amp;"),
        replace(translations, r"&(#?\w+;)", r"&amp;\1"),
    )
    return tf.where(is_markup, replace(escaped, "<([A-Za-z/!?])", r"&lt;\1"), translations)


def _decode_entities(texts):
    """Returns texts, string [batch], with marks and characters for entities, and all entities.

    White space becomes `SPACE`, a character that sentences are read with `CHARACTER` and itself,
    and all else another mark, such as characters of the text itself that are marks.
    """
    parts, is_entity = split_by_pattern(texts, f"{ALL_MARKS}|{_ENTITY}")
    entities = tf.boolean_mask(parts.values, is_entity)
    characters = _characters(entities)
    has = tf.strings.regex_full_match
    is_read = has(characters, _READ) & ~has(characters, _SYNTAX)
    found = tf.where(is_read, tf.strings.join([CHARACTER, characters]), _SYMBOL)
    found = tf.where(has(characters, r"[\s\p{Z}]"), SPACE, found)
    found = tf.where(characters == "<", _LESS, tf.where(characters == ">", _GREATER, found))
    return join_parts(parts, in_order(parts.values, is_entity, found)), entities


def _characters(entities):
    """Returns the character that each entity, string [entities], stands for; "" for others."""
    hashes, names, values = _entity_table()
    place = tf.searchsorted(hashes, tf.strings.to_hash_bucket_fast(entities, _HASHES))
    place = tf.minimum(place, len(names) - 1)
    named = tf.where(tf.gather(names, place) == entities, tf.gather(values, place), "")
    # Numbers: the values of up to eight digits.
    is_hexadecimal = tf.strings.regex_full_match(entities, "&#[xX][0-9A-Fa-f]{1,6};|&#[xX]0*;")
    is_number = is_hexadecimal | tf.strings.regex_full_match(entities, r"&#\d{1,7};")
    digits = tf.strings.regex_replace(tf.where(is_number, entities, ""), "[&#xX;]", "")
    digits = tf.strings.substr(tf.strings.join(["0" * 8, tf.strings.lower(digits)]), -8, 8)
    digits = tf.cast(tf.reshape(tf.io.decode_raw(digits, tf.uint8), [-1, 8]), tf.int32)
    digits -= tf.where(digits > 57, 87, 48)
    base = tf.where(is_hexadecimal, 16, 10)[:, tf.newaxis]
    code = tf.reduce_sum(digits * base ** tf.range(7, -1, -1), axis=1)
    code = tf.where(code < 160, tf.gather(_LATIN, tf.clip_by_value(code, 0, 159)), code)
    written = tf.strings.unicode_encode(code[:, tf.newaxis], "UTF-8")
    return tf.where(is_number, written, named)


_HASHES = 2**62
_LATIN = [ord(html.unescape(f"&#{code};") or "\ufffd") for code in range(160)]
"""Characters below U+00A0, where HTML reads those of Windows-1252."""


@functools.cache
def _entity_table():
    """Returns sorted hashes of entities, int64, the entities, and their characters, str lists."""
    known = {
        f"&{name}": value
        for name, value in html.entities.html5.items()
        if name.endswith(";") and len(value) == 1
    }
    with tf.init_scope(), tf.device("CPU"):
        hashes = tf.strings.to_hash_bucket_fast([*known], _HASHES).numpy()
    order = sorted(range(len(hashes)), key=lambda i: hashes[i])
    names = [*known]
    return hashes[order], [names[i] for i in order], [known[names[i]] for i in order]


def number_of(parts, flags):
    """Returns n of each flagged part, which is the mark U+E000 + n, int32 [parts]; else 0."""
    marks = tf.io.decode_raw(tf.where(flags, parts, mark_of(0)), tf.uint8)
    bits = tf.cast(tf.reshape(marks, [-1, 3]), tf.int32) % 64  # of UTF-8, three bytes
    return 64 * bits[:, 1] + bits[:, 2]


# Spans of several lines, outside of a graph -------------------------------------------------------

_CLOSED = re.compile(
    rb"(?is)<!--(?:-?>|.*?--!?>)|<!doctype[^<>\[]*\[.*?\]\s*>|<\?.*?\?>|<%.*?%>|\{%.*?%\}"
    rb"|<(script|style|pre|code|svg|math)\b.*?</\1\s*>"
    rb"|<(?!(?:script|style|pre|code|svg|math)\b)[/!]?[a-z][^<>]*>"
)
_OPENED = re.compile(
    rb"(?i)<!--|<\?|<%|\{%|</?[a-z][\w:.-]*(?=[\s>])|<!\w|\{\s*[\w.]+\s*,\s*(?:plural|select)\w*,"
)
_MOST_LINES = 2_000


def join_lines(lines):
    """Joins the lines of spans of several lines, so that each span is within one document.

    Args:
        lines: iterable of bytes, with their ends.

    Yields:
        One item for each line: the joined lines of such a span, then b"" for its other lines. A
        span of more than 2,000 lines, or without an end, is divided.
    """
    lines, waiting = iter(lines), collections.deque()
    while waiting or (waiting := collections.deque(itertools.islice(lines, 1))):
        text, count = waiting[0], 1
        while _ends_inside_span(text) and count < _MOST_LINES:
            if count == len(waiting):
                waiting.extend(itertools.islice(lines, 1))
            if count == len(waiting):
                break
            text, count = text + waiting[count], count + 1
        if _ends_inside_span(text):
            text, count = waiting[0], 1
        yield text
        yield from [b""] * (count - 1)
        waiting = collections.deque(itertools.islice(waiting, count, None))


def _ends_inside_span(text):
    if opened := _OPENED.search(rest := _CLOSED.sub(b"", text)):
        return (
            not opened[0].startswith(b"{")
            or opened[0] == b"{%"
            or (rest.count(b"{") > rest.count(b"}"))
        )
    return False
