"""Inputs of sample requests, which verify an export and warm up a server.

Each function takes a predictor and lines, list of str, and returns {input: array [lines]}. A row of
`signatures.SIGNATURES` names its function.
"""

import re

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import FIRST_WORD, UNK_ID
from t2t_keras.tasks.spans import ALL_MARKS


def sample_lines(tokenizer, lengths=(1, 6, 20)):
    """Returns texts with these numbers of tokens, a list of str made from the vocabulary."""
    rng = np.random.default_rng(0)
    first = min(FIRST_WORD, tokenizer.vocab_size - 1)
    return [
        tokenizer.decode(rng.integers(first, tokenizer.vocab_size, [1, length], np.int32))
        .numpy()[0]
        .decode()
        for length in lengths
    ]


def _languages(predictor, lines):
    """Returns languages for lines, in turn; none for a predictor without languages."""
    if getattr(predictor, "languages", None) is None:
        return {}
    codes = predictor.languages.codes
    sources, targets = (
        _strings(codes[(row + shift) % len(codes)] for row in range(len(lines))) for shift in (0, 1)
    )
    return {"source_language": sources, "target_language": targets}


def text(predictor, lines):
    return {"text": _strings(lines)} | _languages(predictor, lines)


def text_and_prefix(predictor, lines):
    # Prefixes of two characters, most of them word fragments, and some empty ones.
    prefixes = [line[:2] if number % 2 else "" for number, line in enumerate(lines, start=1)]
    return {"text": _strings(lines), "prefix": _strings(prefixes)} | _languages(predictor, lines)


def text_and_translation(predictor, lines):
    # Any text has a probability as translation.
    texts = {"text": _strings(lines), "translation": _strings(reversed(lines))}
    return texts | _languages(predictor, lines)


def text_and_terms(predictor, lines):
    # The first word of every second line, and a word that the vocabulary surely has.
    tokenizer = predictor.tokenizer.target
    words = (line for count in range(1, 9) for line in sample_lines(tokenizer, [count]))
    target = next(
        (w for w in words if _is_term(w) and UNK_ID not in tokenizer.encode([w]).values), None
    )
    sources = [(line.split() or [""])[0] if n % 2 == 0 else "" for n, line in enumerate(lines)]
    terms = [f"{word}\t{target}" if target and _is_term(word) else "" for word in sources]
    return text(predictor, lines) | {"terms": _strings(terms)}


def source_ids(predictor, lines):
    languages = _languages(predictor, lines)
    codes = {name: tf.constant(column, tf.string) for name, column in languages.items()}
    ids = {"source_ids": predictor.encode(tf.constant(lines), **codes).numpy()}
    return ids | {name: languages[name] for name in languages if name == "target_language"}


def _is_term(word):
    return word and not re.search(ALL_MARKS, word)


def text_and_sampling(predictor, lines):
    # Some draw from all tokens, some from the most likely ones.
    count = np.arange(len(lines), dtype=np.int32)
    return text(predictor, lines) | {
        "seed": count,
        "temperature": np.full(len(lines), 0.8, np.float32),
        "top_k": count % 2 * 10,
        "top_p": np.where(count % 3 == 1, 0.9, 1).astype(np.float32),
    }


def _strings(lines):
    return np.array([line.encode() for line in lines], object)
