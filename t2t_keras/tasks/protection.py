"""Protection of spans: each mark of a sentence appears exactly once in its translation.

`ByAlignment`, for any vocabulary: `translate_around` translates sentences without their marks, then
puts each mark next to the translation of its neighboring word, which cross-attention finds.

`ByPlaceholders`, if the vocabulary contains placeholders: spans that stand for words are numbered
as placeholders of their sentence, the search puts each placeholder into the translation exactly
once (`constraint`), in any order, and each is then replaced by its span. Markup is still placed by
alignment, which keeps its order. A sentence with more such spans than placeholders is translated by
alignment as a whole.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.placeholders import MarkedTokenizer, mark_of
from t2t_keras.data.ragged import keep_where, rows_of
from t2t_keras.data.text_parts import (
    ends_in_row,
    in_batches,
    in_order,
    join_parts,
    neighbors,
    order_in_row,
    split_by_pattern,
)
from t2t_keras.decoding.constraints import RequiredTokens
from t2t_keras.settings import MAX_PLACEHOLDERS
from t2t_keras.tasks import spans

SENTENCES_PER_BATCH = 8
"""Sentences that are aligned together: attention takes memory quadratic in their length."""

_MOST = 0.6
"""The weight of a source phrase by which a term takes a further word."""

_BLANK = r"[\s\x{0B}\x{1C}-\x{1F}\x{85}\p{Z}]"
_WORD = r"[\p{L}\p{M}\p{N}'’_-]"
_CLOSING = r"(?s:[,.;:!?…%\)\]}”’»。、，；：！？].*)"
_UNIT = rf"(?:_(?:[-/:.,|+*=&]_)+|{spans.PLACED}|\(_\)|\[_\]|\"_\"|“_”|„_“|«_»|'_')"
_UNIT = _UNIT.replace("_", spans.WORD)
"""A mark; what joins spans (`%d/%m`), and brackets or quotes around one, go with it."""


def protection_of(tokenizer):
    """Returns `ByPlaceholders` if a tokenizer's vocabulary contains some, else `ByAlignment`."""
    placeholder_ids = getattr(tokenizer, "placeholder_ids", ())
    return ByPlaceholders(placeholder_ids) if placeholder_ids else ByAlignment()


class ByAlignment:
    """Protection of spans by alignment, for any vocabulary. The model reads no marks."""

    reads_marks = False

    def as_read(self, sentences, room):
        """Returns sentences with marks, string [rows], as the model reads them; see `number_marks`.

        Args: room, int, placeholders that a translation has room for.
        """
        return sentences

    def translate(self, sentences, translate, align, *inputs, room, find_terms=None):
        """Translates sentences with marks, string [rows], to translations with marks.

        Args:
            sentences, translate, align, *inputs, find_terms: as for `translate_around`; texts of
                these functions may contain marks of placeholders.
            room: as for `as_read`. A sentence with more marks is translated by alignment.
        """
        return translate_around(sentences, translate, align, *inputs, find_terms=find_terms)

    def constraint(self, source_ids, tokenizer):
        """Returns the `RequiredTokens` of translations, or None.

        With placeholders each appears exactly as often as in the source, and no others appear.

        Args: source_ids, int32 [batch, source]; tokenizer, the `Tokenizer` of the targets.
        """


class ByPlaceholders(ByAlignment):
    """Protection of spans by placeholders; placeholder_ids: range, at least one token."""

    reads_marks = True

    def __init__(self, placeholder_ids):
        self._ids = placeholder_ids

    def marked(self, tokenizer):
        """Returns the tokenizer that reads marks of placeholders, `MarkedTokenizer`."""
        return MarkedTokenizer(tokenizer, self._ids)

    def as_read(self, sentences, room):
        return number_marks(sentences, min(len(self._ids), room))

    def translate(self, sentences, translate, align, *inputs, room, find_terms=None):
        with ops.on_host():
            numbered = self.as_read(sentences, room)

        def translate_numbered(texts, *inputs):
            translations = translate(texts, *inputs)
            with ops.on_host():
                return clean_marks(translations, sentences, min(len(self._ids), room))

        return translate_around(numbered, translate_numbered, align, *inputs, find_terms=find_terms)

    def constraint(self, source_ids, tokenizer):
        ids = tf.constant([*self._ids])
        equal = source_ids[:, tf.newaxis] == ids[:, tf.newaxis]  # [batch, placeholders, source]
        counts = tf.math.count_nonzero(equal, axis=2, dtype=tf.int32)
        reserved = np.isin(np.arange(tokenizer.vocab_size), self._ids)
        return RequiredTokens(ids, counts, tokenizer.eos_id, reserved)


