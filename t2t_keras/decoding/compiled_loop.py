"""Beam search with XLA, for GPUs: several steps are one program over tensors of fixed size.

A step of a search launches some hundred small kernels, which takes longer than computing them. XLA
fuses them, but compiles a program for each combination of sizes. So all sizes are rounded up to a
few: those of the batch, of the sources, and the room for outputs and KV cache, into which a step
writes at its position. Whether all sentences are done is asked once for `STEPS` steps; those that
are done earlier keep their hypotheses, so that the results are those of the plain search.
"""

import dataclasses

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.batch_compaction import SearchLoop, loop_shapes, while_loop
from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function

STEPS = 8
"""Steps between two checks whether all sentences are done."""

_LEAST_BATCH = 8
_LEAST_LENGTH = 32


class CompiledLoop(SearchLoop):
    """Runs a beam search without a constraint and without records by XLA; see the module.

    Args:
        model: model that is searched, for which `models.search_steps.has_room` is True; None: a
            step of your own, which XLA can compile, with a state of fixed size.

    Raises:
        InputError: when it runs without a model, if the state grows with the steps.
    """

    def __init__(self, model=None):
        self.model = model

    def round_up(self, active):
        return _rounded(active, _LEAST_BATCH, 4)

    def run(self, advance, finish, state):
        @graph_function(jit_compile=True)
        def several_steps(state):
            first = tf.constant(0), state
            shapes = loop_shapes(first, any_batch=True)
            # XLA knows the number of steps, and does not ask the GPU whether to go on.
            return while_loop(
                lambda last: last[0] < STEPS,
                lambda last: (last[0] + 1, advance(last[1])),
                first,
                shapes,
            )[1]

        def advance_in_xla(state):
            with ops.traced_with(dataclasses.replace(ops.options(), fixed_sizes=True)):
                return several_steps(self._with_room(state))

        batch = tf.shape(state.done)[0]
        result = super().run(advance_in_xla, finish, self._with_rounded_sizes(state))
        return tf.nest.map_structure(lambda x: x[:batch], result)

    def _model_with_room(self, state, *arguments):
        if self.model is not None:
            return self.model.with_room(state, *arguments)
        if any(0 in x.shape[1:] for x in tf.nest.flatten(state)):
            raise InputError(
                "the state of the step grows, which XLA cannot compile: leave loop out, or keep a "
                "state of fixed size."
            )
        return state

    def _with_rounded_sizes(self, state):
        """Returns the first state of a search, for more and longer sources."""
        prefix, batch = tf.shape(state.prefix_ids)[1], tf.shape(state.done)[0]
        more = _rounded(batch, _LEAST_BATCH) - batch
        longer = _rounded(prefix, _LEAST_LENGTH) - prefix
        state = state._replace(
            done=~state.done,
            prefix_ids=ops.pad_axis(state.prefix_ids, longer, axis=1),
            model_state=self._model_with_room(
                state.model_state, 0, lambda length: _rounded(length, _LEAST_LENGTH)
            ),
        )
        state = tf.nest.map_structure(
            lambda x: ops.pad_axis(x, more, axis=0) if x.shape.rank else x, state
        )
        return state._replace(done=~state.done)  # the sentences that were added are done

    def _with_room(self, state):
        """Returns the state of a search with room for `STEPS` more."""
        steps = _rounded(state.num_steps + STEPS, _LEAST_LENGTH)
        more = steps - tf.shape(state.live.ids)[2]
        live, finished = (
            hypotheses.with_tokens(lambda x: ops.pad_axis(x, more, axis=2))
            for hypotheses in (state.live, state.finished)
        )
        model_state = self._model_with_room(state.model_state, steps)
        return state._replace(live=live, finished=finished, model_state=model_state)


def _rounded(count, least, factor=2):
    """Returns the first of 0, least, least · factor, least · factor², … from count, an integer."""
    sizes = [0, *(least * factor**k for k in range(30) if least * factor**k < 2**30)]
    with ops.on_host():
        sizes = tf.constant(sizes, count.dtype)
        return tf.reduce_min(tf.where(sizes < count, count.dtype.max, sizes))
