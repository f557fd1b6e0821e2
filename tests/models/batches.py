"""A small config, and batches of padded rows of very unequal token counts, as `fit` takes them."""

import functools

import numpy as np
import tensorflow as tf

import t2t_keras as t2t

VOCAB = 41
CONFIG = t2t.TransformerConfig(VOCAB, 1, 1, 16, 24, num_heads=2, dropout=0.0)


def batch(seed=0, rows=5, length=6):
    """Returns inputs, labels and weights; the first half of the rows is almost empty."""
    rng = np.random.default_rng(seed)
    source, labels = rng.integers(4, VOCAB, (2, rows, length)).astype(np.int32)
    labels[: rows // 2, 1:] = 0
    target = np.pad(labels, [[0, 0], [1, 0]], constant_values=3)[:, :-1]
    weights = np.sign(labels) * rng.integers(1, 3, labels.shape)
    return {"source_ids": source, "target_ids": target}, labels, weights.astype(np.float32)


def dataset(sizes=((6, 5), (5, 7), (2, 3))):
    """Returns the `tf.data.Dataset` of batches of some (rows, length)."""
    parts = [tf.data.Dataset.from_tensors(batch(seed, *size)) for seed, size in enumerate(sizes)]
    return functools.reduce(tf.data.Dataset.concatenate, parts)


def inputs(source, target):
    """Returns the inputs of a call, of lists of rows."""
    return {"source_ids": tf.constant(source), "target_ids": tf.constant(target)}
