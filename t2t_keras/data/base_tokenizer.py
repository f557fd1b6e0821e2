"""Base of all tokenizers: the special ids, the interface, and offsets of tokens in their text.

Start with `Tokenizer`. `sentence_piece.py`, `word_piece.py` and `tree_tokenizer.py` implement it;
`tokenizers.py` trains and loads them.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.files import local_path, read_json, write_file, write_json
from t2t_keras.data.ragged import rows_of
from t2t_keras.data.texts import as_batch, as_ids
from t2t_keras.errors import InputError
from t2t_keras.ops import PAD_ID
from t2t_keras.types import Array, Encoder, Ids, StrPath, Texts

EOS_ID = 1
"""End of sequence: the last id of every source and every target."""
UNK_ID = 2
"""Unknown token; unused with byte fallback, kept for foreign models."""
BOS_ID = 3
"""Beginning of sequence: the decoder's first input."""
SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]
"""The tokens of these ids, 0 to 3."""
FIRST_WORD = len(SPECIAL) + 256
"""Smaller ids are special tokens and bytes, which form no words."""

DESCRIPTION_FILE = "tokenizer.json"
"""Written last by `Tokenizer.save`: a folder that holds it holds a whole tokenizer."""


# Unicode's White_Space and Default_Ignorable_Code_Point, and control characters.
_INVISIBLE = (
    r"[\p{Z}\p{Cc}\x{AD}\x{34F}\x{61C}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}"
    r"\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}"
    r"\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]*"
)

_MAX_PREFIX_TOKENS = 2**20
"""Tokens of all prefixes that `Tokenizer.decode_with_offsets` joins together."""


