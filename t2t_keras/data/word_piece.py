"""WordPiece tokenizers (paper section 5.1: 32,000 word pieces for English-French).

Texts are first split into words and punctuation marks. A ▁ replaces the spaces before each, so
that joining the tokens restores the text. Within a word every token except the first begins
with ##. A word that the vocabulary cannot spell becomes byte tokens.
"""

import collections
import math
import unicodedata
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

from t2t_keras.data.base_tokenizer import (
    SPECIAL,
    UNK_ID,
    Tokenizer,
    lookup_table,
    normalize_with_offsets,
    valid_utf8,
)
from t2t_keras.data.texts import as_batch
from t2t_keras.errors import InputError

_SPACE = "▁"
_CONTINUATION = "##"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_FIRST_BYTE = len(SPECIAL)
_MAX_WORD_BYTES = 200  # longer words become byte tokens
_MAX_TOKEN_LENGTH = 40  # characters
_MAX_TRAINING_WORDS = 300_000  # rarer ones would cost hours and change little
_NUL = "\ufdd0"  # a noncharacter that replaces NUL in words
_LETTERS = r"\p{L}\p{M}\p{N}"
_SPACES = f"[ {_SPACE}]+"
_WORD = rf"(?:{_SPACES})?(?:[{_LETTERS}]+|[^{_LETTERS} {_SPACE}])"


