"""Measures of language models: perplexity by token and by word, and bits per byte.

Perplexities of models with different vocabularies cannot be compared by token. Words and bytes are
those of the text, whatever the vocabulary.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from t2t_keras.data.texts import as_list
from t2t_keras.errors import InputError, require_whole_number


@dataclasses.dataclass(frozen=True)
class Perplexities:
    """How well a language model predicts texts.

    P is the product of the probabilities of all tokens of all texts, the end of each text included.
    """

    perplexity: float  # exp(-ln P / tokens)
    word_perplexity: float  # exp(-ln P / words)
    bits_per_byte: float  # -log2 P / bytes
    cross_entropy: float  # -ln P / tokens, nats
    tokens: int  # of all texts, the end of each text included
    words: int  # between white space, and one for the end of each text
    bytes: int  # of UTF-8, and one line feed for the end of each text
    log_probability: float  # ln P


def perplexities(texts: Any, log_probabilities: Any, tokens: Any) -> Perplexities:
    """Measures how well texts were predicted.

    Args:
        texts: str each, in the forms of `data.texts.as_list`.
        log_probabilities: float [texts], the natural logarithm of the probability of each text,
            its end included; or of the whole stream of texts, in any number of parts.
        tokens: int, as many as log_probabilities: tokens of each text or part, ends included.

    Raises:
        InputError: if there is no text, a log probability is NaN or above 0, or there is not a
            whole number of at least 1 token for each.
    """
    texts = as_list(texts)
    log_p, count = np.asarray(log_probabilities, np.float64), np.asarray(tokens)
    if log_p.ndim != 1 or log_p.shape != count.shape:
        raise InputError(
            f"log_probabilities have shape {log_p.shape} and tokens {count.shape}: give one of "
            "both for each text or part."
        )
    if not texts or not log_p.size:
        raise InputError("there is no token to score: give at least one text.")
    for i, value in enumerate(count.tolist()):
        require_whole_number(f"tokens[{i}]", value)
    total, number = float(log_p.sum()), int(count.sum())
    if not (log_p <= 0).all():
        place = int(np.argmax(~(log_p <= 0)))
        raise InputError(
            f"log_probabilities[{place}] is {log_p[place]}: give the logarithm of a probability."
        )
    words = sum(len(text.decode("utf-8", "replace").split()) + 1 for text in texts)
    size = sum(len(text) + 1 for text in texts)

    def power(value):
        return math.exp(value) if value < 700 else math.inf

    return Perplexities(
        perplexity=power(-total / number),
        word_perplexity=power(-total / words),
        bits_per_byte=-total / math.log(2) / size,
        cross_entropy=-total / number,
        tokens=number,
        words=words,
        bytes=size,
        log_probability=total,
    )