class TokenOffsets(NamedTuple):
    """Tokens and the part of its text that each one covers, int32 `[batch, (length)]` each.

    Offsets count characters (Unicode code points): `text[start:end]` is the part in Python. Invalid
    bytes count as `bytes.decode("utf-8", "replace")` replaces them. A part is never empty. A token
    of spaces covers them, any other token leaves out the spaces before it. Each token that holds
    some bytes of a character covers the whole character.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Tokenizer(tf.Module):
    """Text to ids and back, as TensorFlow operations that travel with a SavedModel.

    `decode(encode(x))` is x in Unicode's canonical composition (NFC), with each run of spaces
    replaced by one and spaces at both ends dropped.

    A subclass sets `kinds` (its values of `kind`) and `model_file`, passes its tokens to this
    constructor, and defines `train`, `encode`, `encode_with_offsets` and `_join`.

    Attributes:
        adds_eos: whether the end of sequence follows a source.
        placeholder_ids: range, the ids of the placeholders.

    Args:
        kind: such as `bpe`.
        model: the content of `model_file`, from which the subclass was built.
        pieces: string `[vocab_size]`, the text of each id.
        languages: `LanguageTemplate` of a model of many languages; None for a bilingual model. No
            text is encoded as a language token, and `decode` leaves these tokens out. Their ids
            belong to pieces, or follow the last piece and get pieces such as `<2de>`.
        placeholders: number of tokens such as `<ph1>` after all others. No text is encoded as one
            of them either, and `decode` leaves them out; see `placeholders.py`.
    """

    kinds = ()
    model_file = ""
    adds_eos = True
    pad_id, eos_id, unk_id, bos_id = PAD_ID, EOS_ID, UNK_ID, BOS_ID

    def __init__(
        self,
        kind: str,
        model: bytes,
        pieces: tf.Tensor,
        languages: Any = None,
        placeholders: int = 0,
    ):
        super().__init__(name="tokenizer")
        self.kind = kind
        self.languages = languages
        if languages is not None:
            pieces = _with_languages(pieces, languages)
        known = int(pieces.shape[0])
        if placeholders:
            added = [f"<ph{number}>" for number in range(1, placeholders + 1)]
            pieces = tf.concat([pieces, tf.constant(added)], axis=0)
        self.placeholder_ids = range(known, known + placeholders)
        self.vocab_size = known + placeholders
        self.model_bytes = model
        self._pieces = pieces

    @property
    def target(self) -> "Tokenizer":
        """The `Tokenizer` of the targets; this one, unless they have their own vocabulary."""
        return self

    def encode(self, texts: Texts) -> tf.RaggedTensor:
        """Splits texts into tokens, without begin or end of sequence.

        Args:
            texts: string `[batch]`, UTF-8, a tensor or a list; invalid bytes count as U+FFFD.

        Returns:
            int32 `[batch, (length)]`.

        Raises:
            InputError: if texts is a single string, a table, …: anything but a sequence of strings.
        """
        raise NotImplementedError

    def encode_with_offsets(self, texts: Texts) -> TokenOffsets:
        """Returns the ids of `encode` and the part of the text that each token covers."""
        raise NotImplementedError

    def decode(self, ids: Ids) -> tf.Tensor:
        """Joins tokens to text, string `[batch]`, always valid UTF-8.

        Args:
            ids: integers `[batch, length]`, dense or ragged, or a list of lists of int. Left
                out are padding, beginning-of-sequence tokens, tokens of languages, placeholders,
                and everything from the first end-of-sequence token on.

        Raises:
            InputError: if ids are not such a batch, or an id is out of range.
        """
        ids = self._dense(ids)
        return self._join(tf.ragged.boolean_mask(ids, self._is_text(ids)))

    def _dense(self, ids):
        ids = as_ids(ids, self.vocab_size)
        return ids.to_tensor() if isinstance(ids, tf.RaggedTensor) else ids

    def decode_with_offsets(self, ids: Ids) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Joins tokens to text, as `decode` does, and returns the offsets of each token in it.

        Returns:
            string `[batch]`, and the begin and the end of each token's part in characters, int32
            `[batch, length]`. Parts are those of `TokenOffsets`. Padding, the begin, languages, the
            end and everything after it have 0, 0; a token that adds nothing to the text gets the
            last character before it.
        """
        ids = self._dense(ids)
        texts, ends = self.decode(ids), self._ends_in_text(ids)
        starts = tf.pad(ends[:, :-1], [[0, 0], [1, 0]])
        starts = tf.maximum(tf.minimum(starts, ends - 1), 0)
        parts = tf.broadcast_to(texts[:, tf.newaxis], tf.shape(ids))
        parts = tf.strings.substr(parts, starts, ends - starts, unit="UTF8_CHAR")
        printed = tf.strings.length(tf.strings.regex_replace(parts, "^ +", ""), unit="UTF8_CHAR")
        starts = tf.where(printed > 0, ends - printed, starts)
        has_text = tf.cast(self._is_text(ids), tf.int32)
        return texts, starts * has_text, ends * has_text

    def _ends_in_text(self, ids):
        """Returns where each token ends in the joined text, in characters, int32 [batch, length].

        A token ends where the text of all tokens up to it ends. A text that ends within the bytes
        of a character may be longer than the text with all its bytes, so the minimum over the
        following tokens counts.
        """
        batch, length = tf.unstack(tf.shape(ids))
        step = tf.maximum(_MAX_PREFIX_TOKENS // tf.maximum(length * length, 1), 1)
        is_before = tf.sequence_mask(tf.range(length), length)  # [length, length]: column < row
        is_prefix = tf.sequence_mask(tf.range(length) + 1, length)

        def ends_of_rows(start, all_ends):
            rows = ids[start : start + step, tf.newaxis]  # [rows, 1, length]
            prefixes = tf.where(is_prefix, rows, PAD_ID)  # [rows, length, length]
            count = tf.shape(rows)[0]
            texts = self.decode(tf.reshape(prefixes, [count * length, length]))
            lengths = tf.strings.length(texts, unit="UTF8_CHAR")
            lengths = tf.reshape(lengths, [count, 1, length])
            ends = tf.reduce_min(tf.where(is_before, tf.int32.max, lengths), axis=2)
            return start + step, tf.concat([all_ends, ends], axis=0)

        return tf.while_loop(
            lambda start, _: start < batch,
            ends_of_rows,
            (tf.constant(0), tf.zeros([0, length], tf.int32)),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None])),
            parallel_iterations=1,
        )[1]

    def pieces(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        """Returns the text of each id, int32 of any shape, dense or ragged; "" for padding."""
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.pieces(ids.flat_values))
        return tf.where(ids == PAD_ID, "", tf.gather(self._pieces, ids))

    def fingerprint(self) -> str:
        """Returns a str: if it is equal, all texts are encoded equally."""
        reserved = "" if self.languages is None else f"{self.languages}\n"
        reserved += f"{self.placeholder_ids}\n" if self.placeholder_ids else ""
        content = f"{reserved}{self.kind}\n".encode() + self.model_bytes
        return hashlib.sha256(content).hexdigest()

    def save(self, directory: StrPath) -> None:
        """Writes a folder for `load_tokenizer`; raises InputError for another program's."""
        directory = local_path(directory)
        _require_own(os.path.join(directory, DESCRIPTION_FILE))
        write_file(os.path.join(directory, self.model_file), self.model_bytes)
        description = {
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "sha256": hashlib.sha256(self.model_bytes).hexdigest(),
        }
        reserved = self._reserved()
        if "languages" in reserved:
            reserved["languages"] = dataclasses.asdict(self.languages)
        write_json(os.path.join(directory, DESCRIPTION_FILE), description | reserved)

    def __reduce__(self):  # for pickle: tables are made anew
        return functools.partial(type(self), **self._reserved()), (self.kind, self.model_bytes)

    def _reserved(self):
        """Returns the arguments of the constructor for languages and placeholders, if any."""
        reserved = {"languages": self.languages, "placeholders": len(self.placeholder_ids)}
        return {name: value for name, value in reserved.items() if value}

    def _is_text(self, ids):
        """Returns which ids, int32 `[batch, length]`, are before the end and not special."""
        before_end = tf.cumsum(tf.cast(ids == EOS_ID, tf.int32), axis=1) == 0
        is_text = before_end & (ids != PAD_ID) & (ids != BOS_ID)
        if self.placeholder_ids:
            is_text &= (ids < self.placeholder_ids.start) | (ids >= self.placeholder_ids.stop)
        return is_text if self.languages is None else is_text & ~self.languages.is_language(ids)

    def _join(self, ids):
        """Joins ids without special ones, RaggedTensor `[batch, (length)]`, to string `[batch]`."""
        raise NotImplementedError


