"""Protected spans: placeholders, markup, links and addresses come through a translation unchanged.

`mask_spans` replaces each span of a text by a mark, and `unmask_spans` puts the spans back.
In between, `translate_around` translates sentences without their marks, and puts these beside the
words that their neighbors were translated to, which cross-attention tells. Every mark comes out
exactly once and in order. A translator does so by `ByAlignment`, or by `ByPlaceholders`
(placeholders.py) if its vocabulary has tokens for spans. All of it runs in the graph.
"""

import re
from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.tasks.documents import in_batches, replace_where, split_by_pattern
from t2t_keras.training.checkpoint_files import reason_of

MARK = "\ue000"
"""Stands for a span; for private use in Unicode. Where a text has it, it is a span itself."""

ALL_MARKS = "[\ue000-\ue0ff]"
"""A pattern of this mark and those of placeholders, see placeholders.py."""

_SENTENCES_PER_BATCH = 8
"""Sentences that are aligned together: attention takes memory quadratic in their length."""

# RE2 patterns, whose \w and \b know ASCII alone
_SPACED = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Devanagari}"
"""Scripts whose words have spaces around them, so that no word touches an e-mail address."""
_NAME = rf"-{_SPACED}\p{{Inherited}}\p{{N}}_"
MARKUP = r"<!--[^>]*-->|</?[A-Za-z][^<>]*>"
"""A pattern of tags and comments."""
_SPANS = (
    MARKUP,
    r"&(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);",
    r"(?:(?:https?|ftp)://|www\.)[^\s<>\"]*[^\s<>\".,;:!?()\[\]{}'’”»]/?",
    rf"[{_NAME}.+%]+@[{_NAME}]+(?:\.[{_NAME}]+)+",
    r"[$#%]?\{\{[^{}\n]*\}\}|[$#%]?\{[^{}\n]*\}|%\([\p{L}\p{M}\p{N}_]+\)[a-z]",
    r"%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh|ll|[hlLzjtq])?[diouxXeEfFgGaAcsSp]\b|%(?:\d+\$)?@|%%",
)
_SPACE = r"[\s\x{0B}\x{1C}-\x{1F}\x{85}\p{Z}]"
_WORD = r"[\p{L}\p{M}\p{N}'’_-]"
LETTER = rf"[{_SPACED}\p{{Hangul}}\p{{N}}]"
"""A pattern of the letters and digits whose words have spaces around them."""
_WRITTEN_WITHOUT_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_CLOSING = r"(?s:[,.;:!?…%\)\]}”’»。、，；：！？].*)"

_PLAIN = ("The old man sees 2 dogs.", "Собака видит кошку.", "他们看见狗。", "رأى الرجل كلبا")
"""Texts that no pattern may protect as a whole."""

_PLACES = ("", "ab  \n\n.c", "\na\n", " c ")
"""Texts with every kind of place: at ends of texts, lines and words, and not at them."""


class SpanPattern:
    """A setting that is a pattern of spans, or empty."""

    def __str__(self):
        return "a pattern in RE2's syntax, or '' for none"

    def check(self, name, value):
        """Returns the pattern.

        Raises:
            InputError: if it is not a pattern, matches the empty text, or protects all words.
        """
        _check_pattern(name, value)
        return value


def _check_pattern(name, pattern):
    if not isinstance(pattern, str):
        raise InputError(f"{name} is {pattern!r}: give a pattern in RE2's syntax, or '' for none.")
    if not pattern:
        return
    with tf.init_scope(), tf.device("CPU"):
        try:
            marked = tf.strings.regex_replace(
                [*_PLAIN, *_PLACES], f"(?:{pattern})", rf"{MARK}\0{MARK}"
            )
        except (tf.errors.InvalidArgumentError, UnicodeEncodeError) as error:
            reason = re.sub(r".*, error: |: \(\?:.*", "", reason_of(error))  # RE2's own words
            raise InputError(
                f"{name} is {pattern!r}, which is not a pattern in RE2's syntax ({reason}): see "
                "https://github.com/google/re2/wiki/Syntax."
            ) from error
    # Every second part is a match.
    parts = [text.decode(errors="replace").split(MARK) for text in marked.numpy()]
    if any("" in row[1::2] for row in parts):
        raise InputError(f"{name} is {pattern!r}, which matches the empty text: let it match more.")
    for text, row in zip(_PLAIN, parts, strict=False):
        if not any(character.isalpha() for character in "".join(row[::2])):
            raise InputError(
                f"{name} is {pattern!r}, which protects all words of {text!r}, so that nothing "
                "would be translated: let it match less."
            )


