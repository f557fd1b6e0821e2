"""Documents: text of any length is split into sentences, which are translated and put back.

`translate_documents` is the whole of it. `split_sentences` divides a text into segments, a sentence
and the white space around it each, whose concatenation is the text: what lies between sentences
cannot be lost. `divide_long` divides those that a model cannot read in one piece. All of it runs in
the graph, with string operations alone.
"""

import functools

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras import ops
from t2t_keras.data.base_tokenizer import valid_utf8
from t2t_keras.tasks.abbreviations import ABBREVIATIONS, BEFORE_NUMBERS, ORDINALS

_SENTENCES_PER_BATCH = 64
"""Sentences that are translated together, which bounds the memory of a document."""

_CUT = b"\xff"
"""Marks the two ends of a match; no valid UTF-8 has this byte."""

# RE2 patterns; texts are valid UTF-8. U+E000 and U+E080 are marks of protected spans.
_SPACE = r"[\s\x{0B}\x{1C}-\x{1F}\x{85}\p{Z}]"
_BYTE_ORDER_MARK = r"\x{FEFF}"
_LINE_BREAK = r"[\n\r\x{0B}\x{0C}\x{1C}-\x{1E}\x{85}\x{2028}\x{2029}]"
_CLOSING = r"(?:[\x{E000}\x{E080}\"'”’“‘»›\)\]}」』）》〉】]|[\x{A0}\x{202F}][»›])*"
_WIDE_STOP = rf"[。！？｡．]+{_CLOSING}"
_STOP = rf"[.!?…‽؟۔।॥։።។။]+{_CLOSING}"
_BREAK = rf"{_SPACE}*{_LINE_BREAK}{_SPACE}*|{_WIDE_STOP}{_SPACE}*|{_STOP}{_SPACE}+"
"""Where a sentence may end, with the white space after it."""

_ALWAYS_ENDS = rf"(?s:.*{_LINE_BREAK}.*|{_WIDE_STOP}{_SPACE}*)"
_FULL_STOP = rf"\.{_CLOSING}{_SPACE}+"
_NEVER_BEGINS = r"(?s:[\x{E000}\x{E080}\"'“„«‹(\[¿¡]*\p{Ll}.*)"
_BEGINS_WITH_DIGIT = r"(?s:\d.*)"
_HAS_WORDS = r"(?s:.*[\p{L}\p{N}].*)"
_WRITTEN_WITHOUT_SPACES = (
    r"(?s:.*[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\x{3000}-\x{303F}\x{FF00}-\x{FFEF}])"
)

_DIVISIONS = (
    rf"[,;:،؛—–]{_CLOSING}{_SPACE}+|[、，；：]{_CLOSING}{_SPACE}*",
    rf"{_SPACE}+",
    r"(?s:.)\p{M}*",
    r"(?s:.)",
)
"""Where a long sentence is divided, the best places first: behind a match."""


def translate_documents(texts, translate, is_too_long, text_language="", inputs=()):
    """Translates documents inside a graph.

    Each different sentence is translated once, in batches of 64 of similar length. White space and
    line breaks between sentences are unchanged. A sentence without a letter or a digit is
    unchanged, too. Sentences without white space between them, as in Chinese, get a space if their
    translations are written with spaces.

    Args:
        texts: string [batch], of any length; bytes that are not UTF-8 count as U+FFFD.
        translate: function of sentences, string [rows], to their translations, string [rows].
        is_too_long: function of sentences, string [rows], to bool [rows], whether `translate` would
            truncate them; these are divided, see `divide_long`.
        text_language: str, see `split_sentences`.
        inputs: string [batch] each, further inputs of `translate`, such as the texts' languages;
            bytes that are not UTF-8 count as U+FFFD.

    Returns:
        string [batch].
    """
    with ops.on_host():
        segments = divide_long(split_sentences(texts, text_language), is_too_long)
        before, sentences, after = _strip(segments.values)
        has_words = tf.strings.regex_full_match(sentences, _HAS_WORDS)
        rows = tf.boolean_mask(segments.value_rowids(), has_words)
        inputs = [valid_utf8(tf.gather(x, rows)) for x in inputs]
        inputs = [tf.boolean_mask(sentences, has_words), *inputs]
        different, index = tf.unique(tf.strings.join(inputs, _CUT))
        first = tf.math.unsorted_segment_min(tf.range(tf.size(index)), index, tf.size(different))
        inputs = [tf.gather(x, first) for x in inputs]
        order = tf.argsort(tf.strings.length(inputs[0]), direction="DESCENDING", stable=True)
        longest_first = tf.gather(tf.stack(inputs, axis=1), order)  # [sentences, inputs]
    found = in_batches(
        lambda rows: translate(*tf.unstack(rows, axis=1)), longest_first, _SENTENCES_PER_BATCH
    )
    with ops.on_host():
        found = tf.gather(tf.gather(found, tf.argsort(order)), index)
        translations = replace_where(has_words, found, sentences)
        after = _with_spaces(translations, after, segments.value_rowids(), has_words)
        translated = tf.strings.join([before, translations, after])
        return tf.strings.reduce_join(segments.with_values(translated), axis=1)


