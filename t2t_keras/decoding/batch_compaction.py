"""The loop of a search, and batch compaction: finished sentences leave the batch of later steps.

A search runs in rounds, each with the active sentences, rounded up to a multiple of 8. A round
ends, and its results are stored, when the next batch is at most three quarters of its own: a batch
of 16 ends with 8 active sentences, a batch of 10 only with none.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.decoding.hypotheses import Hypotheses
from t2t_keras.errors import InputError

_BATCH_MULTIPLE = 8
"""Matrix products of fewer rows are not faster."""


class _Round(NamedTuple):
    """State between two rounds."""

    results: Hypotheses  # [batch, n_best] of all sentences, final for those that are done
    rows: tf.Tensor  # `ops.index_dtype` [active], the sentences in the search state
    search: Any  # the search's state, nest of tensors [active, ...] and of scalars


class SearchLoop:
    """The loop of a search."""

    def round_up(self, active):
        """Returns the size of a batch for `active` sentences, an integer [] like `active`."""
        return -(-active // _BATCH_MULTIPLE) * _BATCH_MULTIPLE

    def run(self, advance, finish, state):
        """Runs a search until all sentences are done, and returns its `Hypotheses` [batch, n_best].

        Args:
            advance: function of a state, to the state one step later.
            finish: function of a state, to its `Hypotheses` [batch, n_best].
            state: nest of tensors [batch, ...] and of scalars, with `done`, bool [batch].

        Raises:
            InputError: in a function that XLA compiles.
        """
        if keras_compat.is_in_xla():
            raise InputError(
                "a search runs in a tf.function(jit_compile=True), but its tensors grow with each "
                "step: call it outside, or without jit_compile; loop=CompiledLoop() compiles its "
                "steps."
            )

        def next_size(done):  # of the next batch, an integer []: the active sentences, rounded up
            batch = tf.size(done, ops.index_dtype())
            active = batch - tf.math.count_nonzero(done, dtype=batch.dtype)
            return tf.minimum(self.round_up(active), batch)

        def goes_on(search):  # a round ends when the next batch is at most ¾ of its own
            return 4 * next_size(search.done) > 3 * tf.size(search.done, ops.index_dtype())

        def run_round(last):
            # 1. Take the sentences that are not done, in their order.
            order = ops.to_index(tf.argsort(ops.to_index(last.search.done), stable=True))
            kept = order[: tf.cast(next_size(last.search.done), tf.int32)]
            rows, search = tf.nest.map_structure(
                lambda x: tf.gather(x, kept) if x.shape.rank else x, (last.rows, last.search)
            )
            # 2. Search until a smaller batch is worthwhile.
            search = while_loop(goes_on, advance, search, shapes.search)
            # 3. Store their results; those of sentences not yet done are overwritten later.
            new = finish(search)
            longer = tf.shape(new.ids)[2] - tf.shape(last.results.ids)[2]
            results = tf.nest.map_structure(
                lambda old, new: tf.tensor_scatter_nd_update(old, rows[:, tf.newaxis], new),
                last.results.with_tokens(lambda x: ops.pad_end(x, longer)),
                new,
            )
            return _Round(results, rows, search)

        batch = tf.shape(state.done)[0]
        first = _Round(finish(state), ops.arange(batch), state)
        shapes = loop_shapes(first, any_batch=True)
        last = while_loop(lambda last: ~tf.reduce_all(last.search.done), run_round, first, shapes)
        return last.results


def while_loop(unfinished, body, state, shapes=None):
    """Returns the last state of `state = body(state)`, run while `unfinished(state)`, bool [].

    The state keeps `shapes`, by default those of `loop_shapes`.
    """
    shapes = loop_shapes(state) if shapes is None else shapes

    def shaped_body(state):
        state = body(state)
        # Products and gathers may lose static sizes, and the loop would refuse the new shape.
        tf.nest.map_structure(lambda x, shape: x.set_shape(shape), state, shapes)
        return (state,)

    return tf.while_loop(unfinished, shaped_body, (state,), shape_invariants=(shapes,))[0]


def loop_shapes(state, any_batch=False):
    """Returns the nest of `tf.TensorShape` that a state keeps in a loop.

    A dimension that is statically 0 may grow, all others keep their size; with `any_batch` the
    first dimension of all tensors may change.
    """

    def shape_of(x):
        sizes = [size or None for size in x.shape]
        return tf.TensorShape([None, *sizes[1:]] if any_batch and sizes else sizes)

    return tf.nest.map_structure(shape_of, state)
