"""The attention of a trained model for one sentence and its translation, with the pieces' names."""

import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.tasks.scoring import shifted_right

_MARKS = {"</s>": "end", "<s>": "start", "<unk>": "unknown", "<pad>": "padding"}


class AttentionMap(NamedTuple):
    """One kind of attention.

    Attributes:
        name: str, such as "encoder self-attention".
        queries: list of str, the pieces that look: the rows.
        keys: list of str, the pieces that are looked at: the columns.
        weights: float32 [layers, heads, query, key], each row sums to 1.
    """

    name: str
    queries: list
    keys: list
    weights: np.ndarray


class SentenceAttention(NamedTuple):
    """All attention of a model for one pair of texts.

    Attributes:
        encoder: `AttentionMap` of the source to itself.
        decoder: of what the decoder reads, the start and the target but for its end, to itself.
        cross: of the decoder to the source; row t is that which predicts target piece t.
    """

    encoder: AttentionMap
    decoder: AttentionMap
    cross: AttentionMap


def attention_of(translator, text, translation):
    """Returns the `SentenceAttention` of a text and a translation of it.

    Args:
        translator: `Translator`.
        text: str.
        translation: str, any that may be its translation.
    """
    tokenizer = translator.tokenizer
    source_ids, target_ids = (
        reader.read(tf.constant([string])).ids
        for reader, string in ((translator.sources, text), (translator.targets, translation))
    )
    read_ids = shifted_right(target_ids, tokenizer.bos_id)
    found = translator.model.attention({"source_ids": source_ids, "target_ids": read_ids})

    def pieces(ids):
        return [piece.decode("utf-8", "replace") for piece in tokenizer.pieces(ids[0]).numpy()]

    source, target, read = pieces(source_ids), pieces(target_ids), pieces(read_ids)
    encoder, decoder, cross = (weights[0].numpy() for weights in found)
    return SentenceAttention(
        AttentionMap("encoder self-attention", source, source, encoder),
        AttentionMap("decoder self-attention", read, read, decoder),
        AttentionMap("cross-attention", target, source, cross),
    )


def readable(piece):
    """Returns a piece as a picture shows it: without the marks of a word's begin or middle."""
    if piece in _MARKS:
        return _MARKS[piece]
    letters = re.sub("^▁|^##(?=.)", "", piece).replace("▁", " ")
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in letters)
    return shown.strip() or "space"
