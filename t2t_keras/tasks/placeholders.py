"""Protected spans by placeholders: the model reads a token for a span, and translates it as one.

Where the vocabulary has placeholders, `ByPlaceholders` takes the place of `ByAlignment`. Markup
still goes by alignment, which keeps its order. Other spans stand for words: their marks in a
sentence get the numbers of placeholders, the search puts each of these into the translation exactly
once (`constraint`), and the span of its number comes back, in whatever order. A sentence of more
such spans than there are placeholders goes by alignment as a whole.

`mask` sees documents, not sentences. A mark of the translation therefore says how far it has moved
in the order of its sentence's marks, and `unmask` takes the span at that distance.
"""

import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.placeholders import MAX_PLACEHOLDERS, MarkedTokenizer, mark_of
from t2t_keras.decoding.constraints import PhraseConstraint, Phrases
from t2t_keras.tasks.documents import split_by_pattern
from t2t_keras.tasks.protected_spans import (
    ALL_MARKS,
    LETTER,
    MARK,
    MARKUP,
    ByAlignment,
    order_in_row,
    span_of_each,
    split_spans,
    translate_around,
)

_NUMBERED = f"[{mark_of(1)}-{mark_of(MAX_PLACEHOLDERS)}]"
_UNMOVED = 128
_WORD_MARK = mark_of(_UNMOVED)
"""The mark of a span other than markup."""
_MOVED = f"[{_WORD_MARK}-{mark_of(255)}]"
"""U+E080 + d, modulo 128, stands for the span that is d places behind its own in order."""
_NEVER_TRANSLATED = f"[{MARK}{mark_of(MAX_PLACEHOLDERS + 1)}-{mark_of(255)}]"
"""Marks that the model does not read; it may spell them by their bytes."""
_ALL = [mark_of(number) for number in range(256)]


def protection_of(tokenizer):
    """Returns how documents keep their spans with a vocabulary's tokenizer.

    Returns:
        `ByPlaceholders` if it reserves some, else `ByAlignment`.
    """
    placeholder_ids = getattr(tokenizer, "placeholder_ids", ())
    return ByPlaceholders(placeholder_ids) if placeholder_ids else ByAlignment()


class ByPlaceholders:
    """Protection of spans by placeholders.

    Args:
        placeholder_ids: range, tokens of the placeholders, at least one.
    """

    reads_marks = True

    def __init__(self, placeholder_ids):
        self._ids = placeholder_ids

    def mask(self, texts, pattern):
        """Replaces protected spans by marks.

        Args:
            texts: string [batch].
            pattern: str, a pattern of RE2 of further spans.

        Returns:
            string [batch], with a `MARK` for markup and another mark for each other span, and a
            pair of RaggedTensors string [batch, (spans)], markup and the others.
        """
        parts, is_span = split_spans(texts, pattern, ALL_MARKS)
        is_markup = is_span & tf.strings.regex_full_match(parts.values, f"(?:{MARKUP})+")
        masked = tf.where(is_span, tf.where(is_markup, MARK, _WORD_MARK), parts.values)
        spans = [
            tf.ragged.boolean_mask(parts, parts.with_values(kind))
            for kind in (is_markup, is_span & ~is_markup)
        ]
        return tf.strings.reduce_join(parts.with_values(masked), axis=1), spans

    def unmask(self, texts, spans):
        """Puts spans in the place of marks, as `place_marks` returns them.

        Args:
            texts: string [batch].
            spans: what `mask` returned. A mark that stands for none of its text is left out.
        """
        markup, others = spans
        parts, is_mark = split_by_pattern(texts, f"{MARK}|{_MOVED}")
        is_moved = is_mark & (parts.values != MARK)
        distance = (_numbers(parts.values, is_moved) + 64) % 128 - 64
        others = span_of_each(others, parts, is_moved, distance)
        markup = span_of_each(markup, parts, is_mark & ~is_moved)
        found = tf.where(is_mark, tf.where(is_moved, others, markup), parts.values)
        return tf.strings.reduce_join(parts.with_values(found), axis=1)

    def marked(self, tokenizer):
        """Returns the tokenizer that reads marks of placeholders, `MarkedTokenizer`."""
        return MarkedTokenizer(tokenizer, self._ids)

    def as_read(self, sentences, room):
        """Returns sentences with marks as the model reads them.

        Args:
            sentences: string [rows], with marks.
            room: int, placeholders that a translation has room for.

        Returns:
            string [rows]; see `number_marks`.
        """
        return number_marks(sentences, min(len(self._ids), room))

    def translate(self, sentences, translate, align, *inputs, room):
        """Translates sentences with marks in them.

        Args:
            sentences, translate, align, *inputs: as for `translate_around`; sentences and
                translations of both functions may have marks of placeholders.
            room: as for `as_read`. A sentence with more marks goes by alignment.

        Returns:
            string [rows], translations with marks.
        """
        with ops.on_host():
            numbered = self.as_read(sentences, room)

        def translate_known(*inputs):
            found = translate(*inputs)
            with ops.on_host():
                return tf.strings.regex_replace(found, _NEVER_TRANSLATED, "")

        marks = f"[{MARK}{_WORD_MARK}]"
        found = translate_around(numbered, translate_known, align, *inputs, marks=marks)
        with ops.on_host():
            return place_marks(found, sentences, min(len(self._ids), room))

    def constraint(self, constraint, source_ids, tokenizer):
        """Returns the constraint by which translations have the placeholders of their sources.

        Each appears exactly as often as in the source, and no other one.

        Args:
            constraint: `PhraseConstraint` of further phrases, or None.
            source_ids: int32 [batch, source].
            tokenizer: `Tokenizer` of the targets.
        """
        ids = tf.constant([*self._ids])
        found = source_ids[:, tf.newaxis] == ids[:, tf.newaxis]  # [batch, placeholders, source]
        counts = tf.math.count_nonzero(found, axis=2, dtype=tf.int32)
        phrases = Phrases(tf.where(counts > 0, ids, 0)[..., tf.newaxis], counts)
        reserved = np.isin(np.arange(tokenizer.vocab_size), self._ids)
        if constraint is None:
            return PhraseConstraint(phrases, tokenizer.eos_id, reserved=reserved)
        phrases = constraint.phrases.joined(phrases)
        return PhraseConstraint(phrases, constraint.eos_id, constraint.continues_word, reserved)

    def num_tokens(self, source_ids):
        """Returns the placeholders of each source, int32 [batch, source]: int32 [batch]."""
        is_placeholder = (source_ids >= self._ids.start) & (source_ids < self._ids.stop)
        return tf.math.count_nonzero(is_placeholder, axis=1, dtype=tf.int32)


