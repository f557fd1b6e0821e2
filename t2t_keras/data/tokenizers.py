"""Text to ids and back, inside the graph (paper section 5.1).

A tokenizer is a `tf.Module` whose tables travel with the SavedModel that uses it. The two
families, `SentencePieceTokenizer` and `WordPieceTokenizer`, keep the same promise:
`decode(encode(x))` is x in Unicode's canonical composition (NFC), with runs of spaces made one
and spaces at the ends dropped. What the learned pieces do not cover is spelled in bytes.
"""

import json
import os
import random
import unicodedata

import tensorflow as tf

from t2t_keras.data.files import write_file
from t2t_keras.data.ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from t2t_keras.errors import InputError

SAMPLE_LINES = 4_000_000
"""A vocabulary is learned from at most so many lines, drawn evenly from all."""

_DESCRIPTION = "tokenizer.json"


class Tokenizer(tf.Module):
    """What the tokenizers have in common.

    A subclass sets `kinds` (the names it answers to) and `model_file`, hands its pieces to this
    constructor and defines `encode`, `locate` and `_join`.

    Args:
        kind: `bpe`, `unigram` or `wordpiece`.
        model: bytes, what `save` writes and the subclass was built from.
        pieces: string `[vocab_size]`, each id's piece as it may be shown.
    """

    kinds = ()
    model_file = ""
    pad_id, end_id, unknown_id, start_id = PAD_ID, END_ID, UNKNOWN_ID, START_ID

    def __init__(self, kind, model, pieces):
        super().__init__(name="tokenizer")
        self.kind = kind
        self.vocab_size = int(pieces.shape[0])
        self.model_bytes = model
        self._pieces = pieces

    def encode(self, texts):
        """Cuts texts into ids, without start or end.

        Args:
            texts: string `[batch]`, UTF-8; bad bytes count as U+FFFD.

        Returns:
            RaggedTensor int32 `[batch, (length)]`.
        """
        raise NotImplementedError

    def locate(self, texts):
        """Cuts texts into the ids of `encode`, and tells which part of its text each stands for.

        Args:
            texts: string `[batch]`, UTF-8; bad bytes count as U+FFFD.

        Returns:
            `Located`, RaggedTensors int32 `[batch, (length)]`.

        Example:

        >>> tokenizer.locate(["Cafe\u0301 au lait"]).begins
        """
        raise NotImplementedError

    def decode(self, ids):
        """Joins ids to text.

        Args:
            ids: int32 `[batch, length]`, dense or ragged. Padding and start are passed over,
                and everything from the first end on.

        Returns:
            string `[batch]`, always valid UTF-8.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor()
        open_ = tf.cumsum(tf.cast(ids == END_ID, tf.int32), axis=1) == 0
        spoken = open_ & (ids != PAD_ID) & (ids != START_ID)
        return self._join(tf.ragged.boolean_mask(ids, spoken))

    def pieces(self, ids):
        """Shows the piece behind each id, an empty string for padding.

        Args:
            ids: int32 of any shape, dense or ragged.

        Returns:
            string of the same shape.
        """
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.pieces(ids.flat_values))
        return tf.where(ids == PAD_ID, "", tf.gather(self._pieces, ids))

    def save(self, directory):
        """Writes the tokenizer's two files, from which `load_tokenizer` makes it anew.

        Args:
            directory: a folder, made if missing.
        """
        write_file(os.path.join(directory, self.model_file), self.model_bytes)
        description = {"kind": self.kind, "vocab_size": self.vocab_size}
        write_file(
            os.path.join(directory, _DESCRIPTION), json.dumps(description, indent=2).encode()
        )


def learn_tokenizer(kind, lines, vocab_size):
    """Learns a vocabulary from text.

    The paper uses a shared byte-pair vocabulary of about 37,000 for English-German and 32,000
    word pieces for English-French (section 5.1): give the lines of both languages.

    Args:
        kind: `bpe`, `unigram` or `wordpiece`.
        lines: iterable of str or bytes, read once; lines that are not UTF-8 are passed over.
        vocab_size: how many ids, the four of `ids.py` and 256 for bytes among them.

    Returns:
        A `Tokenizer` with exactly `vocab_size` ids; the same lines give the same one.

    Raises:
        InputError: for an unknown kind, lines without text, or a vocabulary larger or smaller
            than the text supports, naming the limit.

    Example:

    >>> tokenizer = learn_tokenizer("bpe", open("train.txt"), 8000)
    >>> tokenizer.decode(tokenizer.encode(["Hello world."]))
    """
    if isinstance(lines, str | bytes):
        raise InputError(f"lines is the string {lines[:50]!r}: give an iterable of lines.")
    family = _family(kind)
    sample = _sample(_readable(lines), SAMPLE_LINES)
    if not any(line.strip() for line in sample):
        raise InputError("there is no text to learn a vocabulary from; give a corpus with text")
    return family.learn(kind, sample, vocab_size)


def holds_tokenizer(directory):
    """Says whether a folder has all that `Tokenizer.save` writes; it may have been cut off."""
    return os.path.exists(os.path.join(directory, _DESCRIPTION))


def load_tokenizer(directory):
    """Reads the tokenizer that `save` wrote.

    Args:
        directory: the folder given to `save`.

    Returns:
        A `Tokenizer`.

    Raises:
        InputError: if the folder holds no tokenizer, or its files are damaged.
    """
    try:
        with open(os.path.join(directory, _DESCRIPTION), "rb") as file:
            kind = json.load(file)["kind"]
        family = _family(kind)
        with open(os.path.join(directory, family.model_file), "rb") as file:
            return family(kind, file.read())
    except FileNotFoundError as error:
        raise InputError(
            f"{directory} holds no tokenizer ({os.path.basename(error.filename)} is missing); "
            "learn one there first"
        ) from error
    except (ValueError, KeyError, TypeError, tf.errors.InternalError) as error:
        raise InputError(
            f"the tokenizer in {directory} is damaged ({error}): copy it anew, or learn one in "
            "another folder."
        ) from error


def _family(kind):
    # Imported here because the two families build on this file.
    from t2t_keras.data.sentence_piece import SentencePieceTokenizer  # noqa: PLC0415
    from t2t_keras.data.word_piece import WordPieceTokenizer  # noqa: PLC0415

    families = {
        kind: family
        for family in (SentencePieceTokenizer, WordPieceTokenizer)
        for kind in family.kinds
    }
    if kind not in families:
        raise InputError(f"there is no tokenizer {kind!r}; choose one of {', '.join(families)}")
    return families[kind]


def _readable(lines):
    for line in lines:
        if isinstance(line, bytes):
            try:
                line = line.decode("utf-8")  # noqa: PLW2901
            except UnicodeDecodeError:
                continue
        yield unicodedata.normalize("NFC", line.rstrip("\r\n"))


def _sample(lines, limit):
    """Keeps an even sample of the lines: reservoir sampling, the same every time."""
    chance = random.Random(0)
    kept = []
    for number, line in enumerate(lines):
        if number < limit:
            kept.append(line)
        elif (place := chance.randrange(number + 1)) < limit:
            kept[place] = line
    return kept
