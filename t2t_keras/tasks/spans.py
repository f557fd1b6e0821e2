"""Spans: the parts of a document that are not translated, such as markup and placeholders.

`mask` replaces each span of a text by a mark, one character that says how the span acts on the
ends of sentences and on words; `KINDS` is the table of all kinds of spans and their marks. An
entity of a letter, digit or punctuation mark, such as `&uuml;`, becomes its character, with a mark
before it. All of this runs in the graph, by string operations only.
"""

import functools
import html
import html.entities
import re

import tensorflow as tf

from t2t_keras.data.placeholders import mark_of
from t2t_keras.data.ragged import keep_where
from t2t_keras.data.text_parts import (
    in_order,
    join_parts,
    neighbors,
    order_in_row,
    split_by_pattern,
)
from t2t_keras.errors import InputError, reason_of
from t2t_keras.settings import MAX_PLACEHOLDERS
from t2t_keras.tasks.document_lines import join_lines  # noqa: F401  spans of several lines

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
_LINK, _TARGET, _TARGET_END, _RAW, _RAW_END, _KEPT, _KEPT_WORD, _KEPT_END = _ADDED = (
    "\ue048\ue049\ue04a\ue04b\ue04c\ue04d\ue04e\ue04f"
)
"""Stand before brackets of links, and around raw blocks and elements that are not translated."""

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
    "bpt bx c cp ec em ept ex g hi it lang mrk pc ph sc sm ut v x"
)
"""Phrasing elements of HTML (https://html.spec.whatwg.org/#phrasing-content) without <br>, <select>
and <textarea>; former ones; tags of messages; inline elements of XLIFF, TMX and WebVTT."""
_BLOCKS = (
    "address article aside base blockquote body br caption center col colgroup dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head "
    "header hgroup hr html legend li main menu nav ol optgroup option p param plural search "
    "section select source string string-array summary table tbody td textarea tfoot th thead "
    "title tr track trans-unit ul"
)
"""Some of the elements that are not phrasing: all others are blocks, too, but capital letters or a
hyphen make a name that of a component, which is phrasing."""


_VOID = "area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr"


def _names(names, *patterns):
    return rf"(?:(?i:{names.replace(' ', '|')}){''.join(f'|{x}' for x in patterns)})"


_PREFIXED = "xliff:g|o:p|st1:[a-z]+|c:out|fmt:[a-z]+"  # of strings of Android, Word, Java
_NUMBERED_TAG = r"[A-Za-z]{1,3}\d+"  # of OmegaT; <h1> is a block tag before
_CUE_TAG = r"(?:c|v|lang|[biu]|rt|ruby)\.[\w.-]+"  # of WebVTT, with classes
_PHRASING = _names(
    _PHRASING, "[A-Z][a-z]+[A-Za-z]*", r"[A-Za-z]+-[-\w.]+", _PREFIXED, _NUMBERED_TAG, _CUE_TAG
)
_NAME = r"[A-Za-z][\w:.-]*"
_VALUE = r"\"[^\"]*\"|'[^']*'|\{[^{}]*\}|[^\s\"'=<>`{}][^\s\"'=<>`]*"
_REST = rf"(?:(?:\s+[^\s\"'<>/=]+(?:\s*=\s*(?:{_VALUE}))?)*\s*/?>|[\s/=][^<>]*>)"  # of a tag
_OPEN_TAG, _CLOSE_TAG = rf"<(?:{_PHRASING}{_REST}|\d+>)", rf"</(?:{_PHRASING}|\d+)\s*>"
_ANY_TAG = rf"</?{_NAME}{_REST}"
_ESCAPED_REST = rf"(?:\s[^<>{_LESS}{_GREATER}\n]*=[^<>{_LESS}{_GREATER}\n]*|\s*/)?{_GREATER}"


_KEPT_TAG = (
    rf"(?is:<{_NAME}(?:\s+[^\s\"'<>/=]+(?:\s*=\s*(?:{_VALUE}))?)*?\s+(?:translate\s*=\s*[\"']?\s*no"
    r"|translatable\s*=\s*.false|class\s*=\s*(?:[\"'](?:[^\"']*\s)?)?notranslate)(?:[\s/\"'].*)?>)"
)
_QUOTES = r"\"[^\"]*\"|'[^']*'"
_NOT_EMPTY = rf"(?:\s(?:(?:{_QUOTES}|[^<>\"'])*(?:{_QUOTES}|[^<>\"'/]))?)?>"  # not <x/>


