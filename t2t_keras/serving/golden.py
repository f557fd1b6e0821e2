"""Sample requests, for verification of an export and for warm-up of a model server."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError

_FIRST_WORD = 4 + 256
"""Smaller ids are special tokens and bytes, which form no words."""


class Request(NamedTuple):
    """One request to a model server.

    Attributes:
        signature: name of the signature.
        inputs: dict of arrays [batch, ...], object (of bytes) or int32.
    """

    signature: str
    inputs: dict


def golden_requests(translator, signatures, lines=None):
    """Returns requests to every signature: single lines of a few lengths, and a mixed batch.

    Args:
        translator: `Translator`.
        signatures: names of the signatures.
        lines: list of str, typical sources; if None, they are sampled from the vocabulary.

    Returns:
        List of `Request`.

    Raises:
        InputError: if lines is empty.
    """
    if lines is not None and not len(lines):
        raise InputError("lines is empty: give at least one, or None.")
    lines = _sample_lines(translator.tokenizer) if lines is None else list(lines)
    by_length = sorted(lines, key=len)
    batches = [[by_length[0]], [by_length[-1]], [*lines[:2], "", "Ünïcode 😀 e\u0301 \u202eאב"]]
    return [
        Request(name, _INPUTS[name](translator, batch)) for name in signatures for batch in batches
    ]


def _sample_lines(tokenizer):
    """Returns texts of 1, 6 and 20 tokens, a function of the vocabulary."""
    rng = np.random.default_rng(0)
    first = min(_FIRST_WORD, tokenizer.vocab_size - 1)
    return [
        tokenizer.decode(rng.integers(first, tokenizer.vocab_size, [1, length], np.int32))
        .numpy()[0]
        .decode()
        for length in (1, 6, 20)
    ]


def _text(translator, lines):
    return {"text": _strings(lines)}


def _text_and_prefix(translator, lines):
    # Prefixes of two characters, most of them word fragments, and some empty ones.
    prefixes = [line[:2] if number % 2 else "" for number, line in enumerate(lines, start=1)]
    return {"text": _strings(lines), "prefix": _strings(prefixes)}


def _text_and_translation(translator, lines):
    # Any text has a probability as translation.
    return {"text": _strings(lines), "translation": _strings(reversed(lines))}


def _source_ids(translator, lines):
    return {"source_ids": translator.encode(tf.constant(lines)).numpy()}


_INPUTS = {
    "serving_default": _text,
    "n_best": _text,
    "prefix": _text_and_prefix,
    "score": _text_and_translation,
    "decode_ids": _source_ids,
    "align": _text_and_translation,
}


def _strings(lines):
    return np.array([line.encode() for line in lines], object)