def number_marks(sentences, most):
    """Numbers the marks of spans other than markup: the k-th of a sentence is for placeholder k.

    Letters beside it get a space between, so that the tokens of a word do not depend on its marks.

    Args:
        sentences: string [rows].
        most: int, marks of a sentence; one with more is left as it is.

    Returns:
        string [rows].
    """
    parts, is_mark = split_by_pattern(sentences, _WORD_MARK)
    rows = parts.value_rowids()
    counts = tf.math.unsorted_segment_sum(tf.cast(is_mark, tf.int32), rows, tf.size(sentences))
    number = tf.where(tf.gather(counts, rows) <= most, order_in_row(parts, is_mark) + 1, _UNMOVED)
    marks = tf.gather(_ALL, number)
    texts = parts.with_values(tf.where(is_mark, marks, parts.values))
    return _spaced(tf.strings.reduce_join(texts, axis=1))


def _spaced(texts):
    """Returns texts with a space between each mark of a placeholder and a letter beside it."""
    texts = tf.strings.regex_replace(texts, f"({_NUMBERED})({LETTER})", r"\1 \2")
    return tf.strings.regex_replace(texts, f"({LETTER})({_NUMBERED})", r"\1 \2")


def place_marks(translations, sentences, most=MAX_PLACEHOLDERS):
    """Returns translations whose marks of placeholders tell their distances.

    Args:
        translations: string [rows], of what `number_marks` returned.
        sentences: string [rows], that were numbered. A mark that had a letter beside it has no
            space on this side, another one has a space between itself and a letter.
        most: int, as for `number_marks`.
    """
    touches = _touches(sentences)
    parts, is_mark = split_by_pattern(_spaced(translations), _NUMBERED)
    values, rows = parts.values, parts.value_rowids()
    number = _numbers(values, is_mark)
    # A model may spell a mark by its bytes: one that its sentence lacks, or has once, is left out.
    counts = tf.cast(tf.gather(touches.row_lengths(), rows), tf.int32)
    is_own = is_mark & (number <= counts) & (counts <= most)
    _, index = tf.unique(tf.where(is_own, tf.cast(rows, tf.int32) * 256 + number, -1))
    place = tf.range(tf.size(index))
    is_own &= tf.gather(tf.math.unsorted_segment_min(place, index, tf.size(index)), index) == place
    values = tf.where(is_mark & ~is_own, "", values)
    is_mark = is_own
    place = tf.cast(tf.gather(touches.row_starts(), rows), tf.int32) + number - 1
    place = tf.where(is_mark, place, tf.shape(touches.values)[0])
    touch = tf.gather(tf.pad(touches.values, [[0, 1], [0, 0]]), place)  # [parts, 2]
    _, at_begin = _neighbors(touch[:, 1], rows)
    at_end, _ = _neighbors(touch[:, 0], rows)
    values = tf.where(at_begin, tf.strings.regex_replace(values, "^ ", ""), values)
    values = tf.where(at_end, tf.strings.regex_replace(values, " $", ""), values)
    distance = number - 1 - order_in_row(parts, is_mark)
    marks = tf.gather(_ALL, _UNMOVED + distance % 128)
    return tf.strings.reduce_join(parts.with_values(tf.where(is_mark, marks, values)), axis=1)


def _touches(sentences):
    """Returns whether letters are before and behind each mark, ragged bool [rows, (marks), 2]."""
    parts, is_mark = split_by_pattern(sentences, _WORD_MARK)
    rows, matches = parts.value_rowids(), tf.strings.regex_full_match
    _, before = _neighbors(matches(parts.values, f"(?s:.*{LETTER})"), rows)
    behind, _ = _neighbors(matches(parts.values, f"(?s:{LETTER}.*)"), rows)
    touches = parts.with_values(tf.stack([before, behind], axis=1))
    return tf.ragged.boolean_mask(touches, parts.with_values(is_mark))


def _numbers(parts, is_mark):
    """Returns n of each part that is the mark U+E000 + n, int32 [parts], and 0 of the others."""
    marks = tf.io.decode_raw(tf.where(is_mark, parts, MARK), tf.uint8)
    bits = tf.cast(tf.reshape(marks, [-1, 3]), tf.int32) % 64  # of UTF-8, three bytes
    return 64 * bits[:, 1] + bits[:, 2]


def _neighbors(flags, rows):
    """Returns the flag behind each one and that before it, in its row: bool [parts] both."""
    same_row, count = rows[1:] == rows[:-1], tf.size(rows)
    behind = tf.pad(flags[1:] & same_row, [[0, 1]])[:count]
    return behind, tf.pad(flags[:-1] & same_row, [[1, 0]])[:count]