def _elements(names):
    return "|".join(rf"(?is:<{x}{_NOT_EMPTY}.*?</{x}\s*>)" for x in names.split())


# Markdown
_INDENT = r"(?m:^)(?:[ \t>]|[-*+][ \t]|\d+[.)][ \t])*"  # also of lists and quotes


def _fence(mark, n):
    """Returns the pattern of a block between two fences of n marks, the last at least as long."""
    first = rf"{_INDENT}{mark}{{{n}}}(?:[^{mark}\n][^\n]*)?\n"
    return rf"{first}(?:[^\n]*\n)*?[ \t>]*{mark}{{{n},}}[ \t\r]*(?m:$)"


def _code(n):
    """Returns the pattern of code between n backticks; quotes as in ``TeX'' are none."""
    fewer = "" if n == 1 else f"`{{0,{n - 1}}}"
    spaced = "" if n == 1 else rf"|`{{{n}}} (?:{fewer}[^`\n])*{fewer} `{{{n}}}"
    return rf"`{{{n}}}[^`\s](?:(?:{fewer}[^`\n])*{fewer}[^`\s])?`{{{n}}}\B{spaced}"


_LINES = r"(?:[\w.-]+[ \t]*[:=][^\n]*|[ \t#\[\]}-][^\n]*|\r?)\n"  # of YAML and TOML
_FRONT_MATTER = (
    rf"\A\x{{FEFF}}?---[ \t\r]*\n(?:{_LINES})*?(?:---|\.\.\.)[ \t\r]*(?m:$)"
    rf"|\A\x{{FEFF}}?\+\+\+[ \t\r]*\n(?:{_LINES})*?\+\+\+[ \t\r]*(?m:$)"
)
_HEADER = r"\A\x{FEFF}?WEBVTT(?:[ \t][^\n]*)?(?:\r?\n[^\r\n]+)*\r?(?m:$)"
_TITLE = r"(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*"
_PATH = r"(?:<[^<>\n]*>|[^\s()<>]*(?:\((?:[^\s()<>]|\([^\s()<>]*\))*\)[^\s()<>]*)*)"
_DESTINATION = rf"\]\(\s*{_PATH}{_TITLE}\)|\]\{{(?:\d+|[.#:][^{{}}\n]*)\}}"
_REFERENCE = r"\]\[[^\[\]\n]*\]"
_LINK_TEXT = rf"(?:[^\[\]\n{_LINK}{_TARGET}]|\[[^\[\]\n]*\]|{_LINK}+!?\[|{_TARGET}+\])*"
_DEFINITION = (
    r"(?m:^) {0,3}\[[^\[\]\n^][^\[\]\n]*\]:[ \t]*"
    r"(?:<[^<>\n]*>|[^\s<>]*(?:[/#:@]|\.\w)[^\s<>]*)" + _TITLE.replace(r"\s", r"[ \t\r]") + "(?m:$)"
)
_RAW_BLOCK = "|".join((
    *(_fence(mark, n) for mark in "`~" for n in range(3, 8)), _FRONT_MATTER, _HEADER, _DEFINITION
))  # fmt: skip
_HAS_MARKUP = r"(?s:.*[\[<*_`~].*|\x{FEFF}?(?:---|\+\+\+|WEBVTT).*)"
"""Texts that may have raw blocks, links, emphasis or elements to keep; others save the passes."""
_BEFORE = r"((?m:^)|[\s(\[\"'“„«>*])"
_IN_LINE = rf"—{UNSPACED}\x{{3000}}-\x{{303F}}\x{{FF00}}-\x{{FFEF}}"  # where no space is written
_EMPHASIS = (
    rf"((?m:^)|[\s(\[\"'“‘„«>{_IN_LINE}])(\*{{2,3}})([^\s*](?:[^*\n]*[^\s*])?)(\*{{2,3}})",
    r"((?m:^)|[\s(\[\"'“‘„«>])(\*{1,3})([^\s*](?:[^*\n]*[^\s*])?)(\*{2,3}|\*\B)",
    _BEFORE + r"(_)([^\s_](?:[^_\n]*[^\s_])?)(_)\b",
    _BEFORE + r"(__)([^\s_][^_\n]* [^_\n]*[^\s_])(__)\b",  # __count__ is a placeholder
    _BEFORE + r"(~~)([^\s~](?:[^~\n]*[^\s~])?)(~~)",
)
_ADMONITIONS = (
    "note|abstract|info|tip|success|question|warning|failure|danger|bug|example|quote|caution"
    "|important|attention|hint|error|details|seealso"
)
_BB_CODE = "b|i|u|s|url|img|quote|code|color|size|font|list|center|spoiler|email"
_MATH = (
    r"\$\$[^$]+\$\$|\$(?:[^\s$\d{]|\d[^\s$]*[\\^_={}])(?:[^$\n]*[^\s$])?\$\B"
    r"|\\\((?:\w|(?:[^\n\\]|\\[^)\n])*(?:[\^_={}]|\\[a-z])(?:[^\n\\]|\\[^)\n])*)\\\)"
)


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
    "not translated": (
        BLOCK, rf"{_RAW}[^{_RAW_END}]*{_RAW_END}|{_KEPT}[^{_KEPT_END}]*{_KEPT_END}",
    ),
    "not translated word": (WORD, rf"{_KEPT_WORD}[^{_KEPT_END}]*{_KEPT_END}"),
    "label": (
        BLOCK,
        r"(?m:^)[ \t]*(?:(?:>+[ \t]+)*(?:\(?\p{Nd}{1,3}[.)]|[-–—*•·●▪◦‣+]|#{1,6})[ \t]+"
        r"|(?:>+[ \t]+)+)(?:\[[ xX]\][ \t]+)?"
        rf"|(?m:^)[ \t]*(?:(?:!!!|\?\?\?\+?) |:{{3,}}[ \t]*)(?:{_ADMONITIONS})\b"
        r"|(?m:^)(?:[\d:]+[.,]?\d* --> [^\n]*|\[\d+(?::\d\d)+(?:[.,]\d+)?\][ \t]*)"
        r"|(?m:^) {0,3}\[\^[^\[\]\s]+\]:[ \t]*",
    ),
    "comment": (
        INLINE,
        r"<!--(?:-?>|(?s:.*?)--!?>)|<%#(?s:.*?)%>|\{%(?s:.*?)%\}|\{#[^{}\n]*#\}"
        r"|\{\{[#/^!][^{}\n]*\}\}|</?[#@][a-z]\w*(?:\s[^<>]*)?/?>"
        r"|<(?:\d+:)+\d+\.\d+>|\{\\[^{}\n]*\}",
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
    "code": (
        WORD, rf"{_elements('code math')}|{_code(3)}|{_code(2)}|{_code(1)}|``?[^`'\n]+``?",
    ),
    "note": (
        INLINE,
        rf"(?i:<sup{_REST})(?:{_ANY_TAG}|[^<>\p{{L}}]|\b[a-z]\b)*?</sup>"
        r"|\[\d{1,3}(?:[,–-] ?\d{1,3})*\]|\[\^[^\[\]\s]+\]",
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
    "opening bracket": (
        OPENING, rf"{_LINK}+(?:!?\[|\*+|_+|~~)?|\[(?i:{_BB_CODE})(?:=[^\[\]\n]*)?\]",
    ),
    "destination": (
        INLINE,
        rf"{_TARGET}[^{_TARGET_END}]*{_TARGET_END}+|\[/(?i:{_BB_CODE})\]|[{_ADDED}]"
        rf"|{_DESTINATION}",  # of a link whose text begins on another line
    ),
    "command": (WORD, _LATEX),
    "space": (SPACE, rf"{SPACE}|\\h"),
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
    "formula": (WORD, _MATH),
    "no placeholder": (
        "", r"\$\d+(?:[.,]\d+)+|\$\d\d+|[A-Za-z0-9_]+[:@]+|\d+%",
    ),
    "placeholder": (
        WORD,
        r"\[(?:[\w*#]+,)?_(?:-?\d+|\*)(?:,[^\[\]\n]*)?\]|\B\|[A-Za-z][\w.-]*\|\B|\B![A-Za-z_][\w-]*"
        r"|\[\[[^\[\]\n]*\]\]|\$t\([^()\n]*\)|%\([^\s()]+\)[-+#0-9.]*[a-z]|\$\([\w.]+\)"
        r"|%<\w+>[-+#0-9.]*[a-z]|%(?:\d+\$)?(?:#@\w+)?@|%%\w+%%|%%"
        r"|%(?:\d+\$)?[-+#0,]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hlLzjtq])?[A-Za-z]\b"
        r"|%[A-Za-z_][\w.]*%|%[A-Za-z_]\w+(?:-\w+)*|%L?(?:[1-9]\d?|n)\b|__[A-Za-z0-9]\w*?__|\$\d\b"
        r"|\$[A-Za-z_]\w*(?:\$\B|(?:(?:\.|->)[a-z_]\w*|\[\w*\])*)|:[a-z][\w+-]*:\B"
        r"|:[A-Za-z_]\w+|@(?:\.\w+)?:(?:\([\w.]+\)|[\w.]*\w)"
        r"|@[A-Za-z_]\w*(?:-\w+)*(?:(?::\w+)?/[\w.-]*\w)?",
    ),
    "line end": (BLOCK, r"(?:\\[nrtN])+"),
    "emoji": (
        INLINE,
        r"[#*0-9]\x{FE0F}?\x{20E3}|[\x{1F1E6}-\x{1F1FF}]{2}|"
        rf"{_PICTURE}(?:[\x{{FE0E}}\x{{FE0F}}\x{{200D}}\x{{E0020}}-\x{{E007F}}]|{_PICTURE})*",
    ),
    "exclamation mark": ("", r"[^\x00-\x7F\x{E000}-\x{E0FF}]!+"),
}  # fmt: skip
"""{kind: (its mark, its RE2 pattern)}. Where several begin at one place the first one counts. The
mark "" is for text that is not a span, although another kind could begin in it."""

_ENTITY = r"&(?:amp;)*(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);"
_READ, _SYNTAX = r"[\p{L}\p{M}\p{N}\p{P}\p{Cf}]", r"[#%*@\[\]\\_{}]"
"""Characters that a sentence is read with where an entity stands for them, and those of them that
might begin another kind of span."""
_IGNORED = r"[\x{AD}\x{200B}\x{2060}]"
"""Characters of entities inside of words, which the model does not read."""


def mask(texts, pattern=""):
    """Replaces spans by marks, and entities that stand for characters by a mark and the character.

    Args:
        texts: string [batch]; bytes that are not UTF-8 count as U+FFFD.
        pattern: str, an RE2 pattern of additional spans; the model reads each as a word.

    Returns:
        string [batch], valid UTF-8; and string [marks], the originals of all marks, in order.
        `unmask` puts them back.
    """
    texts, entities = _decode_entities(texts)
    has_markup = tf.reduce_any(tf.strings.regex_full_match(texts, _HAS_MARKUP))
    texts = tf.cond(has_markup, lambda: _mark_pairs(texts), lambda: texts)
    own = f"(?:{pattern})|" if pattern else ""
    kinds = "|".join(kind for _, kind in KINDS.values())
    parts, is_match = split_by_pattern(texts, f"{CHARACTER}?(?:{own}{kinds})")
    match = tf.boolean_mask(parts.values, is_match)
    marks = tf.fill(tf.shape(match), WORD)
    # A part is of the first kind that matches it.
    for mark, kind in reversed(KINDS.values()):
        marks = tf.where(tf.strings.regex_full_match(match, f"{CHARACTER}?(?:{kind})"), mark, marks)
    if pattern:
        marks = tf.where(tf.strings.regex_full_match(match, f"(?:{pattern})"), WORD, marks)
    marks = in_order("", is_match, marks)  # [parts]
    is_span = marks != ""
    values = tf.strings.regex_replace(parts.values, f"[{_ADDED}]", "")
    inner, is_entity = split_by_pattern(values, f"[{SPACE}{_SYMBOLS}]|{_CHARACTER}")
    inner = inner.with_values(in_order(inner.values, is_entity, entities))
    spans = tf.boolean_mask(join_parts(inner, inner.values), is_span)
    spans = tf.RaggedTensor.from_row_lengths(spans, tf.cast(is_span, tf.int64), validate=False)
    alone = is_entity & ~tf.gather(is_span, inner.value_rowids())
    [entities] = keep_where(alone, inner)
    masked = join_parts(parts, tf.where(is_span, marks, values))
    return masked, tf.concat([spans, entities], axis=1).values


def _mark_pairs(texts):
    """Puts marks around raw blocks, links, emphasis and elements that are not translated."""
    texts = tf.strings.regex_replace(texts, _RAW_BLOCK, rf"{_RAW}\0{_RAW_END}")
    return _mark_kept(_mark_links(texts))


def _mark_links(texts):
    """Puts marks before the brackets around texts of links and images, also in one another, and
    before those of emphasis."""
    letters = rf"{_LINK_TEXT}\p{{L}}{_LINK_TEXT}"  # [1][2] are two notes
    # The text of [text][] is the name of a link, defined elsewhere.
    kept = rf"{_KEPT_WORD}\0{_KEPT_END}"
    texts = tf.strings.regex_replace(texts, rf"!?\[{letters}\]\[\]", kept)
    for pattern in (
        rf"(!?\[)({letters})({_REFERENCE})", *2 * [rf"(!?\[)({_LINK_TEXT})({_DESTINATION})"]
    ):  # fmt: skip
        texts = tf.strings.regex_replace(texts, pattern, rf"{_LINK}\1\2{_TARGET}\3{_TARGET_END}")
    for pattern in _EMPHASIS:
        marked = rf"\1{_LINK}\2\3{_TARGET}\4{_TARGET_END}"
        texts = tf.strings.regex_replace(texts, pattern, marked)
    return texts


def _mark_kept(texts):
    """Puts marks around elements with translate="no", also in the words of Android and old HTML."""

    def mark_kept():
        has = tf.strings.regex_full_match
        parts, is_tag = split_by_pattern(texts, _ANY_TAG)
        values, rows = parts.values, parts.value_rowids()
        names = tf.strings.lower(tf.strings.regex_replace(values, rf"(?s)^</?({_NAME}).*", r"\1"))
        closes = is_tag & has(values, "(?s:</.*)")
        opens = is_tag & ~closes & ~has(values, "(?s:.*/>)") & ~has(names, _VOID)
        # An element ends at the next tag of its name and of its depth among those, if there is one,
        # or else before the next tag.
        keys = tf.strings.join([tf.strings.as_string(rows), tf.where(opens | closes, names, "")])
        keys = tf.cast(tf.unique(keys)[1], tf.int64)
        by_name, place = tf.argsort(keys, stable=True), tf.range(tf.size(keys))
        opened, closed = (tf.cast(tf.gather(x, by_name), tf.int64) for x in (opens, closes))
        keys = tf.gather(keys, by_name) * 2**32 + tf.cumsum(opened - closed) + closed
        by_depth = tf.argsort(keys, stable=True)
        keys, order = tf.gather(keys, by_depth), tf.gather(by_name, by_depth)
        is_same = tf.concat([keys[1:] == keys[:-1], place[:1] < 0], axis=0)
        ends = tf.where(is_same, tf.roll(order, -1, 0), order + 1)
        ends = tf.tensor_scatter_nd_update(place, order[:, tf.newaxis], ends)
        starts = tf.where(opens & has(values, _KEPT_TAG))[:, 0]
        ends = tf.minimum(tf.gather(ends, starts), tf.size(place) - 1)
        edges = tf.math.bincount(tf.cast(starts, tf.int32), minlength=tf.size(place))
        edges -= tf.concat([[0], tf.math.bincount(ends, minlength=tf.size(place))[:-1]], axis=0)
        is_kept = tf.cumsum(edges) > 0
        before, behind = neighbors(rows, is_kept, False)
        mark = tf.where(has(values, rf"(?s:<{_PHRASING}[\s/>].*)"), _KEPT_WORD, _KEPT)
        values = tf.strings.join([tf.where(is_kept & ~before, mark, ""), values])
        values = tf.strings.join([values, tf.where(is_kept & ~behind, _KEPT_END, "")])
        return join_parts(parts, values)

    asks = r"(?is:.*<[^<>]*(?:translat(?:e|able)\s*=|notranslate).*)"
    asks = tf.strings.regex_full_match(texts, asks)
    return tf.cond(tf.reduce_any(asks), mark_kept, lambda: texts)


def unmask(pieces, stands_for):
    """Replaces marks by the originals that `mask` returned, `stands_for`, string [marks].

    Args:
        pieces: string [pieces], parts of masked texts.

    Returns:
        The pieces with the originals, and two RaggedTensors string [pieces, (marks)], the marks of
        each piece and their originals.
    """
    parts, is_mark = split_by_pattern(pieces, _MASKED)
    values = in_order(parts.values, is_mark, stands_for)
    marks, spans = keep_where(is_mark, parts, parts.with_values(values))
    return join_parts(parts, values), marks, spans


def put_spans(translations, marks, spans):
    """Replaces the marks of translations, string [rows], by the spans of their sentences.

    The mark of placeholder k becomes the k-th of the spans that stand for words. Any other mark
    becomes the next span of its kind. A mark without a span is removed. Marks and spans are
    RaggedTensors string [rows, (marks)], see `unmask`.
    """
    parts, is_mark = split_by_pattern(translations, f"{PLACED}|{NUMBERED}")
    values, rows = tf.where(is_mark, "", parts.values), parts.value_rowids()
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
        values = tf.where(is_kind, tf.gather(tf.concat([of_kind.values, [""]], 0), place), values)
    return join_parts(parts, values)


def as_read(sentences):
    """Returns masked sentences as a reader sees them: without the marks of HTML entities."""
    return tf.strings.regex_replace(sentences, f"{CHARACTER}{_IGNORED}|{CHARACTER}", "")


def escape(translations, texts, rows):
    """Escapes `&` and `<` in translations, string [translations], in the way of their texts.

    If a text writes `&amp;`, so does its translation; if it contains tags or entities, no
    translation contains more of them. Rows is the index of the text of each translation.
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
    marks = tf.where(is_read, tf.strings.join([CHARACTER, characters]), _SYMBOL)
    marks = tf.where(has(characters, r"[\s\p{Z}]"), SPACE, marks)
    marks = tf.where(characters == "<", _LESS, tf.where(characters == ">", _GREATER, marks))
    return join_parts(parts, in_order(parts.values, is_entity, marks)), entities


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


_PLAIN = ("The old man sees 2 dogs.", "Собака видит кошку.", "他们看见狗。", "رأى الرجل كلبا")
"""Texts that no pattern may protect as a whole."""
_PLACES = ("", "ab  \n\n.c", "\na\n", " c ")
"""Texts with every kind of place: at ends of texts, lines and words, and not at them."""


def check_pattern(name, pattern):
    """Raises InputError if a pattern is invalid, matches the empty text, or protects all words.

    "" is no pattern.
    """
    if not isinstance(pattern, str):
        raise InputError(f"{name} is {pattern!r}: give a pattern in RE2's syntax, or '' for none.")
    if not pattern:
        return
    with tf.init_scope(), tf.device("CPU"):
        try:
            marked = tf.strings.regex_replace(
                [*_PLAIN, *_PLACES], f"(?:{pattern})", rf"{WORD}\0{WORD}"
            )
        except (tf.errors.InvalidArgumentError, UnicodeEncodeError) as error:
            reason = re.sub(r".*, error: |: \(\?:.*", "", reason_of(error))  # RE2's own words
            raise InputError(
                f"{name} is {pattern!r}, which is not a pattern in RE2's syntax ({reason}): see "
                "https://github.com/google/re2/wiki/Syntax."
            ) from error
    # Every second part is a match.
    parts = [text.decode(errors="replace").split(WORD) for text in marked.numpy()]
    if any("" in row[1::2] for row in parts):
        raise InputError(
            f"{name} is {pattern!r}, which matches the empty text: make it match at least one "
            "character, for example by + instead of *."
        )
    for text, row in zip(_PLAIN, parts, strict=False):
        if not any(character.isalpha() for character in "".join(row[::2])):
            raise InputError(
                f"{name} is {pattern!r}, which protects all words of {text!r}, so that nothing "
                "would be translated: make it match fewer words."
            )
