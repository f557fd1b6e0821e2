"""Tokenizers of pretrained models: a splitter into pieces, and a vocabulary that numbers them.

The ids of such a model come from its own vocabulary file, not from SentencePiece, and source and
target often have different splitters and vocabularies. A `VocabularyTokenizer` is the source side,
and its `target` the other. `pack_vocabularies` makes its file.
"""

import base64
import json
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.base_tokenizer import (
    BOS_ID,
    EOS_ID,
    UNK_ID,
    Tokenizer,
    TokenOffsets,
    lookup_table,
    offsets_in_characters,
    valid_batch,
    valid_utf8,
)
from t2t_keras.data.ragged import prepend_to_texts
from t2t_keras.keras_compat import share_sentencepiece_resource

FIRST_PIECE = BOS_ID + 1
"""Ids below are padding, end, unknown and start; text never becomes one but the unknown token.

A source that is given as pieces, with spaces between, may contain the end token.
"""

MARIAN_CODE = r"(?s:\A>>.*?<<)"
"""`Side.codes` of models that take anything like `>>fra<<` at the start of a text as one token."""

_VERSION = 3
_VERSIONS = (1, 2, 3)  # version 1 has the field has_codes: whether the codes are `MARIAN_CODE`


class Side(NamedTuple):
    """The tokenization of one side's texts."""

    pieces: list  # the token of each id; the first four are padding, end, unknown, start
    # bytes of a SentencePiece model that splits texts into pieces; empty: texts are pieces with
    # spaces between
    sentencepiece: bytes = b""
    # a pattern (RE2) of language codes. A text may begin with such codes, with or without
    # white space between them; each is one piece. Empty: there are none
    codes: str = ""
    prefix: tuple = ()  # pieces in front of every source that has tokens
    adds_eos: bool = True  # whether the end of sequence follows a source
    # whether `decode` drops spaces before punctuation and English contractions, as
    # `clean_up_tokenization_spaces` in Hugging Face
    cleans_up_spaces: bool = False
    control_ids: tuple = ()  # `encode` never returns these ids, and `decode` leaves them out


def pack_vocabularies(source, target=None):
    """Returns the file of a `VocabularyTokenizer`, with one `Side` for both if target is None."""
    sides = {"source": source} if target is None else {"source": source, "target": target}
    packed = {"version": _VERSION}
    for name, side in sides.items():
        encoded = base64.b64encode(side.sentencepiece).decode("ascii")
        packed[name] = side._asdict() | {"sentencepiece": encoded}
    return json.dumps(packed, ensure_ascii=False, indent=0).encode("utf-8", "surrogatepass")