def split_spans(texts, pattern="", marks=MARK):
    """Divides texts at protected spans; spans without anything between them are one.

    Args:
        texts: string [batch].
        pattern: str, a pattern of RE2 of further spans.
        marks: str, the pattern of marks, which are spans where a text has them.

    Returns:
        RaggedTensor string [batch, (parts)], valid UTF-8, whose concatenation is the text; and bool
        [all parts], True for spans.
    """
    own = [f"(?:{pattern})"] * bool(pattern)
    spans = "|".join([*own, marks, *_SPANS])
    return split_by_pattern(texts, f"(?:{spans})+")


def mask_spans(texts, pattern=""):
    """Replaces protected spans by marks.

    Args:
        texts, pattern: as for `split_spans`.

    Returns:
        string [batch], valid UTF-8, with a `MARK` for each span, and the spans, a RaggedTensor
        string [batch, (spans)].
    """
    parts, is_span = split_spans(texts, pattern)
    masked = parts.with_values(tf.where(is_span, MARK, parts.values))
    spans = tf.ragged.boolean_mask(parts, parts.with_values(is_span))
    return tf.strings.reduce_join(masked, axis=1), spans


def unmask_spans(texts, spans):
    """Puts spans, RaggedTensor string [batch, (spans)], in the place of `MARK`s, in order."""
    parts, is_mark = split_by_pattern(texts, MARK)
    found = tf.where(is_mark, span_of_each(spans, parts, is_mark), parts.values)
    return tf.strings.reduce_join(parts.with_values(found), axis=1)


def span_of_each(spans, parts, is_mark, distance=0):
    """Returns the span that each mark stands for, string [all parts]; "" of one that has none.

    Args:
        spans: RaggedTensor string [batch, (spans)].
        parts: RaggedTensor string [batch, (parts)].
        is_mark: bool [all parts].
        distance: int32 [all parts], by how many spans each mark is before its place in order.
    """
    number, rows = order_in_row(parts, is_mark) + distance, parts.value_rowids()
    starts, counts = (
        tf.cast(tf.gather(x, rows), tf.int32) for x in (spans.row_starts(), spans.row_lengths())
    )
    exists = is_mark & (number >= 0) & (number < counts)
    place = tf.where(exists, starts + number, tf.size(spans.values))
    return tf.gather(tf.concat([spans.values, [""]], axis=0), place)


def order_in_row(parts, flags):
    """Returns how many of the flags, bool [all parts], are before each part in its row: int32."""
    before = tf.cumsum(tf.cast(flags, tf.int32), exclusive=True)
    return before - tf.gather(before, tf.gather(parts.row_starts(), parts.value_rowids()))


class ByAlignment:
    """Protection of spans by alignment, for any vocabulary.

    It has the methods of `ByPlaceholders`: the model reads no marks, and nothing is demanded of its
    translations.

    Attributes:
        reads_marks: bool, whether the model reads marks.
    """

    reads_marks = False

    def mask(self, texts, pattern):
        """Returns texts with marks, and what `unmask` takes; see `mask_spans`."""
        return mask_spans(texts, pattern)

    def unmask(self, texts, spans):
        """Returns texts with spans in place of marks; see `unmask_spans`."""
        return unmask_spans(texts, spans)

    def as_read(self, sentences, room):
        """Returns the sentences; see `ByPlaceholders.as_read`."""
        return sentences

    def translate(self, sentences, translate, align, *inputs, room):
        """Translates sentences, see `translate_around`."""
        return translate_around(sentences, translate, align, *inputs)

    def constraint(self, constraint, source_ids, tokenizer):
        """Returns the constraint; see `ByPlaceholders.constraint`."""
        return constraint

    def num_tokens(self, source_ids):
        """Returns 0 for each source, int32 [batch]; see `ByPlaceholders.num_tokens`."""
        return tf.zeros_like(source_ids[:, 0])


