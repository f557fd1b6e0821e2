"""What the searches have in common: hypotheses, their score, and the bookkeeping of a state."""

from typing import NamedTuple

import tensorflow as tf

IMPOSSIBLE = float("-inf")
"""The log P and the score of a place that holds no hypothesis."""


class Hypotheses(NamedTuple):
    """Some output sequences of every sentence.

    Attributes:
        ids: int32 [batch, hypotheses, length], without the start token, 0 after the end; a
            sequence cut at its maximum length has no end token.
        lengths: int32 [batch, hypotheses], the end token counted.
        log_probabilities: float32 [batch, hypotheses], log P of all tokens, the end included.
        scores: float32 [batch, hypotheses], log P / length penalty; -inf, with length 0, marks
            that a sentence has no further hypothesis.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    log_probabilities: tf.Tensor
    scores: tf.Tensor


def gnmt_penalty(lengths, alpha):
    """Returns ((5 + length) / 6)^alpha, float32 (Wu et al. 2016, equation 14; paper, section 6.1).

    Args:
        lengths: integers of any shape, the end token counted.
        alpha: 0 leaves log P as it is; the paper uses 0.6.
    """
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, alpha)


def hypotheses_of(ids, lengths, log_probabilities, alpha):
    """Returns the scored `Hypotheses`.

    Args:
        ids: int32 [batch, hypotheses, length].
        lengths: int32, broadcastable to [batch, hypotheses].
        log_probabilities: float32 [batch, hypotheses].
        alpha: exponent of the length penalty.
    """
    lengths = tf.broadcast_to(lengths, tf.shape(log_probabilities))
    scores = log_probabilities / gnmt_penalty(lengths, alpha)
    return Hypotheses(ids, lengths, log_probabilities, scores)


def gather_beams(nest, parents):
    """Reorders hypotheses.

    Args:
        nest: tensors [batch, beams, ...].
        parents: int32 [batch, new_beams], the old place of each new hypothesis.

    Returns:
        The nest with tensors [batch, new_beams, ...].
    """
    return tf.nest.map_structure(lambda x: tf.gather(x, parents, axis=1, batch_dims=1), nest)


def keep_rows(frozen, old, new):
    """Returns new, but old in the rows that are frozen.

    Args:
        frozen: bool [batch].
        old: a nest of tensors [batch, ...].
        new: a nest of tensors of the same shapes.
    """

    def keep(old, new):
        rows = tf.reshape(frozen, [-1] + [1] * (len(new.shape) - 1))
        return tf.where(rows, old, new)

    return tf.nest.map_structure(keep, old, new)


def token_at(ids, step):
    """Returns ids[:, step], int32 [batch], of ids [batch, length]; 0 past the end."""
    padded = tf.pad(ids, [[0, 0], [0, 1]])
    return padded[:, tf.minimum(step, tf.shape(ids)[1])]


def loop_shapes(state, any_batch=False):
    """Returns a nest of the `tf.TensorShape` that a state may take in a loop.

    Args:
        state: a nest of tensors. A dimension that is statically 0 may grow; all others keep their
            size.
        any_batch: whether the first dimension of all tensors may change.
    """

    def shape_of(x):
        sizes = [size or None for size in x.shape]
        return tf.TensorShape([None, *sizes[1:]] if any_batch and sizes else sizes)

    return tf.nest.map_structure(shape_of, state)


def run_loop(unfinished, body, state, shapes=None):
    """Runs `state = body(state)` while `unfinished(state)`, as one `tf.while_loop`.

    Args:
        unfinished: function of the state, to a bool scalar.
        body: function of the state, to the next state.
        state: a nest of tensors.
        shapes: what `loop_shapes` gives for the state; None: just that.

    Returns:
        The last state.
    """
    shapes = loop_shapes(state) if shapes is None else shapes

    def shaped_body(state):
        state = body(state)
        # Products and gathers may forget static sizes, which the loop would take for a change.
        tf.nest.map_structure(lambda x, shape: x.set_shape(shape), state, shapes)
        return (state,)

    return tf.while_loop(unfinished, shaped_body, (state,), shape_invariants=(shapes,))[0]
