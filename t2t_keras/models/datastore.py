"""What a model has read: vectors and the tokens that came (Khandelwal et al. 2021, section 2)."""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.errors import InputError


class Datastore(NamedTuple):
    """What is remembered of pairs of text.

    Attributes:
        sources: list of int arrays, the ids of each pair's source.
        lengths: int [pairs], tokens of each pair's target.
        keys: float32 [tokens, model_dim], what `Transformer.hidden` gives before each token of all
            targets, one pair after the other.
        tokens: int32 [tokens], the tokens that came.
    """

    sources: list
    lengths: np.ndarray
    keys: np.ndarray
    tokens: np.ndarray


def read_datastore(model, batches):
    """Returns the `Datastore` of a text, by one pass of a model over it.

    Args:
        model: `Transformer`, trained.
        batches: iterable of `(inputs, labels, ...)` as `fit` takes them, a pair in each row; rows
            without a token are left out.

    Raises:
        InputError: if the batches hold no token, or several pairs in a row.
    """
    read = tf.function(functools.partial(_read, model), reduce_retracing=True)
    found = Datastore([], [], [], [])
    for inputs, labels, *_ in batches:
        if "source_segments" in inputs:
            raise InputError("rows hold several pairs: give batches of LengthBuckets, not packed.")
        for parts, part in zip(found[1:], read(inputs, labels), strict=True):
            parts.append(part.numpy())
        found.sources.extend(np.asarray(inputs["source_ids"]))
    if not sum(map(len, found.tokens)):
        raise InputError("there is nothing to remember: give batches that hold a token at least.")
    lengths, keys, tokens = map(np.concatenate, found[1:])
    sources = [source for source, length in zip(found.sources, lengths, strict=True) if length]
    pairs = Datastore(sources, lengths[lengths > 0], keys, tokens)
    megabytes = pairs.keys.nbytes / 2**20
    logging.info("Remembered %s tokens, %.0f MiB", f"{len(pairs.tokens):,}", megabytes)
    return pairs


def _read(model, inputs, labels):
    """Returns what `Datastore` keeps of a batch, but for the sources."""
    real = labels != 0
    keys = tf.boolean_mask(tf.cast(model.hidden(inputs), tf.float32), real)
    return tf.math.count_nonzero(real, axis=1), keys, labels[real]


def check_datastore(pairs, width):
    """Raises InputError if a `Datastore` is empty, contradicts itself or has another width."""
    count, shape = len(pairs.tokens), np.shape(pairs.keys)
    if not count or shape != (count, width):
        raise InputError(
            f"keys have shape {shape} for {count} tokens: give a vector of width {width} for each "
            "token, and one token at least."
        )
    if not np.all(pairs.lengths):
        raise InputError("a target has no token: leave its pair out.")
    if len(pairs.sources) != len(pairs.lengths) or np.sum(pairs.lengths) != count:
        raise InputError(
            f"{len(pairs.sources)} sources have {len(pairs.lengths)} targets of "
            f"{np.sum(pairs.lengths)} tokens in all, and there are {count}: give them of the same "
            "pairs."
        )
