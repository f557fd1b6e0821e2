"""Documents: text of any length is split into sentences, which are translated and put back.

Start with `translate_documents`. `split_sentences` divides a text into segments, each a sentence
with the white space around it. Their concatenation is the text, so nothing between sentences is
lost. `divide_long` divides sentences that are too long for a model. By then the parts that are not
translated are marks, see `spans.py`. Everything runs in the graph, by string operations only.
"""

import functools

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.base_tokenizer import valid_utf8
from t2t_keras.data.text_parts import in_batches, in_order, neighbors, split_by_pattern
from t2t_keras.data.texts import as_batch
from t2t_keras.tasks import spans
from t2t_keras.tasks.abbreviations import ABBREVIATIONS, BEFORE_NUMBERS, ORDINALS

_SENTENCES_PER_BATCH = 64
"""Sentences that are translated together, which bounds the memory of a document."""

# RE2 patterns; texts are valid UTF-8.
_BETWEEN = rf"\s\x{{0B}}\x{{1C}}-\x{{1F}}\x{{85}}\p{{Z}}{spans.SPACE}{spans.GAP}"
_SPACE = rf"[{_BETWEEN}]"
_BYTE_ORDER_MARK = r"\x{FEFF}"
_LINE_BREAK = (
    rf"(?:[\n\r\t\x{{0B}}\x{{0C}}\x{{1C}}-\x{{1E}}\x{{85}}\x{{2028}}\x{{2029}}{spans.BLOCK}]"
    r"|(?m:^)\|[ \t]|[ \t]\|(?:[ \t]|(?m:$)))"
)
"""Ends of lines, blocks, and cells of tables."""
_INLINE = rf"{spans.INLINE}{spans.OPENING}"
_ENTITY = f"{spans.CHARACTER}?"  # stands before a character


def _closing(more):
    """Returns the pattern of what may close a sentence, with more characters."""
    return (
        rf"(?:{_ENTITY}[{more}\\\"'”’»›\)\]}}」』）》〉】¹²³⁰⁴-⁹*_†‡]"
        rf"|[ \x{{A0}}\x{{202F}}{spans.SPACE}]{_ENTITY}[»›]|\[[^\[\]\n]{{1,30}}\])*"
    )


_CLOSING = _closing(f"{_INLINE}{spans.WORD}“‘")
# Without white space after the stop, what may open a sentence belongs to the next one.
_WIDE_CLOSING = _closing(spans.INLINE)
_WIDE_STOP = rf"(?:{_ENTITY}[。！？｡．])+{_WIDE_CLOSING}"
_STOPS = (
    r".!?…‽‼⁇⁈⁉؟۔।॥։;\x{37E}"  # and Burmese, Ethiopic, Khmer, Ol Chiki, Lisu, Meetei
    r"\x{104B}\x{1362}\x{1367}\x{1368}\x{17D4}\x{17D5}\x{1C7E}\x{1C7F}\x{A4FF}\x{ABEB}"
)
_STOP = rf"(?:(?:\.[ \x{{A0}}]){{2,}}\.|(?:{_ENTITY}[{_STOPS}])+){_CLOSING}"
_TAGGED_STOP = rf"(?:{_ENTITY}[.!?…])+{_CLOSING}[{_INLINE}]{_CLOSING}"
_BREAK = rf"{_SPACE}*{_LINE_BREAK}{_SPACE}*|{_WIDE_STOP}{_SPACE}*|{_STOP}{_SPACE}+|{_TAGGED_STOP}"
"""Where a sentence may end, with the white space after it."""

