"""Tokenizers of pretrained models: a splitter into pieces, and a vocabulary that numbers them.

Such a model numbers its tokens by a vocabulary file of its own, not by the ids of SentencePiece,
and often has two of everything: a splitter and a vocabulary for the source, and others for the
target. `VocabularyTokenizer` is one side of it, and its `target` the other.

Start with `pack_vocabularies`, which makes its file, and `VocabularyTokenizer.encode`.
"""

import base64
import json
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.base_tokenizer import (
    BOS_ID,
    EOS_ID,
    UNK_ID,
    Tokenizer,
    TokenOffsets,
    offsets_in_characters,
    valid_utf8,
)
from t2t_keras.errors import InputError
from t2t_keras.keras_compat import share_sentencepiece_resource

FIRST_PIECE = BOS_ID + 1
"""Ids below are padding, end, unknown and begin; text never becomes one but the unknown token.

Where a source is pieces with spaces between, the end is one of them.
"""

_CODE = r"(?s)^>>.*?<<"  # a language code, `>>fra<<`, at the beginning of a text
_VERSION = 1


class Side(NamedTuple):
    """How the texts of one side are tokenized.

    Attributes:
        pieces: list of str, the token of each id; the first four are padding, end, unknown, begin.
        sentencepiece: bytes of a SentencePiece model that splits texts into pieces; empty: texts
            are pieces with spaces between.
        has_codes: bool, whether a text may begin with a language code, `>>fra<<`, which is a piece.
        prefix: list of str, pieces in front of every source that has tokens.
        adds_eos: bool, whether the end of sequence follows a source.
    """

    pieces: list
    sentencepiece: bytes = b""
    has_codes: bool = False
    prefix: tuple = ()
    adds_eos: bool = True


def pack_vocabularies(source, target=None):
    """Returns the file of a `VocabularyTokenizer`, bytes.

    Args:
        source: `Side` of the source.
        target: `Side` of the target; None: that of the source.

    Raises:
        InputError: if a vocabulary names a piece twice.
    """
    sides = {"source": source} if target is None else {"source": source, "target": target}
    packed = {"version": _VERSION}
    for name, side in sides.items():
        known = side.pieces[FIRST_PIECE:]
        if len(set(known)) < len(known):
            twice = next(piece for piece in known if known.count(piece) > 1)
            raise InputError(f"the {name} vocabulary has the piece {twice!r} twice.")
        encoded = base64.b64encode(side.sentencepiece).decode("ascii")
        packed[name] = side._asdict() | {"sentencepiece": encoded}
    return json.dumps(packed, ensure_ascii=False, indent=0).encode("utf-8", "surrogatepass")


