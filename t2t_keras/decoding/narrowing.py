"""Finished sentences leave the batch, so that the steps of the others cost less.

A search goes in legs. Each leg ends when a quarter of its sentences is done; their results are put
down, and the next leg takes the others.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.state import Hypotheses, loop_shapes, run_loop

# Products of fewer rows than this take no less time.
_MULTIPLE = 8


class _Leg(NamedTuple):
    """Where a search stands between two legs.

    Attributes:
        results: `Hypotheses` [batch, n_best] of all sentences; those of sentences under way are
            without meaning.
        rows: int32 [sentences], which of the batch are under way, and maybe some that are done.
        progress: the search's progress, a nest of tensors [sentences, ...] and of scalars.
    """

    results: Hypotheses
    rows: tf.Tensor
    progress: Any


def run_legs(progress, search_of, conclude):
    """Runs a search to its end.

    Args:
        progress: a nest of tensors [batch, ...] and of scalars, with `done`, bool [batch].
        search_of: function of rows, int32 [sentences] of the batch, to the body of a loop over a
            progress of these.
        conclude: function of a progress, to its `Hypotheses` [sentences, n_best].

    Returns:
        `Hypotheses` [batch, n_best].
    """

    def run_leg(leg):
        places = _places(leg.progress.done)
        rows = tf.gather(leg.rows, places)
        progress = _take(leg.progress, places)
        progress = run_loop(_is_worth_it, search_of(rows), progress, shapes.progress)
        results = _put(leg.results, rows, conclude(progress))
        return _Leg(results, rows, progress)

    batch = tf.shape(progress.done)[0]
    first = _Leg(conclude(progress), tf.range(batch), progress)
    shapes = loop_shapes(first, any_batch=True)
    last = run_loop(lambda leg: ~tf.reduce_all(leg.progress.done), run_leg, first, shapes)
    return last.results


def _is_worth_it(progress):
    """Says whether a leg goes on: while more than three quarters would stay in the next one."""
    sentences = tf.size(progress.done)
    return 4 * _stay(progress.done) > 3 * sentences


def _stay(done):
    """Returns how many sentences the next leg would have, those under way and a few more."""
    under_way = sentences = tf.size(done)
    under_way -= tf.math.count_nonzero(done, dtype=tf.int32)
    return tf.minimum(-(-under_way // _MULTIPLE) * _MULTIPLE, sentences)


def _places(done):
    """Returns the places of those that stay, in their order if all do, int32 [stay]."""
    return tf.argsort(tf.cast(done, tf.int32), stable=True)[: _stay(done)]


def _take(nest, places):
    return tf.nest.map_structure(lambda x: tf.gather(x, places) if x.shape.rank else x, nest)


def _put(results, rows, new):
    """Returns the `Hypotheses` results with new ones in some rows, which may be longer."""
    longer = tf.shape(new.ids)[2] - tf.shape(results.ids)[2]
    results = results._replace(ids=tf.pad(results.ids, [[0, 0], [0, 0], [0, longer]]))
    return Hypotheses(
        *(
            tf.tensor_scatter_nd_update(old, rows[:, tf.newaxis], new)
            for old, new in zip(results, new, strict=True)
        )
    )