class VocabularyTokenizer(Tokenizer):
    """Splits texts into pieces and looks up their ids in a table, inside the graph.

    Args:
        model: bytes from `pack_vocabularies`.
        side: "source" or "target".

    Raises:
        ValueError: if the bytes are not such a file.
    """

    kinds = ("vocabulary",)
    model_file = "vocabulary.json"

    def __init__(self, kind, model, side="source", languages=None):
        packed = json.loads(model)
        if packed["version"] not in _VERSIONS:
            raise ValueError(f"version {packed['version']}, and this library reads {_VERSION}")
        fields = packed.get(side, packed["source"])
        if fields.pop("has_codes", False):
            fields["codes"] = MARIAN_CODE
        own = Side(**fields)
        super().__init__(kind, model, tf.constant(own.pieces), languages)
        self.adds_eos = own.adds_eos or side == "target"
        self._codes = own.codes
        self._is_control = None
        if own.control_ids:
            self._is_control = np.zeros(len(own.pieces), bool)
            self._is_control[own.control_ids] = True
        self._cleans_up_spaces = own.cleans_up_spaces
        special, control_ids = own.pieces[EOS_ID:BOS_ID], set(own.control_ids)
        known = {}
        for number, piece in enumerate(own.pieces[FIRST_PIECE:], FIRST_PIECE):
            if piece not in special and number not in control_ids:
                known.setdefault(piece, number)  # CTranslate2 has files with a token twice
        if side == "source" and not own.sentencepiece:
            known[own.pieces[EOS_ID]] = EOS_ID
        self._table = lookup_table([*known], tf.constant([*known.values()], tf.int32), UNK_ID)
        ids = {piece: index for index, piece in reversed(list(enumerate(own.pieces)))}
        self._prefix_ids = [ids[piece] for piece in own.prefix] if side == "source" else []
        self._sentencepiece = None
        if sentencepiece := base64.b64decode(own.sentencepiece, validate=True):
            self._sentencepiece = tf_text.SentencepieceTokenizer(sentencepiece, tf.string)
            share_sentencepiece_resource(self._sentencepiece, sentencepiece)
        is_both = "target" not in packed and own.sentencepiece and own.adds_eos and not own.prefix
        self._target = None
        if side == "source" and not is_both:
            self._target = VocabularyTokenizer(kind, model, "target", languages)

    @property
    def target(self):
        return self._target or self

    def encode(self, texts):
        pieces, _, _ = self._split(valid_batch(texts))
        return prepend_to_texts(
            self._prefix_ids, pieces.with_values(self._table.lookup(pieces.values))
        )

    def encode_with_offsets(self, texts):
        texts = valid_batch(texts)
        pieces, starts, ends = self._split(texts)
        ids = pieces.with_values(self._table.lookup(pieces.values))
        tokens = offsets_in_characters(texts, ids, starts.values, ends.values)
        none = [0] * len(self._prefix_ids)
        return TokenOffsets(*map(prepend_to_texts, (self._prefix_ids, none, none), tokens))

    def _split(self, texts):
        """Splits valid texts into pieces, string `[batch, (pieces)]`.

        Also returns the bytes of the text at which each begins and ends, int64.
        """
        if not self._codes:
            return self._split_plain(texts)
        rest = tf.strings.regex_replace(texts, rf"^(\s*({self._codes}))+", "", replace_global=False)
        code_bytes = tf.strings.length(texts) - tf.strings.length(rest)  # [batch]
        codes = _split_by_pattern(
            tf.strings.substr(texts, tf.zeros_like(code_bytes), code_bytes),
            rf"{self._codes}|\s+",
            self._codes,
        )
        pieces, starts, ends = self._split_plain(rest)
        shift = tf.gather(tf.cast(code_bytes, tf.int64), pieces.value_rowids())
        parts = pieces, *(offsets.with_values(offsets.values + shift) for offsets in (starts, ends))
        return tuple(tf.concat(both, axis=1) for both in zip(codes, parts, strict=True))

    def _split_plain(self, texts):
        if self._sentencepiece is None:
            return _split_by_pattern(texts, r"\s+")
        return _with_int64(*self._sentencepiece.tokenize_with_offsets(texts))

    def _join(self, ids):
        if self._sentencepiece is None:
            return tf.strings.reduce_join(self.pieces(ids), axis=1, separator=" ")
        if self._is_control is not None:
            ids = tf.ragged.boolean_mask(ids, ~tf.gather(self._is_control, ids))
        known = tf.ragged.boolean_mask(ids, ids != UNK_ID)
        texts = self._sentencepiece.detokenize(self.pieces(known))
        texts = tf.strings.regex_replace(texts, "▁", " ")
        texts = valid_utf8(tf.strings.strip(texts))
        return _without_spaces(texts) if self._cleans_up_spaces else texts


def _split_by_pattern(texts, separators, kept=""):
    """Splits texts at separators; separators that match `kept` are pieces. Both: RE2 patterns."""
    return _with_int64(*tf_text.regex_split_with_offsets(texts, separators, kept))


def _with_int64(pieces, starts, ends):
    return pieces, *(
        offsets.with_values(tf.cast(offsets.values, tf.int64)) for offsets in (starts, ends)
    )


def _without_spaces(texts):
    """Returns texts without the spaces that Hugging Face's `clean_up_tokenization` drops."""
    for pattern, rewrite in (
        (r" ([.?!,])", r"\1"),
        (" ' ", "'"),
        (" (n't|'m|'s|'ve|'re)", r"\1"),
    ):
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return texts
