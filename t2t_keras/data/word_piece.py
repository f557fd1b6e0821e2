"""WordPiece vocabularies (paper section 5.1: 32,000 word pieces for English-French).

Words and punctuation marks are cut apart first, each with a ▁ before it where a space stood, so
that joining the pieces gives the text back; inside a word a continuation begins with ##.
"""

import collections
import math
import unicodedata

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

from t2t_keras.data.ids import UNKNOWN_ID
from t2t_keras.data.tokenizers import Tokenizer
from t2t_keras.errors import InputError

_SPACE = "▁"
_CONTINUATION = "##"
_SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]  # ids 0 to 3
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_FIRST_BYTE = len(_SPECIAL)
_LONGEST_WORD = 200  # bytes
_LONGEST_PIECE = 40  # characters
_MOST_WORDS = 300_000  # to learn from; rarer ones would cost hours and change little
_LETTERS = r"\p{L}\p{M}\p{N}"
_WORD = rf"{_SPACE}?[{_LETTERS}]+|{_SPACE}?[^{_LETTERS}{_SPACE}]|{_SPACE}"


class WordPieceTokenizer(Tokenizer):
    """WordPiece inside the graph, with words that it cannot spell given as their bytes.

    Args:
        kind: `wordpiece`.
        model: bytes, the pieces one a line, UTF-8.
    """

    kinds = ("wordpiece",)
    model_file = "wordpiece.txt"

    def __init__(self, kind, model):
        pieces = model.decode("utf-8").split("\n")
        super().__init__(kind, model, tf.constant(pieces))
        surfaces = [piece.removeprefix(_CONTINUATION).encode() for piece in pieces]
        surfaces[_FIRST_BYTE : _FIRST_BYTE + 256] = [bytes([byte]) for byte in range(256)]
        self._surfaces = tf.constant(surfaces)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(pieces, tf.range(len(pieces), dtype=tf.int64)),
            default_value=UNKNOWN_ID,
        )
        self._wordpiece = tf_text.WordpieceTokenizer(
            self._table,
            suffix_indicator=_CONTINUATION,
            unknown_token=_SPECIAL[UNKNOWN_ID],
            token_out_type=tf.int32,
            max_bytes_per_word=_LONGEST_WORD,
        )

    def encode(self, texts):
        words = _words(texts)  # [batch, (words)]
        # Words recur: each is looked up once in a batch.
        unique, index = tf.unique(words.values)
        return words.with_values(tf.gather(self._spell(unique), index)).merge_dims(1, 2)

    def _spell(self, words):
        """String `[words]` to RaggedTensor int32 `[words, (pieces)]`, in bytes if need be."""
        ids = self._wordpiece.tokenize(words)
        unspelled = tf.reduce_any(ids == UNKNOWN_ID, axis=1)
        spelled = tf.ragged.boolean_mask(ids, ids != UNKNOWN_ID)
        bytes_ = tf.strings.bytes_split(tf.where(unspelled, words, ""))
        values = tf.reshape(tf.io.decode_raw(bytes_.values, tf.uint8), [-1])
        byte_ids = bytes_.with_values(tf.cast(values, tf.int32) + _FIRST_BYTE)
        return tf.concat([spelled, byte_ids], axis=1)  # in every row one of the two is empty

    def _join(self, ids):
        surfaces = ids.with_values(tf.gather(self._surfaces, ids.values))
        texts = tf.strings.reduce_join(surfaces, axis=1)
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, "^ ", "")
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    @classmethod
    def learn(cls, kind, lines, vocab_size):
        """Learns the pieces from a list of str; see `learn_tokenizer`."""
        counts = collections.Counter()
        for batch in tf.data.Dataset.from_tensor_slices(lines).batch(8192):
            counts.update(_words(batch).values.numpy().tolist())
        words = [(word.decode("utf-8"), count) for word, count in counts.items()]
        alphabet = _alphabet(words, max(256, vocab_size // 16))
        words = [
            (word, count)
            for word, count in sorted(words, key=lambda item: (-item[1], item[0]))
            if alphabet.issuperset(word) and len(word) <= _LONGEST_PIECE
        ][:_MOST_WORDS]
        characters = sorted(alphabet)
        fixed = [*_SPECIAL, *_BYTES, *characters]
        fixed += [_CONTINUATION + character for character in characters if character != _SPACE]
        if vocab_size < len(fixed):
            raise InputError(
                f"vocab_size {vocab_size} cannot hold the 256 bytes and the characters of the "
                f"text; the smallest possible is {len(fixed)}"
            )
        learned = _learned(words, vocab_size, set(fixed))
        if len(fixed) + len(learned) < vocab_size:
            raise InputError(
                f"vocab_size {vocab_size} is more than the text supports; the largest possible "
                f"is {len(fixed) + len(learned)}"
            )
        pieces = [*fixed, *learned][:vocab_size]
        return cls(kind, "\n".join(pieces).encode())


def _words(texts):
    """Cuts string `[batch]` into words and marks, RaggedTensor string `[batch, (words)]`."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf_text.normalize_utf8(texts, "NFC")
    texts = tf.strings.regex_replace(texts, f"[ {_SPACE}]+", _SPACE)
    texts = tf.strings.regex_replace(texts, f"^{_SPACE}|{_SPACE}$", "")
    texts = tf.where(texts == "", "", _SPACE + texts)
    return tf_text.regex_split(texts, _WORD, _WORD)


def _alphabet(words, most):
    counts = collections.Counter()
    for word, count in words:
        for character in word:
            counts[character] += count
    # By frequency, then by code point; control characters would break the lines of the file.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {character for character, _ in ranked[:most] if unicodedata.category(character) != "Cc"}


def _learned(words, vocab_size, fixed):
    """The pieces of two characters and more, most frequent first: enough for `vocab_size`, or
    all there are."""
    params = learner.Params(
        upper_thresh=None,
        lower_thresh=None,
        num_iterations=4,
        max_input_tokens=-1,
        max_token_length=_LONGEST_PIECE,
        max_unique_chars=None,
        vocab_size=vocab_size,
        slack_ratio=0,
        include_joiner_token=True,
        joiner=_CONTINUATION,
        reserved_tokens=[],
    )
    # The lower the threshold, the more pieces: look for the highest that gives enough.
    low, high = 1, max(count for _, count in words)
    enough = few = None
    while low <= high:
        threshold = math.isqrt(low * high)  # vocabularies shrink about as 1 / threshold
        vocabulary = learner.learn_with_thresh(words, threshold, params)
        pieces = [piece for piece in vocabulary if piece not in fixed and piece != "##▁"]
        if len(fixed) + len(pieces) < vocab_size:
            few, high = pieces, threshold - 1
        else:
            enough, low = pieces, threshold + 1
            if len(fixed) + len(pieces) <= 1.05 * vocab_size:
                break
    return few if enough is None else enough
