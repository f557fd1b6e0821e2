"""How text becomes a sequence of ids that a model can take: cut, ended, padded."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.base_tokenizer import TokenOffsets, valid_utf8
from t2t_keras.errors import InputError

_CHARACTERS_PER_TOKEN = 64


class Sequences(NamedTuple):
    """Texts as a model takes them.

    Attributes:
        ids: int32 [batch, length], each row's tokens and the end token, then 0.
        truncated: bool [batch], whether a text had more than its row holds.
    """

    ids: tf.Tensor
    truncated: tf.Tensor


class Reader:
    """Turns texts and ids into sequences of at most `limit` tokens.

    What goes beyond the limit is cut off, and so is what goes beyond 64 times as many characters,
    before it is cut into tokens: no text, however long, costs more than that.

    Args:
        tokenizer: `Tokenizer`.
        limit: int, tokens of a sequence, its end counted.
    """

    def __init__(self, tokenizer, limit):
        self.tokenizer = tokenizer
        self.limit = limit

    def read(self, texts):
        """Returns the `Sequences` of texts, string [batch]."""
        texts, clipped = self._clip(texts)
        ids = self.tokenizer.encode(texts)
        return Sequences(self._end(ids), clipped | self._is_long(ids))

    def begin(self, texts):
        """Returns the ids of texts without the end token, RaggedTensor int32 [batch, (length)]."""
        return self.tokenizer.encode(self._clip(texts)[0])[:, : self.limit]

    def locate(self, texts):
        """Returns the ids that `read` gives texts, string [batch], and where each piece stands.

        Returns:
            `TokenOffsets` of dense int32 [batch, length]; 0, 0 for the end token and padding.
        """
        found = self.tokenizer.encode_with_offsets(self._clip(texts)[0])
        ids = self._end(found.ids)
        starts, ends = (
            places[:, : self.limit - 1].to_tensor(shape=tf.shape(ids, tf.int64))
            for places in (found.starts, found.ends)
        )
        return TokenOffsets(ids, starts, ends)

    def take(self, ids):
        """Returns the `Sequences` of ids, int32 [batch, length].

        Padding is dropped wherever it stands, and so is what follows the first end token; every row
        gets its end.
        """
        ended = tf.cumsum(tf.cast(ids == self.tokenizer.eos_id, tf.int32), axis=1) > 0
        ids = tf.ragged.boolean_mask(ids, ~ended & (ids != self.tokenizer.pad_id))
        return Sequences(self._end(ids), self._is_long(ids))

    def _clip(self, texts):
        """Returns texts without what is far beyond the limit, valid UTF-8, and who lost some."""
        most = _CHARACTERS_PER_TOKEN * self.limit
        texts = tf.strings.regex_replace(texts, r"\s+$", "")  # a line may bring its end
        kept = valid_utf8(tf.strings.substr(texts, 0, 4 * most))  # the bytes of `most` characters
        clipped = tf.strings.length(texts) > 4 * most
        clipped |= tf.strings.length(kept, unit="UTF8_CHAR") > most
        return tf.strings.substr(kept, 0, most, unit="UTF8_CHAR"), clipped

    def _is_long(self, ids):
        return ids.row_lengths() >= self.limit

    def _end(self, ids):
        ends = tf.fill([ids.nrows(), 1], self.tokenizer.eos_id)
        ids = tf.concat([ids[:, : self.limit - 1], ends], axis=1)
        # Not even a batch of nothing has sequences of length 0.
        return ids.to_tensor(shape=tf.maximum(ids.bounding_shape(), [0, 1]))


def tell_of_cuts(truncated):
    """Logs a warning where texts of a batch, bool [batch], were cut."""
    if count := np.count_nonzero(truncated):
        logging.warning(
            "%d of %d texts were longer than the model reads: what went beyond was left out",
            count,
            len(truncated),
        )


def require_one_vocabulary(model, tokenizer):
    """Raises InputError if a model's ids are not those of a tokenizer.

    A model of more ids could find some that no text belongs to, one of fewer could not read all.
    """
    config = getattr(model, "config", None)
    if config is not None and config.vocab_size != tokenizer.vocab_size:
        raise InputError(
            f"the model has {config.vocab_size} ids and the tokenizer {tokenizer.vocab_size}: make "
            "the model with vocab_size=tokenizer.vocab_size, or load the tokenizer it learned with."
        )


def as_tensor(texts, name="texts"):
    """Makes texts from Python a string tensor [batch]; what is no Unicode in a str becomes "?".

    Args:
        texts: list of str or bytes.
        name: what the caller calls them.

    Raises:
        InputError: if texts is a single string.
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} is the string {texts!r}: give a list of strings.")
    encoded = [t.encode("utf-8", "replace") if isinstance(t, str) else t for t in texts]
    return tf.constant(encoded, tf.string)


def as_str(text):
    """Makes one text that a graph returned a str, bytes that are not UTF-8 U+FFFD."""
    return text.decode("utf-8", "replace")
