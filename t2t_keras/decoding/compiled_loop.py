"""Beam search with XLA, for GPUs: several steps are one program over tensors of fixed size.

A step of a search launches some hundred small kernels, which takes longer than computing them. XLA
fuses them, but compiles a program for each combination of sizes. So all sizes are rounded up to a
few: those of the batch, of the sources, and the room for outputs and KV cache, into which a step
writes at its position. Whether all sentences are done is asked once for `STEPS` steps; those that
are done earlier keep their hypotheses, so that the results are those of the plain search.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.batch_compaction import GrowingLoop, loop_shapes, while_loop
from t2t_keras.decoding.hypotheses import gather_beams
from t2t_keras.graphs import graph_function
from t2t_keras.layers.attention import KeyValue, MultiHeadSelfAttention, View
from t2t_keras.models.transformer import ProjectedMemory, Transformer

STEPS = 8
"""Steps between two checks whether all sentences are done."""

_LEAST_BATCH = 8
_LEAST_LENGTH = 32


class CompiledLoop(GrowingLoop):
    """Runs a beam search over a `Transformer` in programs of XLA, see the module."""

    @staticmethod
    def fits(model, constraint=None, records=None):
        """Returns whether a search can use this loop.

        Args:
            model: the model that is searched, a `Transformer` that does not override `step`.
            constraint, records: arguments of `beam_search`, which must be None.
        """
        if constraint is not None or records is not None or not isinstance(model, Transformer):
            return False
        attentions = (type(layer.self_attention) for layer in model.decoder.layers)
        return all(
            getattr(kind, name) is getattr(base, name)
            for base, kinds, names in (
                (Transformer, [type(model)], ("initial_state", "step", "hidden_step", "reorder")),
                (MultiHeadSelfAttention, attentions, ("initial_cache", "step", "step_view")),
            )
            for kind in kinds
            for name in names
        )

    def extend(self, tokens, parents, newest, num_steps):
        return tf.nest.map_structure(
            lambda old, new: ops.put_at(old, new[..., tf.newaxis], num_steps),
            gather_beams(tokens, parents),
            newest,
        )

    def pad(self, hypotheses):
        return hypotheses

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

        batch = tf.shape(state.done)[0]
        found = super().run(
            lambda state: several_steps(_with_room(state)), finish, _with_rounded_sizes(state)
        )
        return tf.nest.map_structure(lambda x: x[:batch], found)


class _FixedView(View):
    """The `View` of a cache of fixed size."""

    def append(self, cache, newest):
        begin = self.positions * tf.shape(newest.key)[2]
        return KeyValue(*(ops.put_at(*pair, begin) for pair in zip(cache, newest, strict=True)))


class _FixedState(NamedTuple):
    """A `DecoderState` of fixed size, with room for more steps than were taken."""

    memory: ProjectedMemory
    beam_history: tf.Tensor  # integers [batch, beams, room]
    caches: tuple[KeyValue, ...]  # [batch, heads, room · beams, width] of each decoder layer
    position: tf.Tensor  # int32 [], steps taken

    def append(self, own_beam, step_view):
        """As for `DecoderState`."""
        history = ops.put_at(self.beam_history, own_beam[..., tf.newaxis], self.position)
        is_known = ops.arange(tf.shape(history)[2]) <= ops.to_index(self.position)  # [room]
        mask, last, distance = step_view(tf.where(is_known, history, -1))  # -1: of no beam
        mask = is_known if mask is None else mask
        if distance is not None:
            distance += ops.to_index(last - self.position)
        state = self._replace(beam_history=history, position=self.position + 1)
        return state, _FixedView(mask, self.position, distance)


def _with_rounded_sizes(state):
    """Returns the first state of a search over a `_FixedState`, for more and longer sources."""
    memory, history, caches = state.model_state
    source = tf.shape(memory.mask)[3]
    longer = _rounded(source, _LEAST_LENGTH) - source
    memory = memory._replace(
        key_values=tf.nest.map_structure(lambda x: _pad(x, longer, axis=2), memory.key_values),
        mask=_pad(memory.mask, longer, axis=3),
    )
    prefix = tf.shape(state.prefix_ids)[1]
    batch = tf.shape(state.done)[0]
    more = _rounded(batch, _LEAST_BATCH) - batch
    state = state._replace(
        done=~state.done,
        prefix_ids=_pad(state.prefix_ids, _rounded(prefix, _LEAST_LENGTH) - prefix, axis=1),
        model_state=_FixedState(memory, history, caches, state.num_steps),
    )
    state = tf.nest.map_structure(lambda x: _pad(x, more, axis=0) if x.shape.rank else x, state)
    return state._replace(done=~state.done)  # the sentences that were added are done


def _with_room(state):
    """Returns the state of a search with room for `STEPS` more."""
    model_state, beams = state.model_state, state.newest_ids.shape[1]
    room = tf.shape(model_state.beam_history)[2]
    more = _rounded(state.num_steps + STEPS, _LEAST_LENGTH) - room
    live, finished = (
        hypotheses._replace(ids=_pad(hypotheses.ids, more, axis=2))
        for hypotheses in (state.live, state.finished)
    )
    model_state = model_state._replace(
        beam_history=_pad(model_state.beam_history, more, axis=2),
        caches=tf.nest.map_structure(lambda x: _pad(x, more * beams, axis=2), model_state.caches),
    )
    return state._replace(live=live, finished=finished, model_state=model_state)


def _rounded(count, least, factor=2):
    """Returns the first of 0, least, least · factor, least · factor², … from count, an integer."""
    sizes = [0, *(least * factor**k for k in range(30) if least * factor**k < 2**30)]
    with ops.on_host():
        sizes = tf.constant(sizes, count.dtype)
        return tf.reduce_min(tf.where(sizes < count, count.dtype.max, sizes))


def _pad(x, count, axis):
    """Returns x with `count` zeros more on an axis, an int32 scalar."""
    shape = [count if i == axis else size for i, size in enumerate(tf.unstack(tf.shape(x)))]
    return tf.concat([x, tf.zeros(shape, x.dtype)], axis)
