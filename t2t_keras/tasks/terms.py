"""Terms: how given phrases of a source must be translated, such as the names of a glossary.

A graph gets the terms of each text as one string: lines of a source phrase, a tab, and its target
phrase. `terms_constraint` finds those whose source phrase stands in the text, and makes the
constraint of a search of their targets. `Terms` has those of a Python program or a file.

A source phrase stands in a text as whole words, whatever the white space between them. One in lower
case matches any case: "apple pie" also "Apple Pie"; one with a capital letter matches its own case
only. Where phrases overlap, the one of more words counts: "New York" hides "York".
"""

import re
import unicodedata
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.base_tokenizer import UNK_ID, encode_utf8, valid_utf8
from t2t_keras.data.files import read_lines
from t2t_keras.decoding.constraints import PhraseConstraint, Phrases
from t2t_keras.errors import InputError
from t2t_keras.tasks.protected_spans import ALL_MARKS

_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
"""Letters of scripts that are written without spaces: each of them is a word here."""

_LETTERS = r"[\p{L}\p{M}\p{N}]"
_WORD = rf"{_LETTERS}+|[^\s\p{{Z}}]"
_LINE = r"[^\t]*[^\t\s\p{Z}][^\t]*\t[^\t]*[^\t\s\p{Z}][^\t]*"
_LETTER_BYTES = "<0x(3[0-9]|[46][1-9A-F]|[57][0-9A]|C[3-9A-F]|D[0-9A-F])>"
"""Tokens of the first byte of a letter or digit, of ASCII or of two bytes; none of these scripts is
unspaced."""

_SHOWN = 60
"""Characters of a text in a message, which a model server sends in a header of limited size."""

_HASHES = 2**62
_FACTOR = 6_364_136_223_846_793_005  # of the hashes of several words, odd


class Terms:
    """The terms of a Python program: {source phrase: target phrase}.

    Args:
        phrases: mapping of str to str.

    Raises:
        InputError: if a phrase is not a str, is blank, or has a tab or a line break.

    Example:
        >>> Terms({"dog": "Hund"}).rows([b"The dog.", b"A cat."])
        [b'dog\\tHund', b'']
    """

    def __init__(self, phrases):
        if not isinstance(phrases, Mapping):
            raise InputError(
                f"terms is a {type(phrases).__name__}: give a dict of source and target phrases."
            )
        for source, target in phrases.items():
            _check_term("terms", source, target)
        self._lines = [(_folded(s), encode_utf8(f"{s}\t{t}")) for s, t in phrases.items()]

    @classmethod
    def of(cls, terms):
        """Returns `Terms` themselves, or those of a mapping."""
        return terms if isinstance(terms, cls) else cls(terms)

    @classmethod
    def read(cls, path):
        """Reads a file, plain or gzipped: a source phrase, a tab and a target phrase on each line.

        Blank lines are left out.

        Raises:
            InputError: if a line has another form, or gives a source phrase a second target.
        """
        phrases, places = {}, {}
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            source, *targets = (part.strip() for part in line.decode().split("\t"))
            if len(targets) != 1 or not source or not targets[0]:
                raise InputError(
                    f"{path} line {number} is {line.decode()!r}: give a source phrase, a tab and a "
                    "target phrase."
                )
            _check_term(f"{path} line {number}", source, targets[0])
            source = " ".join(unicodedata.normalize("NFC", source).split())
            if phrases.setdefault(source, targets[0]) != targets[0]:
                raise InputError(
                    f"{path} gives {source!r} the targets {phrases[source]!r} (line "
                    f"{places[source]}) and {targets[0]!r} (line {number}): keep one of them."
                )
            places.setdefault(source, number)
        return cls(phrases)

    def rows(self, texts):
        """Returns the lines for each text, a list of bytes: of phrases that may stand in it.

        Args:
            texts: list of bytes.
        """
        rows = []
        for text in texts:
            folded = _folded(text.decode("utf-8", "replace"))
            rows.append(b"\n".join(line for source, line in self._lines if source in folded))
        return rows


def _check_term(place, source, target):
    for phrase in (source, target):
        is_text = isinstance(phrase, str) and phrase.replace("\0", " ").strip()
        if not is_text or phrase.splitlines() != [phrase]:
            raise InputError(f"{place} has {source!r}: {target!r}: give text on one line for both.")
        if "\t" in phrase:
            raise InputError(f"{place} has {phrase!r}: leave the tab out.")