def split_sentences(texts, text_language=""):
    """Splits texts into sentences.

    A sentence ends at each line break; behind a wide period, question or exclamation mark; and
    at the white space behind such a mark of another script. There it does not end if the next word
    begins in lower case, or at the period of an initial, an abbreviation or an ordinal.

    Args:
        texts: string [batch].
        text_language: str, a key of `ABBREVIATIONS`; "": the abbreviations of all languages.

    Returns:
        RaggedTensor string [batch, (segments)]. A segment is a sentence and the white space around
        it. The concatenation of a row is its text, with U+FFFD for bytes that are not UTF-8.
    """
    parts, is_break = split_by_pattern(texts, _BREAK)
    rows, parts = parts.value_rowids(), parts.values
    same_row = rows[1:] == rows[:-1]
    before = tf.concat([[""], tf.where(same_row, parts[:-1], "")], axis=0)[: tf.size(parts)]
    after = tf.concat([tf.where(same_row, parts[1:], ""), [""]], axis=0)[: tf.size(parts)]
    matches = tf.strings.regex_full_match
    is_stop_inside = matches(parts, _FULL_STOP) & (
        matches(before, _never_last(text_language))
        | (matches(before, _never_last_before_digits()) & matches(after, _BEGINS_WITH_DIGIT))
    )
    ends = is_break & ~is_stop_inside & ~matches(after, _NEVER_BEGINS)
    ends |= matches(parts, _ALWAYS_ENDS)
    begins = tf.concat([[True], ends[:-1] | ~same_row], axis=0)[: tf.size(parts)]
    number = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    count = tf.math.count_nonzero(begins, dtype=tf.int32)
    segments = tf.strings.unsorted_segment_join(parts, number, count)
    return tf.RaggedTensor.from_value_rowids(
        segments, tf.boolean_mask(rows, begins), tf.size(texts, tf.int64)
    )


def split_by_pattern(texts, pattern):
    """Divides texts at the matches of a pattern; the matches are parts, too.

    Args:
        texts: string [batch]; bytes that are not UTF-8 count as U+FFFD.
        pattern: str, in RE2's syntax. An empty match divides a text and adds no part.

    Returns:
        RaggedTensor string [batch, (parts)], whose concatenation is the text, no part empty; and
        bool [all parts], True for matches.
    """
    marked = tf.strings.regex_replace(valid_utf8(texts), pattern, _CUT + rb"\0" + _CUT)
    parts = tf.strings.split(marked, _CUT)  # every second one is a match
    number = tf.range(tf.size(parts.values, tf.int64))
    number -= tf.gather(parts.row_starts(), parts.value_rowids())
    exists = parts.values != ""
    is_match = tf.boolean_mask(number % 2 == 1, exists)
    return tf.ragged.boolean_mask(parts, parts.with_values(exists)), is_match