class VocabularyTokenizer(Tokenizer):
    """Pieces of a text, and a table from pieces to ids, inside the graph.

    Args:
        kind: `vocabulary`.
        model: bytes from `pack_vocabularies`.
        side: "source" or "target".

    Attributes:
        target: `VocabularyTokenizer` of the targets.
        adds_eos: bool, whether the end of sequence follows a source.

    Raises:
        ValueError: if the bytes are not such a file.
    """

    kinds = ("vocabulary",)
    model_file = "vocabulary.json"

    def __init__(self, kind, model, side="source"):
        packed = json.loads(model)
        if packed["version"] != _VERSION:
            raise ValueError(f"version {packed['version']}, and this library reads {_VERSION}")
        own = Side(**packed.get(side, packed["source"]))
        super().__init__(kind, model, tf.constant(own.pieces))
        self.adds_eos = own.adds_eos or side == "target"
        self._has_codes = own.has_codes
        known = [*range(FIRST_PIECE, len(own.pieces))]
        if side == "source" and not own.sentencepiece:
            known.append(EOS_ID)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([own.pieces[i] for i in known], tf.string), tf.constant(known)
            ),
            default_value=UNK_ID,
        )
        ids = {piece: index for index, piece in reversed(list(enumerate(own.pieces)))}
        self._prefix_ids = [ids[piece] for piece in own.prefix] if side == "source" else []
        self._sentencepiece = None
        if sentencepiece := base64.b64decode(own.sentencepiece, validate=True):
            self._sentencepiece = tf_text.SentencepieceTokenizer(sentencepiece, tf.string)
            share_sentencepiece_resource(self._sentencepiece, sentencepiece)
        self._target = VocabularyTokenizer(kind, model, "target") if side == "source" else None

    @property
    def target(self):
        return self._target or self

    def encode(self, texts):
        pieces, _, _ = self._split(valid_utf8(texts))
        return self._with_prefix(pieces.with_values(self._table.lookup(pieces.values)))

    def encode_with_offsets(self, texts):
        texts = valid_utf8(texts)
        pieces, starts, ends = self._split(texts)
        ids = pieces.with_values(self._table.lookup(pieces.values))
        found = offsets_in_characters(texts, ids, starts.values, ends.values)
        return TokenOffsets(
            self._with_prefix(ids),
            self._with_prefix(found.starts, 0),
            self._with_prefix(found.ends, 0),
        )

    def _split(self, texts):
        """Splits valid texts.

        Returns:
            RaggedTensors `[batch, (pieces)]`: the pieces, string, and the bytes of the text at
            which each begins and ends, int64.
        """
        if not self._has_codes:
            return self._split_plain(texts)
        rest = tf.strings.regex_replace(texts, _CODE, "", replace_global=False)
        code_bytes = tf.strings.length(texts) - tf.strings.length(rest)  # [batch]
        has_code = code_bytes > 0
        codes = tf.strings.substr(texts, tf.zeros_like(code_bytes), code_bytes)
        row_lengths = tf.cast(has_code, tf.int64)
        code_bytes = tf.cast(code_bytes, tf.int64)

        def ragged(values):  # [batch] → [batch, (0 or 1)]
            return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(values, has_code), row_lengths)

        pieces, starts, ends = self._split_plain(rest)
        shift = tf.gather(code_bytes, pieces.value_rowids())
        return (
            tf.concat([ragged(codes), pieces], axis=1),
            tf.concat(
                [ragged(tf.zeros_like(code_bytes)), starts.with_values(starts.values + shift)], 1
            ),
            tf.concat([ragged(code_bytes), ends.with_values(ends.values + shift)], axis=1),
        )

    def _split_plain(self, texts):
        if self._sentencepiece is None:
            found = tf_text.regex_split_with_offsets(texts, r"\s+")
        else:
            found = self._sentencepiece.tokenize_with_offsets(texts)
        pieces, starts, ends = found
        return pieces, *(
            offsets.with_values(tf.cast(offsets.values, tf.int64)) for offsets in (starts, ends)
        )

    def _with_prefix(self, values, prefix=None):
        """Returns RaggedTensor int32 `[batch, (length)]` with the prefix where a row has tokens."""
        if not self._prefix_ids:
            return values
        filling = self._prefix_ids if prefix is None else [prefix] * len(self._prefix_ids)
        has_tokens = values.row_lengths() > 0
        count = tf.math.count_nonzero(has_tokens)
        front = tf.RaggedTensor.from_row_lengths(
            tf.tile(tf.constant(filling, tf.int32), [tf.cast(count, tf.int32)]),
            tf.cast(has_tokens, tf.int64) * len(filling),
        )
        return tf.concat([front, values], axis=1)

    def _join(self, ids):
        if self._sentencepiece is None:
            return tf.strings.reduce_join(self.pieces(ids), axis=1, separator=" ")
        known = tf.ragged.boolean_mask(ids, ids != UNK_ID)
        texts = self._sentencepiece.detokenize(self.pieces(known))
        texts = tf.strings.regex_replace(texts, "▁", " ")
        return valid_utf8(tf.strings.strip(texts))