def _require_own(path):
    """Raises InputError if there is a description of a tokenizer that `save` did not write."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        if "kind" in read_json(path):
            return
    if os.path.exists(path):
        raise InputError(f"{path} is another program's, or damaged: give another folder.")


def _with_languages(pieces, languages):
    """Returns pieces, string `[ids]`, followed by pieces for language tokens with higher ids."""
    known = int(pieces.shape[0])
    added = sorted((index, code) for code, index in languages.ids.items() if index >= known)
    if [index for index, _ in added] != list(range(known, known + len(added))):
        raise ValueError(
            f"the languages' ids {languages.ids} do not follow the other {known} ids: number them "
            f"from {known} without gaps."
        )
    return tf.concat([pieces, tf.constant([f"<2{code}>" for _, code in added], tf.string)], axis=0)


def require_tokenizer(tokenizer: object) -> None:
    """Raises InputError if `tokenizer` is another object: the model, another library's."""
    if not (hasattr(tokenizer, "encode") and hasattr(tokenizer, "eos_id")):
        raise InputError(
            f"The tokenizer is a {type(tokenizer).__name__}: give one of t2t_keras, as "
            "train_tokenizer and load_tokenizer return it; a predictor takes it after the model."
        )


def encode_with_eos(texts: Array | list[bytes], tokenizer: Encoder) -> tf.RaggedTensor:
    """Returns the ids of texts, string `[batch]`, each with the end id: int32 `[batch, (length)]`.

    Line breaks at their ends are dropped. A blank text has only the end id; see `is_blank`. The
    tokenizer may be another object with `encode` and `eos_id`. If its `adds_eos` is False, no end
    id is added.

    Raises:
        InputError: if `tokenizer` has not both.
    """
    require_tokenizer(tokenizer)
    texts = tf.strings.regex_replace(texts, r"[\r\n]+$", "")
    ids = tokenizer.encode(blank_to_empty(texts))
    if not getattr(tokenizer, "adds_eos", True):
        return ids
    ends = tf.fill([ids.nrows(), 1], tokenizer.eos_id)
    return tf.concat([ids, tf.cast(ends, tf.int32)], axis=1)


def lookup_table(keys, values, default):
    """Returns a table of strings that a graph looks up."""
    keys = tf.constant(keys, tf.string)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)


def valid_batch(texts):
    """Returns texts as a string tensor [batch] of valid UTF-8; arguments as for `as_batch`."""
    return valid_utf8(as_batch(texts))