class WordAlignment(NamedTuple):
    """Tokens of a translation: where each stands, and what part of the source it is aligned to.

    Attributes:
        starts, ends: int32 [batch, target], characters of the translation; 0, 0 for padding.
        spans: int32 [batch, target, 2], begin and end of characters of the source.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    spans: tf.Tensor


def translate_around(sentences, translate, align, *inputs, marks=MARK):
    """Translates sentences with marks in them.

    Args:
        sentences: string [rows], without white space at their ends, each with words.
        translate: function of sentences, string [rows], to their translations, string [rows].
        align: function of sentences and translations to their `WordAlignment`.
        *inputs: string [rows] each, further inputs of both functions.
        marks: str, the pattern of marks.

    Returns:
        string [rows], each translation with the marks of its sentence. That of a sentence without
        marks is the one of `translate`.
    """
    with ops.on_host():
        split = _split_marks(sentences, marks)
    translations = translate(split.texts, *inputs)
    with ops.on_host():
        translations = tf.strings.regex_replace(translations, marks, "")
        has_marks = split.runs.row_lengths() > 0

    def put_back(rows):
        with ops.on_host():
            chosen = _Marks(*(tf.gather(x, rows) for x in split))
            found, *codes = (tf.gather(x, rows) for x in (translations, *inputs))
        alignment = align(chosen.texts, found, *codes)
        with ops.on_host():
            return _insert(found, alignment, chosen)

    found = in_batches(put_back, tf.where(has_marks)[:, 0], _SENTENCES_PER_BATCH)
    with ops.on_host():
        return replace_where(has_marks, found, translations)


class _Marks(NamedTuple):
    """Sentences and the marks that were taken out of them.

    Attributes:
        texts: string [rows], the sentences without marks.
        runs: RaggedTensor string [rows, (runs)], marks with nothing but white space between.
        after: RaggedTensor int32 [rows, (runs)], the character at which the text before ends; -1
            if there is none.
        before: RaggedTensor int32 [rows, (runs)], the character at which the text behind begins;
            -1 if there is none.
        opens: RaggedTensor bool [rows, (runs)], whether a run belongs to the word behind it.
        spaces: RaggedTensor bool [rows, (runs), 2], whether white space is before and behind it.
    """

    texts: tf.Tensor
    runs: tf.RaggedTensor
    after: tf.RaggedTensor
    before: tf.RaggedTensor
    opens: tf.RaggedTensor
    spaces: tf.RaggedTensor


def _split_marks(sentences, marks):
    """Returns the `_Marks` of sentences, string [rows]; marks: str, the pattern of marks."""
    runs = rf"{_SPACE}*{marks}(?:{_SPACE}*{marks})*{_SPACE}*"
    parts, is_run = split_by_pattern(sentences, runs)
    rows, values = parts.value_rowids(), parts.values
    same_row = rows[1:] == rows[:-1]
    count = tf.size(values)
    has_text_before = tf.concat([[False], same_row], axis=0)[:count]
    has_text_behind = tf.concat([same_row, [False]], axis=0)[:count]
    behind = tf.concat([tf.where(same_row, values[1:], ""), [""]], axis=0)[:count]
    space_before = tf.strings.regex_full_match(values, rf"(?s:{_SPACE}.*)")
    space_behind = tf.strings.regex_full_match(values, rf"(?s:.*{_SPACE})")
    is_inside = has_text_before & has_text_behind
    closes = tf.strings.regex_full_match(behind, _CLOSING)
    before = tf.concat([[""], tf.where(same_row, values[:-1], "")], axis=0)[:count]
    parts_words = tf.strings.regex_full_match(before, rf"(?s:.*{LETTER})")
    parts_words &= tf.strings.regex_full_match(behind, rf"(?s:{LETTER}.*)")
    keeps_space = is_inside & (space_before | space_behind | parts_words) & ~closes
    texts = tf.where(is_run, tf.where(keeps_space, " ", ""), values)
    lengths = tf.strings.length(texts, unit="UTF8_CHAR")
    ends = tf.cumsum(lengths)
    first = tf.gather(tf.concat([[0], ends], axis=0), tf.gather(parts.row_starts(), rows))
    ends -= first
    begins_word = tf.strings.regex_full_match(behind, rf"(?s:{_WORD}.*)")
    opens = has_text_behind & (~has_text_before | (begins_word & ~space_behind & space_before))

    def of_runs(flat):
        return tf.ragged.boolean_mask(parts.with_values(flat), parts.with_values(is_run))

    return _Marks(
        tf.strings.reduce_join(parts.with_values(texts), axis=1),
        of_runs(tf.strings.regex_replace(values, rf"^{_SPACE}+|{_SPACE}+$", "")),
        of_runs(tf.where(has_text_before, ends - lengths, -1)),
        of_runs(tf.where(has_text_behind, ends, -1)),
        of_runs(opens),
        of_runs(tf.stack([space_before, space_behind], axis=1)),
    )


def _insert(translations, alignment, marks):
    """Returns translations, string [rows], with the runs of `_Marks`."""
    runs = marks.runs
    lengths = tf.strings.length(translations, unit="UTF8_CHAR")
    places = _places(translations, lengths, alignment, marks)  # [rows, runs]
    row = runs.value_rowids()
    places = tf.RaggedTensor.from_tensor(places, lengths=runs.row_lengths())
    last = places[:, -1:].values  # a row has at least one
    places, starts = places.values, tf.concat([[0], places.values[:-1]], axis=0)
    is_first = tf.concat([[True], row[1:] != row[:-1]], axis=0)
    starts = tf.where(is_first, 0, starts)
    texts = tf.gather(translations, row)
    before = tf.strings.substr(texts, starts, places - starts, unit="UTF8_CHAR")
    rest = tf.strings.substr(texts, places, tf.gather(lengths, row) - places, unit="UTF8_CHAR")
    until = tf.strings.substr(texts, tf.zeros_like(places), places, unit="UTF8_CHAR")
    has_space = tf.strings.regex_full_match(until, rf"(?s:|.*{_SPACE})")
    follows = rf"(?s:|{_SPACE}.*)|{_CLOSING}"
    needs_behind = marks.spaces.values[:, 1] & ~tf.strings.regex_full_match(rest, follows)
    # A run directly behind another one
    is_next = ~is_first & (before == "")
    has_space = tf.where(is_next, tf.concat([[False], needs_behind[:-1]], axis=0), has_space)
    needs_before = marks.spaces.values[:, 0] & ~has_space
    parts = tf.strings.join(
        [before, tf.where(needs_before, " ", ""), runs.values, tf.where(needs_behind, " ", "")]
    )
    tails = tf.strings.substr(translations, last, lengths - last, unit="UTF8_CHAR")
    return tf.strings.join([tf.strings.reduce_join(runs.with_values(parts), axis=1), tails])


def _places(translations, lengths, alignment, marks):
    """Returns the character of the translation at which each run is put, int32 [rows, runs].

    A run that opens goes before the word whose source begins nearest to the text behind the run;
    another one goes behind the word whose source ends nearest to the text before it. Runs at an end
    of the sentence stay there. All are in the order of the sentence.
    """
    after, before = (x.to_tensor(-1) for x in (marks.after, marks.before))
    opens = marks.opens.to_tensor(False)
    begins, ends = tf.unstack(alignment.spans[:, tf.newaxis], axis=3)  # [rows, 1, target]
    is_token = (alignment.ends > alignment.starts)[:, tf.newaxis] & (ends > begins)
    far = tf.int32.max
    to_begin = tf.where(is_token, tf.abs(begins - before[..., tf.newaxis]), far)
    to_end = tf.where(is_token, tf.abs(ends - after[..., tf.newaxis]), far)
    first = tf.argmin(to_begin, axis=2)  # ties: the first
    last = tf.argmin(tf.reverse(to_end, [2]), axis=2)
    last = tf.shape(to_end, tf.int64)[2] - 1 - last
    start = tf.gather(alignment.starts, first, batch_dims=1)
    end = tf.gather(alignment.ends, last, batch_dims=1)
    left, right = _word_ends(translations, start, end)
    places = tf.where(opens, left, right)
    places = tf.where(after < 0, 0, tf.where(before < 0, lengths[:, tf.newaxis], places))
    # The greatest of those up to each one
    count = tf.shape(places)[1]
    up_to = tf.range(count) <= tf.range(count)[:, tf.newaxis]  # [runs, runs]
    places = tf.reduce_max(tf.where(up_to, places[:, tf.newaxis], 0), axis=2)
    return tf.minimum(places, lengths[:, tf.newaxis])


def _word_ends(translations, starts, ends):
    """Returns the beginnings of words at or before starts, and ends of words at or behind ends.

    Args:
        translations: string [rows].
        starts, ends: int32 [rows, runs], characters.
    """
    characters = tf.strings.unicode_split(translations, "UTF-8")
    flat = characters.values
    inside = tf.strings.regex_full_match(flat, _WORD)
    inside &= ~tf.strings.regex_full_match(flat, _WRITTEN_WITHOUT_SPACES)
    inside = tf.pad(characters.with_values(inside).to_tensor(False), [[0, 0], [1, 1]])
    between = ~(inside[:, :-1] & inside[:, 1:])[:, tf.newaxis]  # [rows, 1, characters + 1]
    places = tf.range(tf.shape(between)[2])
    left = between & (places <= starts[..., tf.newaxis])
    right = between & (places >= ends[..., tf.newaxis])
    return (
        tf.reduce_max(tf.where(left, places, 0), axis=2),
        tf.reduce_min(tf.where(right, places, tf.shape(places)[0] - 1), axis=2),
    )