def divide_long(segments, is_too_long):
    """Divides sentences until none is too long or all consist of one character.

    A sentence is divided in two behind a comma, semicolon, colon or dash, that is where it is
    nearest to the middle; if there is none in its middle half, at white space; or else between
    characters.

    Args:
        segments: RaggedTensor string [batch, (segments)], sentences with white space around them.
        is_too_long: function of sentences, string [rows], to bool [rows].

    Returns:
        RaggedTensor of more segments.
    """

    def long(values):
        sentences = _strip(values)[1]
        return is_too_long(sentences) & (tf.strings.length(sentences, unit="UTF8_CHAR") > 1)

    def divide(values, rows, is_long):
        texts = tf.where(is_long, values, "")
        cut = tf.where(is_long, _place_to_divide(texts), tf.strings.length(values))
        halves = [
            tf.strings.substr(values, tf.zeros_like(cut), cut),
            tf.strings.substr(values, cut, tf.strings.length(values) - cut),
        ]
        exist = tf.stack([tf.ones_like(is_long), is_long], axis=1)  # [segments, 2]
        values = tf.boolean_mask(tf.stack(halves, axis=1), exist)
        rows = tf.boolean_mask(tf.stack([rows, rows], axis=1), exist)
        return values, rows, long(values)

    several = tf.TensorShape([None])
    values, rows, _ = tf.while_loop(
        lambda values, rows, is_long: tf.reduce_any(is_long),
        divide,
        (segments.values, segments.value_rowids(), long(segments.values)),
        shape_invariants=(several, several, several),
        parallel_iterations=1,
    )
    return tf.RaggedTensor.from_value_rowids(values, rows, segments.nrows())


def _place_to_divide(texts):
    """Returns the byte at which each text is divided, int32 [rows]; 0 for an empty one."""
    lengths = tf.strings.length(texts)
    place = tf.zeros_like(lengths)
    for pattern in _DIVISIONS:
        rest = tf.strings.regex_replace(tf.where(place == 0, texts, ""), r"\x00", "\x01")
        parts, _, ends = tf_text.regex_split_with_offsets(rest, pattern, pattern)
        rows, ends = parts.value_rowids(), tf.cast(ends.values, tf.int32)
        total = tf.gather(lengths, rows)
        inside = tf.strings.regex_full_match(parts.values, pattern) & (ends < total)
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


def in_batches(function, rows, size):
    """Applies a function to rows in batches, inside a graph or outside.

    Args:
        function: function of some of the rows to as many strings.
        rows: tensor [rows, ...].
        size: int, rows of a batch.

    Returns:
        string [rows].
    """

    def next_batch(start, found):
        end = start + size
        return end, tf.concat([found, function(rows[start:end])], axis=0)

    _, found = tf.while_loop(
        lambda start, _: start < tf.shape(rows)[0],
        next_batch,
        (tf.constant(0), tf.constant([], tf.string)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    return found


def replace_where(condition, values, others):
    """Returns others, string [rows], with values where condition, bool [rows], is true.

    Args:
        values: string [count of true conditions].
    """
    values = tf.concat([values, [""]], axis=0)  # never empty
    places = tf.cumsum(tf.cast(condition, tf.int32), exclusive=True)
    return tf.where(condition, tf.gather(values, places), others)


def _with_spaces(translations, after, rows, has_words):
    """Returns the white space after each sentence, string [segments], with spaces that it needs."""
    followed = (rows[1:] == rows[:-1]) & has_words[1:]
    followed = tf.concat([followed, [False]], axis=0)[: tf.size(rows)]
    needs_space = followed & has_words & (after == "") & (translations != "")
    needs_space &= ~tf.strings.regex_full_match(translations, _WRITTEN_WITHOUT_SPACES)
    return tf.where(needs_space, " ", after)


def _strip(texts):
    """Returns the white space before texts, the texts without, and that after: string [rows]."""
    rest = tf.strings.regex_replace(texts, rf"^(?:{_BYTE_ORDER_MARK}|{_SPACE})+", "")
    stripped = tf.strings.regex_replace(rest, rf"{_SPACE}+$", "")
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