_ALWAYS_ENDS = rf"(?s:.*{_LINE_BREAK}.*|{_WIDE_STOP}{_SPACE}*)"
_FULL_STOP = rf"{_ENTITY}\.{_CLOSING}{_SPACE}*"
_SEMICOLON = rf"(?:{_ENTITY};)+{_CLOSING}{_SPACE}+"  # the question mark of Greek
_GREEK = r"(?s:.*\p{Greek}\p{M}*)"
_OPENING = rf"(?:{_ENTITY}[{_INLINE}{spans.WORD}\\\"'“„«‹(\[¿¡*_])*"
_NEVER_BEGINS = rf"(?s:{_OPENING}{_ENTITY}[^\P{{Ll}}\p{{Georgian}}].*)"
_BEGINS_WITH_CAPITAL = rf"(?s:{_OPENING}{_ENTITY}\p{{Lu}}.*)"
_BEGINS_WITH_DIGIT = rf"(?s:(?:{spans.INLINE}|{_ENTITY}[(\[]?{_ENTITY}\d).*)"
_HAS_WORDS = r"(?s:.*\p{L}.*)"
_WRITTEN_WITHOUT_SPACES = rf"(?s:.*[{spans.UNSPACED}\x{{3000}}-\x{{303F}}\x{{FF00}}-\x{{FFEF}}])"

_DIVISIONS = (
    rf"[,;:،؛—–]{_CLOSING}{_SPACE}+|[、，；：]{_WIDE_CLOSING}{_SPACE}*",
    rf"{_SPACE}+",
    rf"(?s:{_ENTITY}.)\p{{M}}*",
    rf"(?s:{_ENTITY}.)",
)
"""Where a long sentence is divided, the best places first: behind a match."""


def translate_documents(texts, translate, is_too_long, text_language="", pattern="", inputs=()):
    """Translates documents inside a graph.

    Each different sentence is translated once, in batches of 64 of similar length. White space,
    line breaks and markup between sentences are unchanged, and so is a sentence without a letter.
    Sentences without white space between them, as in Chinese, get a space if their translations are
    written with spaces.

    Args:
        texts: string [batch], of any length; bytes that are not UTF-8 count as U+FFFD.
        translate: function of sentences, string [rows], to their translations, string [rows]; both
            have marks of spans, see `spans.put_spans`.
        is_too_long: function of sentences, string [rows], to bool [rows], whether `translate` would
            truncate them; these are divided, see `divide_long`.
        text_language: see `split_sentences`.
        pattern: see `spans.mask`.
        inputs: string [batch] each, further inputs of `translate`, such as the texts' languages.

    Returns:
        string [batch].
    """
    with ops.on_host():
        texts = valid_utf8(texts)
        masked, stands_for = spans.mask(texts, pattern)
        segments = divide_long(split_sentences(masked, text_language), is_too_long)
        pieces = tf.reshape(tf.stack(_strip(segments.values), axis=1), [-1])
        unchanged, marks, originals = spans.unmask(pieces, stands_for)
        before, same, after = tf.unstack(tf.reshape(unchanged, [-1, 3]), axis=1)
        sentences = spans.as_read(pieces[1::3])
        has_words = tf.strings.regex_full_match(sentences, _HAS_WORDS)
        rows = segments.value_rowids()
        chosen = tf.boolean_mask(rows, has_words)
        inputs = [valid_utf8(tf.gather(x, chosen)) for x in inputs]
        inputs = [tf.boolean_mask(sentences, has_words), *inputs]
        different, index = tf.unique(tf.strings.join(inputs, b"\xff"))
        first = tf.math.unsorted_segment_min(tf.range(tf.size(index)), index, tf.size(different))
        inputs = [tf.gather(x, first) for x in inputs]
        order = tf.argsort(tf.strings.length(inputs[0]), direction="DESCENDING", stable=True)
        longest_first = tf.gather(tf.stack(inputs, axis=1), order)  # [sentences, inputs]
    translated = in_batches(
        lambda rows: translate(*tf.unstack(rows, axis=1)), longest_first, _SENTENCES_PER_BATCH
    )
    with ops.on_host():
        translated = tf.gather(tf.gather(translated, tf.argsort(order)), index)
        translated = spans.escape(translated, texts, chosen)
        of_sentences = (tf.gather(x, 3 * tf.where(has_words)[:, 0] + 1) for x in (marks, originals))
        translated = spans.put_spans(translated, *of_sentences)
        translated = in_order(same, has_words, translated)
        after = _with_spaces(translated, after, rows, has_words)
        translated = tf.strings.join([before, translated, after])
        return tf.strings.reduce_join(segments.with_values(translated), axis=1)