def number_marks(sentences, most):
    """Numbers the marks of spans that stand for words: the k-th of a sentence is placeholder k.

    A space separates a mark from an adjacent letter, so that the tokens of a word do not depend on
    its marks. Sentences, string [rows], with more than `most` marks stay unchanged.
    """
    parts, is_mark = split_by_pattern(sentences, spans.WORD)
    rows = parts.value_rowids()
    counts = tf.math.unsorted_segment_sum(tf.cast(is_mark, tf.int32), rows, tf.size(sentences))
    is_numbered = is_mark & (tf.gather(counts, rows) <= most)
    number = tf.where(is_numbered, order_in_row(parts, is_mark) + 1, 0)
    texts = tf.where(is_numbered, tf.gather(_NUMBERS, number), parts.values)
    return _spaced(join_parts(parts, texts))


_NUMBERS = [mark_of(number) for number in range(MAX_PLACEHOLDERS + 1)]


def _spaced(texts):
    """Returns texts with a space between each mark of a placeholder and an adjacent letter."""
    texts = tf.strings.regex_replace(texts, f"({spans.NUMBERED})({spans.LETTER})", r"\1 \2")
    return tf.strings.regex_replace(texts, f"({spans.LETTER})({spans.NUMBERED})", r"\1 \2")


def clean_marks(translations, sentences, most=MAX_PLACEHOLDERS):
    """Returns translations that contain only the marks of their own sentence, each once.

    Args:
        translations: string [rows], translations of the result of `number_marks`.
        sentences: string [rows], the sentences before numbering. A mark next to a letter there gets
            no space on this side; otherwise a space separates a mark from a letter.
        most: int, as for `number_marks`.
    """
    touches = _touches(sentences)
    translations = tf.strings.regex_replace(translations, "[\ue000\ue040-\ue0ff]", "")
    parts, is_mark = split_by_pattern(_spaced(translations), spans.NUMBERED)
    values, rows = parts.values, parts.value_rowids()
    number = spans.number_of(values, is_mark)
    # A model may spell a mark by its bytes: one that its sentence lacks, or has once, is left out.
    counts = tf.cast(tf.gather(touches.row_lengths(), rows), tf.int32)
    is_own = is_mark & (number <= counts) & (counts <= most)
    _, index = tf.unique(tf.where(is_own, tf.cast(rows, tf.int32) * 256 + number, -1))
    place = tf.range(tf.size(index))
    is_own &= tf.gather(tf.math.unsorted_segment_min(place, index, tf.size(index)), index) == place
    values = tf.where(is_mark & ~is_own, "", values)
    place = tf.cast(tf.gather(touches.row_starts(), rows), tf.int32) + number - 1
    place = tf.where(is_own, place, tf.shape(touches.values)[0])
    touch = tf.gather(tf.pad(touches.values, [[0, 1], [0, 0]]), place)  # [parts, 2]
    at_begin, _ = neighbors(rows, touch[:, 1], False)
    _, at_end = neighbors(rows, touch[:, 0], False)
    values = tf.where(at_begin, tf.strings.regex_replace(values, "^ ", ""), values)
    values = tf.where(at_end, tf.strings.regex_replace(values, " $", ""), values)
    return join_parts(parts, values)


def _touches(sentences):
    """Returns whether letters are before and after each mark, ragged bool [rows, (marks), 2]."""
    parts, is_mark = split_by_pattern(sentences, spans.WORD)
    before, behind = neighbors(parts.value_rowids(), parts.values, "")
    before = tf.strings.regex_full_match(before, f"(?s:.*{spans.LETTER})")
    behind = tf.strings.regex_full_match(behind, f"(?s:{spans.LETTER}.*)")
    return keep_where(is_mark, parts.with_values(tf.stack([before, behind], axis=1)))[0]


# By alignment -------------------------------------------------------------------------------------


