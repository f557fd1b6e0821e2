"""How likely a given translation is: log P of its tokens, by one forced pass."""

from typing import NamedTuple

import tensorflow as tf

_POSITIONS_AT_ONCE = 4096
"""Positions whose logits are held in memory at a time: half a gigabyte for 32,000 words."""


class Scores(NamedTuple):
    """What a model says of given translations.

    Attributes:
        log_probabilities: float32 [batch], natural logarithm of P(target | source).
        lengths: int32 [batch], tokens of the target, the end counted.
    """

    log_probabilities: tf.Tensor
    lengths: tf.Tensor


def shifted_right(target_ids, start_id):
    """Returns what a decoder reads to predict target_ids, int32 [batch, target]."""
    starts = tf.fill([tf.shape(target_ids)[0], 1], start_id)
    return tf.concat([starts, target_ids[:, :-1]], axis=1)


def score(model, source_ids, target_ids, start_id):
    """Finds the log-probability of targets, the sum over all their tokens, in float32.

    Args:
        model: function of a dict of source_ids and target_ids, to logits [batch, target, vocab].
        source_ids: int32 [batch, source], each source with its end token, then 0.
        target_ids: int32 [batch, target], each target with its end token, then 0.
        start_id: int, what the decoder reads first.

    Returns:
        `Scores`.
    """
    read_ids = shifted_right(target_ids, start_id)
    batch, length = tf.unstack(tf.shape(target_ids))
    rows = tf.maximum(_POSITIONS_AT_ONCE // tf.maximum(length, 1), 1)

    def score_rows(start, found):
        source, read, target = (
            ids[start : start + rows] for ids in (source_ids, read_ids, target_ids)
        )
        logits = tf.cast(model({"source_ids": source, "target_ids": read}), tf.float32)
        chosen = tf.gather(logits, target, axis=2, batch_dims=2)  # [rows, target]
        chosen -= tf.reduce_logsumexp(logits, axis=2)
        chosen = tf.where(target > 0, chosen, 0.0)
        return start + rows, tf.concat([found, tf.reduce_sum(chosen, axis=1)], axis=0)

    _, found = tf.while_loop(
        lambda start, _: start < batch,
        score_rows,
        (tf.constant(0), tf.zeros([0])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    return Scores(found, tf.math.count_nonzero(target_ids, axis=1, dtype=tf.int32))
