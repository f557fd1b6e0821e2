"""Protected spans by placeholders: the model reads a token for each span, and translates it as one.

Where the vocabulary has placeholders, `ByPlaceholders` takes the place of `ByAlignment`. It gives
the marks of a sentence the numbers of placeholders, the search puts each of these into the
translation exactly once (`constraint`), and the span of its number comes back: neither order nor
alignment is needed. A sentence of more spans than there are placeholders goes by alignment.

As `mask_spans` knows documents and not their sentences, a mark comes out with its distance from
its own place among the marks of its sentence, and `unmask_spans` takes the span so far away.
"""

import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.placeholders import MAX_PLACEHOLDERS, MarkedTokenizer, mark_of
from t2t_keras.decoding.constraints import PhraseConstraint, Phrases
from t2t_keras.tasks.documents import split_by_pattern
from t2t_keras.tasks.protected_spans import (
    LETTER,
    MARK,
    MARKS,
    ByAlignment,
    numbers_of_marks,
    translate_around,
)

_NUMBERED = f"[{mark_of(1)}-{mark_of(MAX_PLACEHOLDERS)}]"
_ALL = [mark_of(number) for number in range(256)]


def protection_of(tokenizer):
    """Returns how documents keep their spans with a vocabulary's tokenizer.

    Returns:
        `ByPlaceholders` if it reserves some, else `ByAlignment`.
    """
    placeholder_ids = getattr(tokenizer, "placeholder_ids", ())
    return ByPlaceholders(placeholder_ids) if placeholder_ids else ByAlignment()


class ByPlaceholders(ByAlignment):
    """Protection of spans by placeholders.

    Args:
        placeholder_ids: range, tokens of the placeholders, at least one.
    """

    marks = MARKS
    reads_marks = True

    def __init__(self, placeholder_ids):
        self._ids = placeholder_ids

    def marked(self, tokenizer):
        """Returns the tokenizer that reads marks of placeholders, `MarkedTokenizer`."""
        return MarkedTokenizer(tokenizer, self._ids)

    def as_read(self, sentences, room):
        """Returns sentences with marks as the model reads them.

        Args:
            sentences: string [rows], with `MARK`s.
            room: int, placeholders that a translation has room for.

        Returns:
            string [rows]; see `number_marks`.
        """
        return number_marks(sentences, min(len(self._ids), room))

    def translate(self, sentences, translate, align, *inputs, room):
        """Translates sentences with marks in them.

        Args:
            sentences, align, *inputs: as for `translate_around`.
            translate: likewise, of sentences whose marks may be those of placeholders.
            room: as for `as_read`. A sentence with more marks goes by alignment.

        Returns:
            string [rows], translations with `MARKS`.
        """
        with ops.on_host():
            numbered = self.as_read(sentences, room)
        found = translate_around(numbered, translate, align, *inputs)
        with ops.on_host():
            return place_marks(found, sentences)

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
    """Returns sentences in which the k-th `MARK` is the mark of placeholder k.

    Letters beside it get a space between, so that the tokens of a word do not depend on its marks.

    Args:
        sentences: string [rows].
        most: int, marks of a sentence; one with more is left as it is.
    """
    parts, is_mark = split_by_pattern(sentences, MARK)
    rows, flags = parts.value_rowids(), tf.cast(is_mark, tf.int32)
    counts = tf.math.unsorted_segment_sum(flags, rows, tf.size(sentences))
    number = tf.where(tf.gather(counts, rows) <= most, _order(parts, flags) + 1, 0)
    marks = tf.gather(_ALL, tf.where(is_mark, number, 0))
    texts = parts.with_values(tf.where(is_mark, marks, parts.values))
    return _spaced(tf.strings.reduce_join(texts, axis=1))


def _spaced(texts):
    """Returns texts with a space between each mark of a placeholder and a letter beside it."""
    texts = tf.strings.regex_replace(texts, f"({_NUMBERED})({LETTER})", r"\1 \2")
    return tf.strings.regex_replace(texts, f"({LETTER})({_NUMBERED})", r"\1 \2")


def place_marks(translations, sentences):
    """Returns translations with `MARKS` for the marks of placeholders.

    Args:
        translations: string [rows], of what `number_marks` returned.
        sentences: string [rows], that were numbered. A mark that had a letter beside it has no
            space on this side, another one has a space between itself and a letter.
    """
    touches = _touches(sentences)
    parts, is_mark = split_by_pattern(_spaced(translations), _NUMBERED)
    values, rows = parts.values, parts.value_rowids()
    number = numbers_of_marks(values, is_mark)
    place = tf.cast(tf.gather(touches.row_starts(), rows), tf.int32) + number - 1
    place = tf.where(is_mark, place, tf.shape(touches.values)[0])
    touch = tf.gather(tf.pad(touches.values, [[0, 1], [0, 0]]), place)  # [parts, 2]
    _, at_begin = _neighbors(touch[:, 1], rows)
    at_end, _ = _neighbors(touch[:, 0], rows)
    values = tf.where(at_begin, tf.strings.regex_replace(values, "^ ", ""), values)
    values = tf.where(at_end, tf.strings.regex_replace(values, " $", ""), values)
    distance = number - 1 - _order(parts, tf.cast(is_mark, tf.int32))
    marks = tf.gather(_ALL, tf.where(is_mark, distance, 0) % len(_ALL))
    return tf.strings.reduce_join(parts.with_values(tf.where(is_mark, marks, values)), axis=1)


def _touches(sentences):
    """Returns whether letters are before and behind each mark, ragged bool [rows, (marks), 2]."""
    parts, is_mark = split_by_pattern(sentences, MARK)
    rows, matches = parts.value_rowids(), tf.strings.regex_full_match
    _, before = _neighbors(matches(parts.values, f"(?s:.*{LETTER})"), rows)
    behind, _ = _neighbors(matches(parts.values, f"(?s:{LETTER}.*)"), rows)
    touches = parts.with_values(tf.stack([before, behind], axis=1))
    return tf.ragged.boolean_mask(touches, parts.with_values(is_mark))


def _neighbors(flags, rows):
    """Returns the flag behind each one and that before it, in its row: bool [parts] both."""
    same_row, count = rows[1:] == rows[:-1], tf.size(rows)
    behind = tf.pad(flags[1:] & same_row, [[0, 1]])[:count]
    return behind, tf.pad(flags[:-1] & same_row, [[1, 0]])[:count]


def _order(parts, flags):
    """Returns how many flags, int32 [parts], are before each part in its row."""
    before = tf.cumsum(flags, exclusive=True)
    return before - tf.gather(before, tf.gather(parts.row_starts(), parts.value_rowids()))