class WordAlignment(NamedTuple):
    """Tokens of a translation: their positions, and the parts of the source aligned to them.

    Positions are characters; padding has 0, 0.
    """

    starts: tf.Tensor  # int32 [batch, target], of the translation
    ends: tf.Tensor
    spans: tf.Tensor  # int32 [batch, target, 2], begin and end in the source
    weights: tf.Tensor = None  # float32 [batch, target, source], attention to the source's tokens
    source_starts: tf.Tensor = None  # int32 [batch, source], of the source's tokens
    source_ends: tf.Tensor = None


def translate_around(sentences, translate, align, *inputs, find_terms=None):
    """Translates sentences with marks and terms in them.

    Args:
        sentences: string [rows], without white space at their ends, each with words.
        translate: function of sentences, string [rows], to their translations, string [rows].
        align: function of sentences and translations to their `WordAlignment`.
        *inputs: string [rows] each, further inputs of both functions.
        find_terms: function of sentences to their `TermMatches`; None: there are no terms.

    Returns:
        string [rows], each translation with the marks and the targets of its sentence. Without
        marks and targets it is the result of `translate`.
    """
    with ops.on_host():
        split = _split_marks(sentences)
        matches = find_terms(split.texts) if find_terms else ()
    translations = translate(split.texts, *inputs)
    with ops.on_host():
        translations = tf.strings.regex_replace(translations, "[\ue000\ue040-\ue0ff]", "")
        is_changed = split.runs.row_lengths() > 0
        is_changed |= matches[0].row_lengths() > 0 if find_terms else False

    def put_back(rows):
        with ops.on_host():
            chosen = _Marks(*(tf.gather(x, rows) for x in split))
            targets, *codes = (tf.gather(x, rows) for x in (translations, *inputs))
        alignment = align(chosen.texts, targets, *codes)
        with ops.on_host():
            if find_terms:
                terms = (tf.gather(x, rows) for x in matches)
                targets, alignment = put_terms(targets, alignment, *terms)
            return _insert(targets, alignment, chosen)

    changed = in_batches(put_back, tf.where(is_changed)[:, 0], SENTENCES_PER_BATCH)
    with ops.on_host():
        return in_order(translations, is_changed, changed)


def put_terms(translations, alignment, starts, ends, targets, begins=0):
    """Replaces the translations of source phrases by the target phrases of terms.

    A term replaces the word whose tokens attend most to its source phrase, and the adjacent words
    that attend to this phrase more than to everything else. Terms with the greatest weights come
    first, and each word is replaced only once. If no word is left, the target is appended.

    Args:
        translations: string [rows].
        alignment: `WordAlignment`.
        starts, ends, targets: as in `TermMatches`. A phrase that the model does not read, because
            its sentence is too long, is left out.
        begins: int32 [rows], the first character that may be replaced.

    Returns:
        string [rows], and the `WordAlignment` of the new translations.
    """
    starts, ends, targets = (x.to_tensor() for x in (starts, ends, targets))  # [rows, terms]
    lengths = tf.strings.length(translations, unit="UTF8_CHAR")
    has_text = (alignment.source_ends > alignment.source_starts)[:, tf.newaxis]
    weights = tf.where(has_text, alignment.weights, 0.0)  # [rows, target, source]
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=2, keepdims=True))
    is_source = alignment.source_starts[:, tf.newaxis] < ends[..., tf.newaxis]
    is_source &= alignment.source_ends[:, tf.newaxis] > starts[..., tf.newaxis]
    is_source &= has_text  # [rows, terms, source]
    weights = tf.einsum("rts,rks->rkt", weights, tf.cast(is_source, tf.float32))
    weights = tf.round(256 * weights) / 256  # of words alike the first counts, whatever the batch
    left, right = _word_ends(translations, alignment.starts, alignment.ends)  # [rows, target]
    begins = tf.zeros_like(lengths) + begins
    is_free = (alignment.ends > alignment.starts) & (left >= begins[:, tf.newaxis])
    is_free &= _characters_match(left, translations, r"[\p{L}\p{N}]")
    is_read = tf.reduce_any(is_source, axis=2)  # [rows, terms]
    place = tf.range(tf.shape(left)[1])

    def take_word(is_free, is_waiting, starts, ends):
        # The free word and the waiting term of the greatest weight
        is_open = is_waiting[..., tf.newaxis] & is_free[:, tf.newaxis]
        best = tf.reduce_max(tf.where(is_open, weights, -1.0), axis=2)  # [rows, terms]
        term = tf.argmax(tf.where(is_waiting, best, -2.0), axis=1)  # [rows]
        own = tf.gather(weights, term, batch_dims=1)  # [rows, target]
        token = tf.argmax(tf.where(is_free, own, -1.0), axis=1, output_type=tf.int32)[:, tf.newaxis]
        belongs = (is_free & (own > _MOST)) | (place == token)
        first = tf.reduce_max(tf.where(~belongs & (place < token), place + 1, 0), axis=1)
        size = tf.shape(place)[0]
        last = tf.reduce_min(tf.where(~belongs & (place > token), place - 1, size - 1), axis=1)
        begin, end = (tf.gather(x, i, batch_dims=1) for x, i in ((left, first), (right, last)))
        any_free = tf.reduce_any(is_free, axis=1)
        begin, end = (tf.where(any_free, x, lengths) for x in (begin, end))
        is_taken = (alignment.starts < end[:, tf.newaxis]) & (right > begin[:, tf.newaxis])
        is_term = tf.one_hot(term, tf.shape(starts)[1], True, False) & is_waiting
        starts, ends = (
            tf.where(is_term, x[:, tf.newaxis], old) for x, old in ((begin, starts), (end, ends))
        )
        return is_free & ~is_taken, is_waiting & ~is_term, starts, ends

    at_end = tf.zeros_like(starts) + lengths[:, tf.newaxis]  # where terms of no word stand
    _, _, starts, ends = tf.while_loop(
        lambda is_free, is_waiting, *_: tf.reduce_any(is_waiting),
        take_word,
        (is_free, is_read, at_end, at_end),
    )
    is_alone = is_read & (starts == ends) & (starts > 0)
    targets = tf.where(is_read, tf.strings.join([tf.where(is_alone, " ", ""), targets]), "")
    return _replace(translations, alignment, starts, ends, targets)