def _folded(text):
    """Returns text that contains that of each phrase which may stand in it."""
    return "".join(unicodedata.normalize("NFC", text).casefold().replace("\0", " ").split())


# In the graph -------------------------------------------------------------------------------------


def terms_constraint(texts, terms, tokenizer, room):
    """Returns the `PhraseConstraint` of a search for translations with the targets of terms.

    Args:
        texts, terms, tokenizer: as for `required_phrases`.
        room: int32 [batch], maximum tokens of each translation, the end counted.

    Raises:
        InvalidArgumentError: as `required_phrases`, and if a translation can't hold its phrases.
    """
    phrases = _require_room(required_phrases(texts, terms, tokenizer), room, texts)
    return PhraseConstraint(phrases, tokenizer.eos_id, continues_word=continues_word(tokenizer))


def required_phrases(texts, terms, tokenizer):
    """Returns the target phrases that translations must contain, inside a graph.

    Each is demanded as often as its source phrase stands in the text.

    Args:
        texts: string [batch].
        terms: string [batch], lines of a source phrase, a tab and a target phrase; "": none.
        tokenizer: `Tokenizer` of the targets.

    Returns:
        `Phrases`.

    Raises:
        InvalidArgumentError: if a line has another form; or, of the terms that stand in their text,
            if two translate the same words in two ways, or a target phrase can't be encoded.
    """
    lines, sources = _lines_and_sources(terms)
    words = _words(sources)
    counts = _count_occurrences(_normalized(texts), lines.with_values(sources), words)
    stands = lines.with_values(counts > 0)
    lines, words, counts = (
        tf.ragged.boolean_mask(lines.with_values(x), stands)
        for x in (lines.values, _phrase_hashes(words), counts)
    )
    ids = _encode(tf.strings.regex_replace(lines.values, r"^[^\t]*\t", ""), tokenizer)
    ids = ids.to_tensor(shape=[None, None])
    counts = _require(
        tf.reduce_all(ids != UNK_ID, axis=1) & tf.reduce_any(ids != 0, axis=1),
        "terms has the line “{}”: the vocabulary has no tokens for its target phrase.",
        lines.values,
        counts.values,
    )
    ids, words, counts = (
        tf.RaggedTensor.from_row_splits(x, lines.row_splits).to_tensor()
        for x in (ids, words.values, counts)
    )  # [batch, phrases, length], [batch, phrases], [batch, phrases]
    same_source = words[:, :, tf.newaxis] == words[:, tf.newaxis]  # [batch, phrases, phrases]
    same_target = tf.reduce_all(ids[:, :, tf.newaxis] == ids[:, tf.newaxis], axis=3)
    places = tf.range(tf.shape(words)[1])
    is_later = places[:, tf.newaxis] > places
    counts = _require(
        ~tf.reduce_any(same_source & ~same_target, axis=2),
        "terms has the line “{}”, and another target phrase for the same source phrase: give one.",
        lines.to_tensor(),
        tf.where(tf.reduce_any(same_source & is_later, axis=2), 0, counts),
    )
    # Several sources may have one target: it must appear for each of them.
    total = tf.reduce_sum(tf.where(same_target, counts[:, tf.newaxis], 0), axis=2)
    counts = tf.where(tf.reduce_any(same_target & is_later, axis=2), 0, total)
    ids = tf.where(counts[..., tf.newaxis] > 0, ids, 0)
    return Phrases(tf.pad(ids, [[0, 0], [0, 1], [0, 1]]), tf.pad(counts, [[0, 0], [0, 1]]))


def valid_without_marks(terms):
    """Returns terms of documents, string [batch], inside a graph.

    Raises:
        InvalidArgumentError: if a line has another form than `required_phrases` reads, or has one
            of the characters that stand for protected spans.
    """
    lines, sources = _lines_and_sources(terms)
    has_mark = tf.strings.regex_full_match(lines.values, f"(?s:.*{ALL_MARKS}.*)")
    sources = _require(
        ~has_mark,
        "terms has the line “{}”: in a document the characters U+E000 to U+E0FF stand for "
        "protected spans; give a line without them.",
        lines.values,
        sources,
    )
    with tf.control_dependencies([sources]):
        return tf.identity(terms)


