"""Results of a translator: a translation in Python, translations of a batch in a graph."""

from typing import NamedTuple

import tensorflow as tf


class Translation(NamedTuple):
    """One translation of one sentence.

    Attributes:
        text: str.
        score: float, log P / length penalty: higher is better, 0 is certain. If a sentence has no
            further translation, the text is empty and the score -inf.
    """

    text: str
    score: float


class TranslationBatch(NamedTuple):
    """The translations of a batch, as tensors."""

    texts: tf.Tensor  # string [batch, n_best], best first
    scores: tf.Tensor  # float32 [batch, n_best]; -inf if a sentence has no further translation
    # bool [batch], whether the source was longer than the translator's limit, or the prefix longer
    # than the longest translation
    truncated: tf.Tensor