def _replace(translations, alignment, starts, ends, targets):
    """Returns translations with words replaced by targets, and their alignment."""
    order = tf.argsort(starts, axis=1, stable=True)
    starts, ends, targets = (tf.gather(x, order, batch_dims=1) for x in (starts, ends, targets))
    sizes = tf.strings.length(targets, unit="UTF8_CHAR")
    row = tf.repeat(tf.range(tf.shape(starts)[0]), tf.shape(starts)[1])
    flat = (tf.reshape(x, [-1]) for x in (starts, ends, targets))

    def moved(places, is_end):
        """Returns the new positions of characters, int32 [rows, target]."""
        places = places[..., tf.newaxis]
        first, last, size = (x[:, tf.newaxis] for x in (starts, ends, sizes))  # [rows, 1, terms]
        shift = tf.where(last <= places, size - (last - first), 0)
        inside = (first < places) & (places < last)
        to_edge = (first - places) + (size if is_end else 0)
        shift += tf.where(inside, to_edge, 0)
        return places[..., 0] + tf.reduce_sum(shift, axis=2)

    return _spliced(translations, row, *flat), alignment._replace(
        starts=moved(alignment.starts, False), ends=moved(alignment.ends, True)
    )


def _spliced(texts, rows, starts, ends, others):
    """Returns texts, string [rows], with others instead of some of their characters.

    Args: rows, integers [edits] in order, the text of each edit; starts, ends: int32 [edits].
    """
    begins, _ = neighbors(rows, ends, 0)
    starts = tf.maximum(starts, begins)
    parts = tf.gather(texts, rows)
    parts = tf.strings.substr(parts, begins, starts - begins, unit="UTF8_CHAR")
    count = tf.size(texts)
    last = tf.maximum(tf.math.unsorted_segment_max(ends, rows, count), 0)
    sizes = tf.strings.length(texts, unit="UTF8_CHAR") - last
    tails = tf.strings.substr(texts, last, sizes, unit="UTF8_CHAR")
    parts = tf.strings.join([parts, others])
    return tf.strings.join([tf.strings.unsorted_segment_join(parts, rows, count), tails])