def _lines_and_sources(terms):
    """Returns the lines of terms that aren't blank, RaggedTensor string [batch, (lines)], and the
    source phrase of each, string [lines]; raises if a line has another form."""
    lines = tf.strings.split(tf.strings.regex_replace(_normalized(terms), r"\r\n?", "\n"), "\n")
    lines = tf.ragged.boolean_mask(lines, ~tf.strings.regex_full_match(lines, r"[\s\p{Z}]*"))
    return lines, _require(
        tf.strings.regex_full_match(lines.values, _LINE),
        "terms has the line “{}”: give a source phrase, a tab and a target phrase.",
        lines.values,
        tf.strings.regex_replace(lines.values, r"\t.*", ""),
    )


def _require_room(phrases, room, texts):
    """Returns `Phrases`; raises InvalidArgumentError if a translation has no room for its own."""
    tokens = phrases.num_tokens()
    worst = tf.argmax(tf.concat([[0], tf.where(tokens > 0, tokens + 1 - room, 0)], axis=0))
    tokens, room = (tf.concat([[0], x], axis=0)[worst] for x in (tokens + 1, room))
    text = _normalized(tf.concat([[""], texts], axis=0)[worst])
    text = tf.strings.regex_replace(text, r"[\s\\]+", " ")
    message = (
        "terms of the text “{}” take {} tokens, and there is room for {}: give fewer or shorter "
        "ones."
    )
    text = tf.strings.substr(text, 0, _SHOWN, unit="UTF8_CHAR")
    check = tf.debugging.Assert(tokens <= room, [_sentence(message, text, tokens, room)])
    with tf.control_dependencies([] if check is None else [check]):
        return phrases._replace(ids=tf.identity(phrases.ids))


def ask(graph, *inputs, **named):
    """Returns graph(*inputs, **named); raises InputError if the graph refuses their terms."""
    try:
        return graph(*inputs, **named)
    except tf.errors.InvalidArgumentError as error:
        sentence = re.search(r"terms .*\.(?=\])", error.message)
        if sentence is None:
            raise
        raise InputError(sentence[0]) from error


def continues_word(tokenizer):
    """Returns which tokens make the word before them longer, a bool array [vocab].

    They begin with a letter of a script with spaces, or its byte, and have no space before them. A
    vocabulary that does not mark spaces has none.
    """
    with tf.init_scope():
        pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size))
        matches = tf.strings.regex_full_match
        begins = matches(pieces, rf"(?s:(##)?{_LETTERS}.*)")
        begins &= ~matches(pieces, rf"(?s:(##)?{_UNSPACED}.*)")
        begins |= matches(pieces, _LETTER_BYTES)
        return begins.numpy() & np.any(matches(pieces, "(?s:▁.*)").numpy())


def _encode(targets, tokenizer):
    """Returns the tokens of phrases inside of a text, RaggedTensor int32 [phrases, (length)]."""
    # A tokenizer puts a space before each text, which scripts without spaces do not have.
    unspaced = tf.strings.regex_full_match(targets, rf"(?s:\s*{_UNSPACED}.*)")
    ids = tokenizer.encode(
        tf.where(unspaced, tf.strings.join(["(", tf.strings.strip(targets)]), targets)
    )
    first = tf.where(unspaced, tokenizer.encode(["("]).row_lengths(), 0)
    places = tf.ragged.range(ids.row_lengths())
    return tf.ragged.boolean_mask(ids, places >= first[:, tf.newaxis])


def _normalized(texts):
    """Returns texts as valid UTF-8 in NFC, with spaces for NUL, at which ops would stop."""
    texts = tf.strings.regex_replace(valid_utf8(texts), r"\x00", " ")
    return tf_text.normalize_utf8(texts, "NFC")


def _words(texts):
    """Returns the words and the other characters of texts, RaggedTensor string [texts, (words)]."""
    texts = tf.strings.regex_replace(texts, f"({_UNSPACED})", r" \1 ")
    return tf_text.regex_split_with_offsets(texts, rf"[\s\p{{Z}}]+|{_WORD}", _WORD)[0]


