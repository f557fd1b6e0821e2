"""Batch compaction: finished sentences leave the batch, so that later steps cost less.

A search runs in rounds. The next round would have the active sentences, rounded up to a multiple
of 8. A round ends when that is at most three quarters of its own batch: a batch of 16 with 8 active
sentences; a batch of 10 only with none, so that it never compacts. Results are stored then.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.hypotheses import Hypotheses, loop_shapes, pad_length, while_loop

_BATCH_MULTIPLE = 8
"""Matrix products of fewer rows are not faster."""


class _Round(NamedTuple):
    """State between two rounds.

    Attributes:
        results: `Hypotheses` [batch, n_best] of all sentences; only those of sentences that are
            done are final.
        rows: `ops.index_dtype` [active], the sentences that the search state holds.
        search: the search's state, nest of tensors [active, ...] and of scalars.
    """

    results: Hypotheses
    rows: tf.Tensor
    search: Any


def run_with_compaction(advance, finish, state):
    """Runs a search until all sentences are done.

    Args:
        advance: function of a state, to the state one step later.
        finish: function of a state, to its `Hypotheses` [batch, n_best].
        state: nest of tensors [batch, ...] and of scalars, with `done`, bool [batch].

    Returns:
        `Hypotheses` [batch, n_best].
    """

    def run_round(last):
        # 1. Take the sentences that are not done, in their order.
        kept = _kept(last.search.done)
        rows = tf.gather(last.rows, kept)
        search = _gather_batch(last.search, kept)
        # 2. Search until the next round is smaller by a quarter.
        search = while_loop(_is_batch_worthwhile, advance, search, shapes.search)
        # 3. Store their results; those of sentences not yet done are overwritten later.
        return _Round(_store(last.results, rows, finish(search)), rows, search)

    batch = tf.shape(state.done)[0]
    first = _Round(finish(state), ops.arange(batch), state)
    shapes = loop_shapes(first, any_batch=True)
    last = while_loop(lambda last: ~tf.reduce_all(last.search.done), run_round, first, shapes)
    return last.results


def _is_batch_worthwhile(search):
    """Returns whether more than three quarters of a batch would be kept, bool []."""
    batch = tf.size(search.done, ops.index_dtype())
    return 4 * _num_kept(search.done) > 3 * batch


def _num_kept(done):
    """Returns the size of the next batch, integer []: the active sentences, rounded up."""
    batch = tf.size(done, ops.index_dtype())
    active = batch - tf.math.count_nonzero(done, dtype=batch.dtype)
    return tf.minimum(-(-active // _BATCH_MULTIPLE) * _BATCH_MULTIPLE, batch)


def _kept(done):
    """Returns the indices of the next batch, integers [kept]: active sentences first."""
    return ops.to_index(tf.argsort(ops.to_index(done), stable=True))[
        : tf.cast(_num_kept(done), tf.int32)
    ]


def _gather_batch(nest, kept):
    return tf.nest.map_structure(lambda x: tf.gather(x, kept) if x.shape.rank else x, nest)


def _store(results, rows, new):
    """Returns `Hypotheses` with new ones, which may be longer, in some rows.

    Args:
        results: `Hypotheses` [batch, n_best].
        rows: integers [active].
        new: `Hypotheses` [active, n_best].
    """
    results = pad_length(results, tf.shape(new.ids)[2] - tf.shape(results.ids)[2])
    return tf.nest.map_structure(
        lambda old, new: tf.tensor_scatter_nd_update(old, rows[:, tf.newaxis], new), results, new
    )
