"""Rematerialization: the backward pass computes a layer's values again instead of keeping them.

`keras.RematScope` asks for it; layers made inside the scope are computed again. Keras's own form
takes neither None nor keyword arguments, draws other dropout masks the second time, and keeps each
graph forever; see `ops.define_gradient`.
"""

import contextlib
import functools

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops

_COLLECTION = "t2t_keras_rematerialized"  # of a graph: [(name of a value, function)]


class Rematerialized:
    """Mixin of layers under `keras.RematScope`.

    A layer whose `rematerializes` is True is computed again if the scope selects it. For other
    layers it is False: they are parts of such layers or keep no values. Eager code never computes a
    layer again.
    """

    rematerializes = False

    def rematerialized_call(self, layer_call, *args, **kwargs):
        if not self.rematerializes or tf.executing_eagerly():
            return layer_call
        chosen = super().rematerialized_call(layer_call, *args, **kwargs)
        if chosen is layer_call:
            return layer_call
        return functools.partial(_call, self, layer_call)


def parts_of(layer):
    """Context manager in which a layer makes its parts.

    If every layer is rematerialized, the whole layer is computed again, and its parts only with it.
    """
    whole = keras_compat.remat_mode(layer) in ("full", "larger_than")
    return keras.RematScope(None) if whole else contextlib.nullcontext()


def _call(layer, layer_call, *args, **kwargs):
    """Returns layer_call(*args, **kwargs) with a gradient that calls it again."""
    variables = layer.variables  # with the states of dropout, before they change
    values = [tf.identity(variable.value) for variable in variables]
    nest = tf.nest.flatten((args, kwargs))
    places = [i for i, x in enumerate(nest) if tf.is_tensor(x)]
    training = keras_compat.is_training(layer)
    y, *weights = _as_tuple(layer_call(*args, **kwargs))  # weights of attention are not made again

    def call_again(inputs, values):
        again = dict(zip(places, inputs, strict=True))
        flat = [again.get(i, x) for i, x in enumerate(nest)]
        args, kwargs = tf.nest.pack_sequence_as((nest_args, nest_kwargs), flat)
        with keras.RematScope(None):
            context = _Context(dtype=layer.dtype_policy, autocast=layer.autocast)
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return context(
                inputs[0],
                function=lambda: _as_tuple(layer_call(*args, **kwargs))[0],
                training=training,
            )

    nest_args, nest_kwargs = args, kwargs

    def gradients(upstream, tensors):
        with tf.control_dependencies([upstream]):  # else they would be those of the forward pass
            tensors = [tf.identity(tensor) for tensor in tensors]
        floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            again = call_again(tensors[: len(places)], tensors[len(places) :])
        of_floats = iter(tape.gradient(again, floats, upstream))
        return [next(of_floats) if tensor.dtype.is_floating else None for tensor in tensors]

    y = tf.identity(y)  # of a name of its own
    y.graph.add_to_collection(_COLLECTION, (y.name, gradients))
    y = _with_gradient(y, y, *(nest[i] for i in places), *values)
    return (y, *weights) if weights else y


def _as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


@ops.define_gradient("Rematerialized")
def _with_gradient(upstream, y, *tensors):
    return [None, *dict(y.graph.get_collection(_COLLECTION))[y.name](upstream, tensors)]


class _Context(keras.layers.Layer):
    """Calls a function like a layer's `call`, with its dtype and `training`."""

    def call(self, x, function, training=None):
        del x, training
        return function()