def _count_occurrences(texts, sources, words):
    """Returns how often each source phrase stands in its text, int32 [lines].

    Args:
        texts: string [batch].
        sources: RaggedTensor string [batch, (lines)].
        words: those of the sources, RaggedTensor string [lines, (words)].
    """
    rows, lengths = sources.value_rowids(), words.row_lengths()[:, tf.newaxis]
    is_lower = sources.values == tf.strings.lower(sources.values, "utf-8")
    text_words, wanted = _words(texts), _phrase_hashes(words)[:, tf.newaxis]
    exact, lower = (
        _matches(tf.gather(_word_hashes(x), rows), wanted, lengths)  # [lines, words]
        for x in (text_words, text_words.with_values(tf.strings.lower(text_words.values, "utf-8")))
    )
    stands = tf.where(is_lower[:, tf.newaxis], lower, exact)
    # The phrase of most words counts, of equal ones that with capitals.
    weights = 2 * lengths + tf.cast(~is_lower, lengths.dtype)[:, tf.newaxis]
    place = tf.range(tf.shape(stands, lengths.dtype)[1])
    covered = _sum_between(tf.cast(stands, tf.int32), place + 1 - lengths, place + 1) > 0
    best = tf.math.unsorted_segment_max(tf.where(covered, weights, 0), rows, sources.nrows())
    is_hidden = tf.gather(best, rows) > weights
    stands &= _sum_between(tf.cast(is_hidden, tf.int32), place, place + lengths) == 0
    return tf.math.count_nonzero(stands, axis=1, dtype=tf.int32)


def _sum_between(values, starts, ends):
    """Returns the sum of values, integers [lines, words], from each start up to its end."""
    sums = tf.pad(tf.cumsum(values, axis=1), [[0, 0], [1, 0]])
    size = tf.shape(values, starts.dtype)
    ends, starts = (
        tf.gather(sums, tf.broadcast_to(tf.clip_by_value(x, 0, size[1]), size), batch_dims=1)
        for x in (ends, starts)
    )
    return ends - starts


def _matches(hashes, wanted, lengths):
    """Returns where phrases begin in their texts, bool [lines, words].

    Args:
        hashes: int64 [lines, words], of the words of each line's text.
        wanted: int64 [lines, 1], `_phrase_hashes`.
        lengths: int64 [lines, 1], words of each phrase.
    """
    place = tf.range(tf.shape(hashes, lengths.dtype)[1])
    factors = _factors(tf.shape(hashes)[1])
    # Factors count from the beginning of the text, not of the phrase.
    return _sum_between(hashes * factors, place, place + lengths) == wanted * factors


def _phrase_hashes(words):
    """Returns the hash of each phrase, int64 [phrases], of words [phrases, (words)]."""
    hashes = _word_hashes(words)
    return tf.reduce_sum(hashes * _factors(tf.shape(hashes)[1]), axis=1)


def _word_hashes(words):
    """Returns a number for each word, int64 [texts, words + 1], 0 behind the last one."""
    hashes = tf.strings.to_hash_bucket_fast(words.values, _HASHES) + 1
    return tf.pad(words.with_values(hashes).to_tensor(shape=[None, None]), [[0, 0], [0, 1]])


def _factors(count):
    return tf.math.cumprod(tf.fill([count], tf.constant(_FACTOR, tf.int64)), exclusive=True)


def _require(condition, message, lines, value):
    """Returns a value; raises InvalidArgumentError with the first line whose condition is False."""
    first = tf.concat([tf.boolean_mask(lines, ~condition), [""]], axis=0)[0]
    first = tf.strings.substr(first, 0, _SHOWN, unit="UTF8_CHAR")
    check = tf.debugging.Assert(tf.reduce_all(condition), [_sentence(message, first)])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(value)


def _sentence(message, text, *numbers):
    """Returns a message whose places {} are filled by a text, then numbers: string scalar."""
    # Those that TensorFlow would escape: backslashes, plain quotes, tabs.
    for pattern, shown in ((r"\\", " "), ("'", "’"), ('"', "”"), (r"\t", " → ")):
        text = tf.strings.regex_replace(text, pattern, shown)
    values = [text, *(tf.strings.as_string(number) for number in numbers), ""]
    return tf.strings.join(
        [part for pair in zip(message.split("{}"), values, strict=True) for part in pair]
    )