def valid_utf8(texts):
    """Returns texts, string of any shape, with U+FFFD for invalid bytes."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def is_blank(texts: Array) -> tf.Tensor:
    """Returns whether each text, string of any shape, is blank: bool of the same shape.

    A blank text is empty or consists of white space, control characters and Unicode's
    ignorable characters: no-break and ideographic spaces, zero-width spaces, byte order marks, NUL.
    """
    return tf.strings.regex_full_match(texts, _INVISIBLE)


def blank_to_empty(texts):
    """Returns texts, string of any shape, with an empty string for each blank one."""
    return tf.where(is_blank(texts), "", texts)


def offsets_in_characters(texts, ids, starts, ends):
    """Converts offsets of tokens from bytes to characters.

    Args:
        texts: string `[batch]`, valid UTF-8.
        ids: int32 `[batch, (length)]`.
        starts, ends: integers `[tokens]`, byte offsets of each token within its own text, in
            ascending order. They may lie within a character. Spaces before a token belong to it.
            A token without bytes shares the next token's span.

    Returns:
        `TokenOffsets`.
    """
    rows = rows_of(ids)
    text_starts = tf.gather(tf.cumsum(tf.strings.length(texts), exclusive=True), rows)
    bytes_ = _bytes(texts)
    starts = tf.cast(starts, tf.int32) + text_starts
    ends = _last_end_of_run(tf.cast(ends, tf.int32) + text_starts, rows, starts)

    printed = bytes_ != ord(" ")
    printed_places = tf.cast(tf.where(printed)[:, 0], tf.int32)
    next_printed = tf.gather(printed_places, tf.gather(_count_before(printed), starts))
    starts = tf.where(next_printed < ends, next_printed, starts)

    first_bytes = tf.bitwise.bitwise_and(bytes_, 0xC0) != 0x80  # of a character
    characters = _count_before(first_bytes)
    inside = 1 - tf.cast(tf.gather(first_bytes, starts), tf.int32)
    starts, ends, text_starts = (
        tf.gather(characters, offsets) for offsets in (starts, ends, text_starts)
    )
    return TokenOffsets(
        ids, ids.with_values(starts - inside - text_starts), ids.with_values(ends - text_starts)
    )


def normalize_with_offsets(texts):
    """Normalizes texts, string `[batch]`, valid UTF-8, to NFC.

    Returns:
        The normalized texts and a function that returns the offsets of tokens in the texts
        themselves, as `offsets_in_characters`, of their offsets in the normalized texts.
    """
    # One more text: the op that finds source offsets crashes without any.
    texts = tf.concat([texts, [""]], axis=0)
    normalized, changes = tf_text.normalize_utf8_with_offsets_map(texts, "NFC")
    places = tf.ragged.range(tf.cast(tf.strings.length(normalized), tf.int64) + 1)
    source = tf_text.find_source_offsets(changes, places)
    rows, source = rows_of(places), source.values
    # A byte within a change maps to the change's end, as does the first one after it: a run. The
    # change begins at the byte before the run.
    first = _run_starts(rows) | _run_starts(source)
    last = tf.concat([first[1:], [True]], axis=0)
    run = tf.cumsum(tf.cast(first, tf.int32)) - 1
    begin = tf.gather(tf.maximum(tf.where(first)[:, 0] - 1, 0), run)
    index = tf.range(tf.size(source, tf.int64))
    same = tf.gather(source, begin) + index - begin  # the source offset in an unchanged text
    # A change may begin with bytes that stay: they do not belong to it.
    lengths = tf.cast(tf.strings.length(texts), tf.int64)
    before = same - 1 + tf.gather(tf.cumsum(lengths, exclusive=True), rows)
    differs = tf.gather(_bytes(texts), tf.clip_by_value(before, 0, tf.reduce_sum(lengths)))
    differs = differs != tf.gather(_bytes(normalized), tf.maximum(index - rows - 1, 0))
    differs = tf.cumsum(tf.cast(differs | (same > source), tf.int32))
    stays = differs == tf.gather(differs, begin)
    begins = tf.gather(tf.math.segment_max(tf.where(stays, same, 0), run), run)
    begins = tf.maximum(begins, tf.gather(source, begin))
    starts = tf.where(last, source, tf.minimum(same, begins))
    ends = tf.where(last | ~stays, source, same)
    row_starts = places.row_starts()

    def locate(ids, token_starts, token_ends):
        first = tf.gather(row_starts, rows_of(ids))
        in_bytes = (
            tf.gather(offsets, first + tf.cast(places, tf.int64))
            for offsets, places in ((starts, token_starts), (ends, token_ends))
        )
        return offsets_in_characters(texts[:-1], ids, *in_bytes)

    return normalized[:-1], locate


def _bytes(texts):
    """Returns the bytes of texts joined, and one more so that each text is followed by one."""
    return tf.io.decode_raw(tf.strings.reduce_join(texts) + ".", tf.uint8)


def _run_starts(values):
    """Returns whether each value `[n]` differs from the one before it, bool `[n]`."""
    return tf.concat([tf.ones_like(values[:1], tf.bool), values[1:] != values[:-1]], axis=0)


def _count_before(flags):
    """Returns how many flags are set before each one, int32 `[n]`."""
    return tf.cumsum(tf.cast(flags, tf.int32), exclusive=True)


def _last_end_of_run(ends, rows, starts):
    """Returns for each token the greatest end among its neighbors with the same start."""
    runs = _run_starts(rows) | _run_starts(starts)
    runs = tf.cumsum(tf.cast(runs, tf.int32)) - 1
    return tf.gather(tf.math.segment_max(ends, runs), runs)