class WordPieceTokenizer(Tokenizer):
    """WordPiece inside the graph, with byte fallback; model: one token on each line, UTF-8."""

    kinds = ("wordpiece",)
    model_file = "wordpiece.txt"

    def __init__(self, kind, model, languages=None, placeholders=0):
        pieces = model.decode("utf-8").split("\n")
        super().__init__(kind, model, tf.constant(pieces), languages, placeholders)
        surfaces = [piece.removeprefix(_CONTINUATION).encode() for piece in pieces]
        surfaces[_FIRST_BYTE : _FIRST_BYTE + 256] = [bytes([byte]) for byte in range(256)]
        self._surfaces = tf.constant(surfaces)
        self._table = lookup_table(pieces, tf.range(len(pieces), dtype=tf.int64), UNK_ID)
        self._wordpiece = tf_text.WordpieceTokenizer(
            self._table,
            suffix_indicator=_CONTINUATION,
            unknown_token=SPECIAL[UNK_ID],
            token_out_type=tf.int32,
            max_bytes_per_word=_MAX_WORD_BYTES,
        )

    def encode(self, texts):
        normalized = tf_text.normalize_utf8(_without_nul(as_batch(texts)), "NFC")
        return self._encode_words(_split_words(normalized)).merge_dims(1, 2)

    def encode_with_offsets(self, texts):
        normalized, locate = normalize_with_offsets(_without_nul(as_batch(texts)))
        words = _split_words(normalized)
        tokens = self._encode_words(words)  # [batch, (words), (tokens)]
        token_ids, word = tokens.values.values, tokens.values.value_rowids()  # [tokens]
        # The joined surfaces of a word's tokens are the word, with one ▁ for all spaces before it.
        lengths = tf.strings.length(tf.gather(self._surfaces, token_ids))
        ends = tf.cumsum(lengths)
        ends -= tf.gather(tf.pad(ends, [[1, 0]]), tf.gather(tokens.values.row_starts(), word))
        after_space = tf.cast(ends - tf.gather(words.space_bytes, word), tf.int64)
        letters = tf.gather(words.letter_starts, word)
        ends = letters + tf.maximum(after_space, 0)
        after_space -= tf.cast(lengths, tf.int64)
        starts = tf.where(after_space < 0, tf.gather(words.starts, word), letters + after_space)
        return locate(tokens.merge_dims(1, 2), starts, ends)

    def _encode_words(self, words):
        """Returns the ids of `_Words`, int32 `[batch, (words), (tokens)]`."""
        # Words recur: each is looked up once in a batch.
        unique, index = tf.unique(words.surfaces.values)
        return words.surfaces.with_values(tf.gather(self._encode_unique(unique), index))

    def _encode_unique(self, words):
        """Returns the ids of string `[words]`, RaggedTensor int32 `[words, (tokens)]`."""
        ids = self._wordpiece.tokenize(words)
        unknown = tf.reduce_any(ids == UNK_ID, axis=1)
        known_ids = tf.ragged.boolean_mask(ids, ids != UNK_ID)
        bytes_ = tf.strings.bytes_split(tf.where(unknown, words, ""))
        values = tf.reshape(tf.io.decode_raw(bytes_.values, tf.uint8), [-1])
        byte_ids = bytes_.with_values(tf.cast(values, tf.int32) + _FIRST_BYTE)
        return tf.concat([known_ids, byte_ids], axis=1)  # in every row one of the two is empty

    def _join(self, ids):
        surfaces = ids.with_values(tf.gather(self._surfaces, ids.values))
        texts = tf.strings.reduce_join(surfaces, axis=1)
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, "^ ", "")
        return valid_utf8(texts)

    @classmethod
    def train(cls, kind, lines, vocab_size):
        """Learns a vocabulary from a list of str in NFC; see `train_tokenizer`."""
        counts = collections.Counter()
        for batch in tf.data.Dataset.from_tensor_slices(lines).batch(8192):
            counts.update(_split_words(_without_nul(batch)).surfaces.values.numpy().tolist())
        words = [(word.decode("utf-8"), count) for word, count in counts.items()]
        alphabet = _alphabet(words, max(256, vocab_size // 16))
        words = [
            (word, count)
            for word, count in sorted(words, key=lambda item: (-item[1], item[0]))
            if alphabet.issuperset(word) and len(word) <= _MAX_TOKEN_LENGTH
        ][:_MAX_TRAINING_WORDS]
        characters = sorted(alphabet)
        fixed = [*SPECIAL, *_BYTES, *characters]
        fixed += [_CONTINUATION + character for character in characters if character != _SPACE]
        if vocab_size < len(fixed):
            raise InputError(
                f"vocab_size {vocab_size} cannot hold the 256 bytes and the characters of the "
                f"text; the smallest possible is {len(fixed)}"
            )
        learned = _learn(words, vocab_size, set(fixed))
        if len(fixed) + len(learned) < vocab_size:
            raise InputError(
                f"vocab_size {vocab_size} is more than the text supports; the largest possible "
                f"is {len(fixed) + len(learned)}"
            )
        pieces = [*fixed, *learned][:vocab_size]
        return cls(kind, "\n".join(pieces).encode())


class _Words(NamedTuple):
    """The words and punctuation marks of texts."""

    # string `[batch, (words)]`, with one ▁ for the spaces before a word; the first word of a text
    # always has one
    surfaces: tf.RaggedTensor
    space_bytes: tf.Tensor  # int32 `[words]`, bytes of that ▁: 3, or 0 if there is none
    starts: tf.Tensor  # int64 `[words]`, byte of the text where the spaces before the word begin
    letter_starts: tf.Tensor  # int64 `[words]`, byte of the text where the word itself begins


def _split_words(texts):
    """Splits string `[batch]`, valid UTF-8 in NFC, into `_Words`."""
    texts = tf.strings.regex_replace(texts, f"{_SPACES}$", "")
    texts = tf.where(texts == "", "", " " + texts)
    words, starts, _ = tf_text.regex_split_with_offsets(texts, _WORD, _WORD)
    surfaces = tf.strings.regex_replace(words.values, f"^{_SPACES}", _SPACE)
    letters = tf.strings.length(tf.strings.regex_replace(words.values, f"^{_SPACES}", ""))
    starts = starts.values - 1  # without the space put before each text
    return _Words(
        words.with_values(tf.strings.regex_replace(surfaces, _NUL, "\x00")),
        space_bytes=tf.strings.length(surfaces) - letters,
        starts=tf.maximum(starts, 0),
        letter_starts=starts + tf.cast(tf.strings.length(words.values) - letters, starts.dtype),
    )


def _without_nul(texts):
    """Returns valid UTF-8 without NUL, at which the op that splits words would stop."""
    return tf.strings.regex_replace(valid_utf8(texts), r"\x00", _NUL)


def _alphabet(words, size):
    """Returns the `size` most frequent characters of (word, count) pairs, a set."""
    counts = collections.Counter()
    for word, count in words:
        for character in word:
            counts[character] += count
    # By frequency, then by code point; control characters would break the lines of the file.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {character for character, _ in ranked[:size] if unicodedata.category(character) != "Cc"}


def _learn(words, vocab_size, fixed):
    """Returns tokens of two characters and more to fill the vocabulary, or all if there are fewer.

    words: list of (word, count), the most frequent first; fixed: tokens that are already there.
    """
    params = learner.Params(
        upper_thresh=None,
        lower_thresh=None,
        num_iterations=4,
        max_input_tokens=-1,
        max_token_length=_MAX_TOKEN_LENGTH,
        max_unique_chars=None,
        vocab_size=vocab_size,
        slack_ratio=0,
        include_joiner_token=True,
        joiner=_CONTINUATION,
        reserved_tokens=[],
    )
    # The lower the threshold, the more tokens: find the highest threshold that gives enough.
    low, high = 1, words[0][1] if words else 0
    best = []
    while low <= high:
        threshold = math.isqrt(low * high)  # vocabularies shrink about as 1 / threshold
        vocabulary = learner.learn_with_thresh(words, threshold, params)
        tokens = [token for token in vocabulary if token not in fixed and token != "##▁"]
        size = len(fixed) + len(tokens)
        if size >= vocab_size:
            best, low = tokens, threshold + 1
            if size <= 1.05 * vocab_size:
                break
        else:
            if len(fixed) + len(best) < vocab_size:
                best = tokens
            high = threshold - 1
    return best