def split_sentences(texts, text_language=""):
    """Splits texts into sentences.

    A sentence ends at each line break, block of markup and cell of a table; after a wide period,
    question or exclamation mark; and at the white space after such a mark of another script. There
    it does not end if the next word begins in lower case, or at the period of an initial, an
    abbreviation or an ordinal. If markup follows the mark, a capital letter suffices.

    Args:
        texts: string [batch], with marks of spans.
        text_language: a key of `ABBREVIATIONS`; "": the abbreviations of all languages.

    Returns:
        RaggedTensor string [batch, (segments)]. A segment is a sentence and the white space around
        it. The concatenation of a row is its text, with U+FFFD for bytes that are not UTF-8.

    Raises:
        InputError: if texts are no batch of strings, such as a single str.
    """
    parts, is_break = split_by_pattern(as_batch(texts), _BREAK)
    rows = parts.value_rowids()
    before, after = neighbors(rows, parts.values, "")
    before = tf.strings.regex_replace(before, f"[{_INLINE}{spans.CHARACTER}]", "")
    matches = tf.strings.regex_full_match
    is_stop_inside = matches(parts.values, _FULL_STOP) & (
        matches(before, _never_last(text_language))
        | (matches(before, _never_last_before_digits()) & matches(after, _BEGINS_WITH_DIGIT))
    )
    is_stop_inside |= matches(parts.values, _SEMICOLON) & ~matches(before, _GREEK)
    is_stop_inside |= matches(parts.values, _TAGGED_STOP) & ~matches(after, _BEGINS_WITH_CAPITAL)
    is_decimal_point = matches(parts.values, f"{_ENTITY}．")
    is_decimal_point &= matches(before, r"(?s:.*\p{Nd})") & matches(after, r"(?s:\p{Nd}.*)")
    ends = is_break & ~is_stop_inside & ~matches(after, _NEVER_BEGINS)
    ends |= matches(parts.values, _ALWAYS_ENDS)
    ends &= ~is_decimal_point
    begins, _ = neighbors(rows, ends, True)
    number = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    count = tf.math.count_nonzero(begins, dtype=tf.int32)
    segments = tf.strings.unsorted_segment_join(parts.values, number, count)
    rows = tf.boolean_mask(rows, begins)
    return tf.RaggedTensor.from_value_rowids(segments, rows, parts.nrows(), validate=False)


def divide_long(segments, is_too_long):
    """Divides sentences until none is too long or all consist of one character.

    A sentence is divided in two after the comma, semicolon, colon or dash nearest to its middle. If
    its middle half has none, it is divided at white space, or else between characters.

    Args:
        segments: RaggedTensor string [batch, (segments)], sentences with white space around them.
        is_too_long: function of sentences, string [rows], to bool [rows].
    """

    def long(values):
        sentences = spans.as_read(_strip(values)[1])
        return is_too_long(sentences) & (tf.strings.length(sentences, unit="UTF8_CHAR") > 1)

    def divide(values, rows, is_long, _):
        texts = tf.where(is_long, values, "")
        cut = tf.where(is_long, _place_to_divide(texts), tf.strings.length(values))
        halves = [
            tf.strings.substr(values, tf.zeros_like(cut), cut),
            tf.strings.substr(values, cut, tf.strings.length(values) - cut),
        ]
        exist = tf.stack([tf.ones_like(is_long), is_long], axis=1)  # [segments, 2]
        values = tf.boolean_mask(tf.stack(halves, axis=1), exist)
        rows = tf.boolean_mask(tf.stack([rows, rows], axis=1), exist)
        return values, rows, long(values), tf.constant(False)

    several = tf.TensorShape([None])
    # The first round divides nothing: it only finds out which are long.
    values, rows, _, _ = tf.while_loop(
        lambda values, rows, is_long, is_first: is_first | tf.reduce_any(is_long),
        divide,
        (
            segments.values,
            segments.value_rowids(),
            tf.zeros_like(segments.value_rowids(), tf.bool),
            tf.constant(True),
        ),
        shape_invariants=(several, several, several, tf.TensorShape([])),
        parallel_iterations=1,
    )
    return tf.RaggedTensor.from_value_rowids(values, rows, segments.nrows(), validate=False)