class _Marks(NamedTuple):
    """Sentences and the marks that were taken out of them, as runs."""

    texts: tf.Tensor  # string [rows], the sentences without marks
    runs: tf.RaggedTensor  # string [rows, (runs)], marks with only white space between them
    after: tf.RaggedTensor  # int32 [rows, (runs)], where the text before it ends; -1: none
    before: tf.RaggedTensor  # int32 [rows, (runs)], where the text after it begins; -1: none
    opens: tf.RaggedTensor  # bool [rows, (runs)], whether a run belongs to the word after it
    spaces: tf.RaggedTensor  # bool [rows, (runs), 2], whether white space is before and after it
    letters: tf.RaggedTensor  # bool [rows, (runs), 2], whether letters are


def _split_marks(sentences):
    """Returns the `_Marks` of sentences, string [rows]."""
    runs = rf"{_BLANK}*{_UNIT}(?:{_BLANK}*{_UNIT})*{_BLANK}*"
    parts, is_run = split_by_pattern(sentences, runs)
    values, has = parts.values, tf.strings.regex_full_match
    before, behind = neighbors(parts.value_rowids(), values, "")
    has_text_before, has_text_behind = before != "", behind != ""
    space_before, space_behind = (
        has(values, x) for x in (rf"(?s:{_BLANK}.*)", rf"(?s:.*{_BLANK})")
    )
    letter_before, letter_behind = (
        has(before, rf"(?s:.*{spans.LETTER})"), has(behind, rf"(?s:{spans.LETTER}.*)")
    )  # fmt: skip
    stripped = tf.strings.regex_replace(values, rf"^{_BLANK}+|{_BLANK}+$", "")
    # Tags inside of a word leave it whole.
    parts_words = has(values, f"(?s:.*[{spans.GAP}{spans.WORD}].*)") & letter_before & letter_behind
    parts_words |= has(stripped, f"(?s:.*(?:{spans.SPACE}|{_BLANK}).*)")
    is_inside = has_text_before & has_text_behind
    keeps_space = is_inside & (space_before | space_behind | parts_words)
    keeps_space &= space_behind | ~has(behind, _CLOSING)
    texts = tf.where(is_run, tf.where(keeps_space, " ", ""), values)
    lengths = tf.strings.length(texts, unit="UTF8_CHAR")
    ends = ends_in_row(parts, lengths)
    opens = has(behind, rf"(?s:{_WORD}.*)") & ~space_behind & space_before
    opens &= ~has(stripped, f"(?s:.*{spans.SPACE})")
    opens = has_text_behind & (~has_text_before | opens | has(stripped, f"(?s:.*{spans.OPENING})"))
    of_parts = (
        stripped,
        tf.where(has_text_before, ends - lengths, -1),
        tf.where(has_text_behind, ends, -1),
        opens,
        tf.stack([space_before, space_behind], axis=1),
        tf.stack([letter_before & ~space_before, letter_behind & ~space_behind], axis=1),
    )
    of_runs = keep_where(is_run, *(parts.with_values(x) for x in of_parts))
    return _Marks(join_parts(parts, texts), *of_runs)


def _insert(translations, alignment, marks):
    """Returns translations, string [rows], with the runs of `_Marks`."""
    runs = marks.runs
    lengths = tf.strings.length(translations, unit="UTF8_CHAR")
    places = _places(translations, lengths, alignment, marks)  # [rows, runs]
    row = rows_of(runs)
    order = tf.range(tf.size(row, tf.int64)) - tf.gather(runs.row_starts(), row)
    places = tf.gather_nd(places, tf.stack([row, order], axis=1))
    texts, has = tf.gather(translations, row), tf.strings.regex_full_match
    rest = tf.strings.substr(texts, places, tf.gather(lengths, row) - places, unit="UTF8_CHAR")
    until = tf.strings.substr(texts, tf.zeros_like(places), places, unit="UTF8_CHAR")
    blank_before, blank_behind = has(until, f"(?s:.*{_BLANK})"), has(rest, f"(?s:{_BLANK}.*)")
    # A mark of white space, or one inside of a word, takes the place of a space.
    spaces, letters = marks.spaces.values, marks.letters.values  # [all runs, 2]
    is_word = has(runs.values, f"(?s:.*{spans.WORD}.*)")
    has_gap = has(runs.values, f"(?s:.*(?:[{spans.SPACE}{spans.GAP}]|{_BLANK}).*)")
    has_gap |= tf.reduce_all(letters, axis=1) & is_word
    takes_before, takes_behind = has_gap & ~spaces[:, 0], has_gap & ~spaces[:, 1]
    starts = places - tf.cast(takes_before & blank_before, tf.int32)
    ends = places + tf.cast(takes_behind & blank_behind, tf.int32)
    needs_behind = spaces[:, 1] & ~blank_behind & ~has(rest, rf"|{_CLOSING}")
    needs_behind |= is_word & ~letters[:, 1] & ~takes_behind & has(rest, rf"(?s:{spans.LETTER}.*)")
    is_next = places <= neighbors(row, ends, -1)[0]  # directly behind another run
    has_space = blank_before | (until == "")
    has_space = tf.where(is_next, neighbors(row, needs_behind, False)[0], has_space)
    needs_before = spaces[:, 0] & ~has_space
    needs_before |= is_word & ~letters[:, 0] & ~is_next & has(until, rf"(?s:.*{spans.LETTER})")
    space_before = tf.where(needs_before & ~takes_before, " ", "")
    others = tf.strings.join([space_before, runs.values, tf.where(needs_behind, " ", "")])
    return _spliced(translations, row, starts, ends, others)


