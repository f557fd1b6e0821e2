"""What each head does over a corpus: how spread its attention is, and how far away it looks."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.tasks.scoring import shifted_right


class HeadStatistics(NamedTuple):
    """Means over all positions that look, the end included; float64 [layers, heads].

    Attributes:
        entropy: of the weights, in nats: 0 where one position gets all, log n where n get alike.
        distance: |i - j| between a position and what it looks at, weighted.
        previous, same, next: share of the weight on the position before, at the same place, after.
    """

    entropy: np.ndarray
    distance: np.ndarray
    previous: np.ndarray
    same: np.ndarray
    next: np.ndarray


def row_statistics(weights):
    """Returns the `HeadStatistics` of each row, float64 [..., query] in place of means.

    Args:
        weights: float [..., query, key], each row sums to 1.
    """
    weights = np.asarray(weights, np.float64)
    queries, keys = weights.shape[-2:]
    offsets = np.arange(keys) - np.arange(queries)[:, np.newaxis]  # [query, key]
    logs = np.log(np.where(weights > 0, weights, 1.0))

    def share(offset):
        return np.sum(weights * (offsets == offset), axis=-1)

    return HeadStatistics(
        entropy=-np.sum(weights * logs, axis=-1),
        distance=np.sum(weights * np.abs(offsets), axis=-1),
        previous=share(-1),
        same=share(0),
        next=share(1),
    )


def corpus_statistics(translator, texts, translations, batch_size=32):
    """Finds what the heads of a model do over a corpus.

    Args:
        translator: `Translator`.
        texts: list of str.
        translations: list of str, one for each text.
        batch_size: pairs at a time.

    Returns:
        {"encoder", "decoder", "cross": `HeadStatistics`}.

    Raises:
        InputError: if there are no pairs, or not as many of one side as of the other.
    """
    if not texts or len(texts) != len(translations):
        raise InputError(
            f"there are {len(texts)} texts and {len(translations)} translations: give at least "
            "one text, and one translation for each."
        )
    sums, counts = {}, {}
    for begin in range(0, len(texts), batch_size):
        sides = (texts[begin : begin + batch_size], translations[begin : begin + batch_size])
        source_ids, target_ids = (
            reader.read(tf.constant(side)).ids
            for reader, side in zip((translator.sources, translator.targets), sides, strict=True)
        )
        read_ids = shifted_right(target_ids, translator.tokenizer.bos_id)
        found = translator.model.attention({"source_ids": source_ids, "target_ids": read_ids})
        # A row counts if its position is a real one; what it looks at then is.
        real = {"encoder": source_ids != 0, "decoder": target_ids != 0, "cross": target_ids != 0}
        for name, mask in real.items():
            rows = row_statistics(getattr(found, name))  # [batch, layers, heads, query]
            weigh = mask.numpy()[:, np.newaxis, np.newaxis].astype(np.float64)
            totals = [np.sum(values * weigh, axis=(0, 3)) for values in rows]
            sums[name] = np.add(sums.get(name, 0.0), totals)
            counts[name] = counts.get(name, 0) + weigh.sum()
    return {name: HeadStatistics(*(sums[name] / counts[name])) for name in sums}