def _place_to_divide(texts):
    """Returns the byte at which each text is divided, int32 [rows]; 0 for an empty one."""
    lengths = tf.strings.length(texts)
    place = tf.zeros_like(lengths)
    for pattern in _DIVISIONS:
        rest = tf.strings.regex_replace(tf.where(place == 0, texts, ""), r"\x00", "\x01")
        parts, is_match = split_by_pattern(rest, pattern)
        rows = parts.value_rowids()
        total = tf.gather(lengths, rows)
        ends = tf.cumsum(tf.strings.length(parts.values))
        ends -= tf.gather(tf.cumsum(tf.strings.length(rest), exclusive=True), rows)
        inside = is_match & (ends < total)
        # Twice the distance from the middle, and the side of it: even before, odd behind it.
        keys = 2 * tf.abs(2 * ends - total) + tf.cast(2 * ends > total, tf.int32)
        keys = tf.where(inside, keys, tf.int32.max)
        nearest = tf.math.unsorted_segment_min(keys, rows, tf.size(texts))
        distance = tf.where(nearest % 2 == 1, nearest // 2, -(nearest // 2))
        is_last = pattern == _DIVISIONS[-1]
        in_reach = nearest < tf.int32.max
        in_reach &= is_last | (tf.abs(distance) <= lengths // 2)
        place = tf.where((place == 0) & in_reach, (lengths + distance) // 2, place)
    return place


def _with_spaces(translations, after, rows, has_words):
    """Returns the white space after each sentence, string [segments], with spaces that it needs."""
    _, followed = neighbors(rows, has_words, False)
    needs_space = followed & has_words & (after == "") & (translations != "")
    needs_space &= ~tf.strings.regex_full_match(translations, _WRITTEN_WITHOUT_SPACES)
    return tf.where(needs_space, " ", after)


def _strip(texts):
    """Splits off white space and marks other than `WORD`: what is before, the rest, and behind."""
    outside = rf"[{_BETWEEN}{_INLINE}{spans.BLOCK}]"
    rest = tf.strings.regex_replace(texts, rf"^(?:{_BYTE_ORDER_MARK}|\|[ \t]|{outside})+", "")
    stripped = tf.strings.regex_replace(rest, rf"(?:[ \t]\||{outside})+$", "")
    start = tf.strings.length(texts) - tf.strings.length(rest)
    end = start + tf.strings.length(stripped)
    return (
        tf.strings.substr(texts, tf.zeros_like(start), start),
        stripped,
        tf.strings.substr(texts, end, tf.strings.length(texts) - end),
    )


@functools.cache
def _never_last(language):
    """Returns the pattern of texts whose period does not end a sentence."""
    words = ABBREVIATIONS.get(language, " ".join(ABBREVIATIONS.values()))
    dotted = r"(?:\p{L}\p{M}*\.)*\p{L}\p{M}*"  # initials and such as "z.B."
    ordinal = r"|\d{1,2}" if language in ORDINALS.split() else ""
    return rf"(?is:(?:.*[^\p{{L}}\p{{M}}\p{{N}}.])?(?:{dotted}|{_any_of(words)}{ordinal}))"


@functools.cache
def _never_last_before_digits():
    """Returns the pattern of texts whose period does not end a sentence before a digit."""
    return rf"(?is:(?:.*[^\p{{L}}\p{{M}}\p{{N}}])?(?:{_any_of(BEFORE_NUMBERS)}))"


def _any_of(words):
    return "|".join(sorted(set(words.split())))