def _places(translations, lengths, alignment, marks):
    """Returns the character of the translation at which each run is put, int32 [rows, runs].

    An opening run goes before the word whose source begins nearest to the text after the run. Any
    other run goes after the word whose source ends nearest to the text before it. Runs at an end of
    the sentence stay there. All keep the order of the sentence.
    """
    after, before = (x.to_tensor(-1) for x in (marks.after, marks.before))
    # A run inside of a word belongs to the word.
    inside = marks.runs.with_values(tf.reduce_all(marks.letters.values, axis=1)).to_tensor(False)
    left, right = _word_ends(marks.texts, before, after)
    before, after = tf.where(inside, left, before), tf.where(inside, right, after)
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
    # A run behind a space and before a mark such as a slash stands so in the translation.
    spaces, letters = marks.spaces.values, marks.letters.values  # [all runs, 2]
    follows = marks.runs.with_values(spaces[:, 0] & ~spaces[:, 1] & ~letters[:, 1]).to_tensor()
    follows &= ~opens & (before >= 0) & _characters_match(places, translations, _BLANK)
    places += tf.cast(follows, tf.int32)
    # The greatest of those up to each one
    count = tf.shape(places)[1]
    up_to = tf.range(count) <= tf.range(count)[:, tf.newaxis]  # [runs, runs]
    places = tf.reduce_max(tf.where(up_to, places[:, tf.newaxis], 0), axis=2)
    return tf.minimum(places, lengths[:, tf.newaxis])


def _word_ends(translations, starts, ends):
    """Returns the beginnings of words at or before starts, and ends of words at or after ends.

    Starts and ends are characters of translations, string [rows]: int32 [rows, runs].
    """
    characters = tf.strings.unicode_split(translations, "UTF-8")
    flat = characters.values
    inside = tf.strings.regex_full_match(flat, _WORD)
    inside &= ~tf.strings.regex_full_match(flat, f"[{spans.UNSPACED}]")
    inside = tf.pad(characters.with_values(inside).to_tensor(False), [[0, 0], [1, 1]])
    between = ~(inside[:, :-1] & inside[:, 1:])[:, tf.newaxis]  # [rows, 1, characters + 1]
    places = tf.range(tf.shape(between)[2])
    left = between & (places <= starts[..., tf.newaxis])
    right = between & (places >= ends[..., tf.newaxis])
    return (
        tf.reduce_max(tf.where(left, places, 0), axis=2),
        tf.reduce_min(tf.where(right, places, tf.shape(places)[0] - 1), axis=2),
    )


def _characters_match(places, texts, pattern):
    """Returns whether the character of a text at a place matches a pattern, bool [rows, places]."""
    characters = tf.strings.unicode_split(texts, "UTF-8")
    matches = tf.strings.regex_full_match(characters.values, pattern)
    matches = tf.pad(characters.with_values(matches).to_tensor(False), [[0, 0], [0, 1]])
    return tf.gather(matches, tf.minimum(places, tf.shape(matches)[1] - 1), batch_dims=1)
