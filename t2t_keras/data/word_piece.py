"""WordPiece vocabularies (paper section 5.1: 32,000 word pieces for English-French).

Words and punctuation marks are cut apart first, each with a ▁ before it where a space stood, so
that joining the pieces gives the text back; inside a word a continuation begins with ##.
"""

import collections
import math
import unicodedata
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

from t2t_keras.data.ids import UNKNOWN_ID
from t2t_keras.data.offsets import first_of_runs, located, valid_utf8
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
_NUL = "\ufdd0"  # no character: in words it stands for NUL
_LETTERS = r"\p{L}\p{M}\p{N}"
_SPACES = f"[ {_SPACE}]+"
_WORD = rf"(?:{_SPACES})?(?:[{_LETTERS}]+|[^{_LETTERS} {_SPACE}])"


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
        normal = tf_text.normalize_utf8(_readable(texts), "NFC")
        return self._pieces_of(_words(normal)).merge_dims(1, 2)

    def locate(self, texts):
        texts = _readable(texts)
        normal, *bounds = _normalized(texts)
        words = _words(normal)
        pieces = self._pieces_of(words)  # [batch, (words), (pieces)]
        ids, owner = pieces.values.values, pieces.values.value_rowids()  # [pieces], its word
        # Side by side the surfaces of a word's pieces are the word, a ▁ for all spaces before it.
        lengths = tf.strings.length(tf.gather(self._surfaces, ids))
        ends = tf.cumsum(lengths)
        ends -= tf.gather(tf.pad(ends, [[1, 0]]), tf.gather(pieces.values.row_starts(), owner))
        past_mark = tf.cast(ends - tf.gather(words.marks, owner), tf.int64)
        core = tf.gather(words.cores, owner)
        ends = core + tf.maximum(past_mark, 0)
        past_mark -= tf.cast(lengths, tf.int64)
        begins = tf.where(past_mark < 0, tf.gather(words.begins, owner), core + past_mark)
        ids = pieces.merge_dims(1, 2)
        rows = ids.value_rowids()
        begins, ends = (
            tf.gather(bound.values, tf.gather(bound.row_starts(), rows) + places)
            for bound, places in zip(bounds, (begins, ends), strict=True)
        )
        return located(texts, ids, begins, ends)

    def _pieces_of(self, words):
        """Returns the ids of `_Words`, RaggedTensor int32 [batch, (words), (pieces)]."""
        # Words recur: each is looked up once in a batch.
        unique, index = tf.unique(words.surfaces.values)
        return words.surfaces.with_values(tf.gather(self._spell(unique), index))

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
            normal = tf_text.normalize_utf8(_readable(batch), "NFC")
            counts.update(_words(normal).surfaces.values.numpy().tolist())
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


def _readable(texts):
    """Returns valid UTF-8 without NUL, at which the op that splits would stop."""
    return tf.strings.regex_replace(valid_utf8(texts), r"\x00", _NUL)


class _Words(NamedTuple):
    """The words and marks of texts.

    Attributes:
        surfaces: RaggedTensor string `[batch, (words)]`, with one ▁ for the spaces before a word;
            a text begins with a ▁ in any case.
        marks: int32 `[words]`, the bytes of that ▁: 3, or 0 where there is none.
        begins, cores: int64 `[words]`, the byte of the text where those spaces begin, and the word.
    """

    surfaces: tf.RaggedTensor
    marks: tf.Tensor
    begins: tf.Tensor
    cores: tf.Tensor


def _words(texts):
    """Cuts string `[batch]`, valid UTF-8 in NFC, into `_Words`."""
    texts = tf.strings.regex_replace(texts, f"{_SPACES}$", "")
    texts = tf.where(texts == "", "", " " + texts)
    words, begins, _ = tf_text.regex_split_with_offsets(texts, _WORD, _WORD)
    surfaces = tf.strings.regex_replace(words.values, f"^{_SPACES}", _SPACE)
    letters = tf.strings.regex_replace(words.values, f"^{_SPACES}", "")
    length = tf.strings.length(letters)
    begins = begins.values - 1  # the space put before each text
    return _Words(
        words.with_values(tf.strings.regex_replace(surfaces, _NUL, "\x00")),
        marks=tf.strings.length(surfaces) - length,
        begins=tf.maximum(begins, 0),
        cores=begins + tf.cast(tf.strings.length(words.values) - length, begins.dtype),
    )


def _normalized(texts):
    """Composes texts, string `[batch]`, and finds what made each byte of the result.

    Returns:
        The texts in NFC, and two RaggedTensors int64 `[batch + 1, (bytes + 1)]`: the bytes of
        `texts` where that which made each byte begins, and where what made all before it ends.
    """
    # One more text: the op that finds sources crashes if there is none.
    normal, changes = tf_text.normalize_utf8_with_offsets_map(tf.concat([texts, [""]], 0), "NFC")
    places = tf.ragged.range(tf.cast(tf.strings.length(normal), tf.int64) + 1)
    ends = tf_text.find_source_offsets(changes, places)
    # A byte within a change maps to the change's end, as does the first one after it.
    first = first_of_runs(ends.value_rowids()) | first_of_runs(ends.values)
    run = tf.cumsum(tf.cast(first, tf.int32)) - 1
    before = tf.maximum(tf.where(first)[:, 0] - 1, 0)  # of each run, the place before it
    last = tf.concat([first[1:], [True]], axis=0)
    begins = tf.where(last, ends.values, tf.gather(tf.gather(ends.values, before), run))
    return normal[:-1], ends.with_values(begins), ends


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
