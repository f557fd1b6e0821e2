"""Keras's Dense, LayerNormalization and Dropout on the functions of `ops`, and the bases of layers.

`Linear`, `LayerNorm` and `Dropout` compute the same as these Keras layers. `SequenceLayer` is the
base of all layers that keep the shape of their input, `Rematerialized` of all layers,
`HasFastForms` of layers, models, losses and metrics with faster forms of their methods.
"""

import contextlib
import functools
import inspect

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError, require_positive, require_rate
from t2t_keras.types import Shape

_COLLECTION = "t2t_keras_rematerialized"  # of a graph: [(name of a value, function)]


class Rematerialized:
    """Mixin of layers that the backward pass may compute again, instead of keeping their values.

    `keras.RematScope` asks for it, of the layers made inside of it whose `rematerializes` is True;
    others are parts of those, or have nothing to save. Eager code computes no layer again. Keras's
    own form takes neither None nor keyword arguments, draws other dropout masks the second time,
    and keeps each graph forever; see `ops.define_gradient`.
    """

    rematerializes = False

    def rematerialized_call(self, layer_call, *args, **kwargs):
        if not self.rematerializes or tf.executing_eagerly():
            return layer_call
        chosen = super().rematerialized_call(layer_call, *args, **kwargs)
        if chosen is layer_call:
            return layer_call
        return functools.partial(_recomputed, self, layer_call)


class HasFastForms:
    """Base class of a layer, model, loss or metric that states fast forms of its methods.

    As Python drops `__hash__` where a class defines `__eq__`, a fast form counts no more where a
    subclass defines one of these methods anew, until it defines the form anew as well.

    Attributes:
        fast_forms: {name of a form: names of the methods whose results it gives}.
    """

    fast_forms = {}  # noqa: RUF012
    _stands_for = {}  # noqa: RUF012  {name of a form: (the form, the methods when it was defined)}
    _defined_alone = frozenset()  # forms that were defined anew without their methods

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for form, names in cls.fast_forms.items():
            known, method = cls._stands_for.get(form), getattr(cls, form, None)
            if method is None or (known and known[0] is method):
                continue
            methods = {name: getattr(cls, name, None) for name in names}
            cls._stands_for = cls._stands_for | {form: (method, methods)}
            alone = {form} if known and known[1] == methods else set()
            cls._defined_alone = (cls._defined_alone - {form}) | alone


def has_form(owner, form):
    """Whether an object has a fast form that gives the results of its methods.

    An object of another class has it if its own class, not one above, defines it.
    """
    kind = type(owner)
    if not isinstance(owner, HasFastForms):
        return form in vars(kind)
    if form not in kind._stands_for:
        return False
    _, methods = kind._stands_for[form]
    return form not in vars(owner) and all(
        getattr(getattr(owner, name), "__func__", None) is method
        for name, method in methods.items()
    )


def defines_alone(owner, form):
    """Whether a class gives a form of its own, and for the methods has those of a class above."""
    return has_form(owner, form) and form in getattr(owner, "_defined_alone", ())


@keras.saving.register_keras_serializable(package="t2t_keras")
class Linear(Rematerialized, keras.layers.Dense):
    """x W + b: `keras.layers.Dense` as one product of two matrices, which TensorFlow fuses.

    With LoRA (`enable_lora`, Hu et al. 2022) W is kernel + A B · α / rank, and x W is computed as
    x kernel + (x A) B · α / rank. The gradient of the frozen kernel is never computed.

    Arguments are as for `keras.layers.Dense`; x is [..., width], the result [..., units].

    Example:
        >>> layers.Linear(16, activation="relu")(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 16])
    """

    def build(self, input_shape: Shape) -> None:
        alpha = self.lora_alpha
        super().build(input_shape)  # where Keras gives a loaded layer its rank as α
        self.lora_alpha = alpha

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        y = ops.matmul(tf.reshape(x, [-1, x.shape[-1]]), *self.factors)
        if self.bias is not None:
            y = ops.add_bias(y, tf.convert_to_tensor(self.bias), training)
        if self.activation is keras.activations.silu:  # keeps each graph: `ops.define_gradient`
            y = ops.silu(y, training)
        else:
            y = self.activation(y)
        return ops.reshape(y, [*x.shape[:-1], self.units], like=x)

    @property
    def factors(self):
        """A tuple of the kernel [width, units] and, with LoRA, A [width, rank] and B · α / rank."""
        return keras_compat.lora_factors(self) if self.lora_enabled else (self.kernel,)

    def save_own_variables(self, store: dict) -> None:
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        store["0"] = ops.merged_kernel(*self.factors)  # Keras's is rounded to the compute dtype
        if self.bias is not None:
            store["1"] = self.bias
        store["lora_a"], store["lora_b"] = self.lora_kernel_a, self.lora_kernel_b

    def load_own_variables(self, store: dict) -> None:
        """Loads kernel and bias; with LoRA of the same rank, also A and B, for resuming.

        The kernel in a file has A B in it. Weights without LoRA, or of another rank, become the
        kernel, with B zero and A as it is.
        """
        names = set(store.keys())
        own = {name: store[name] for name in ("0", "1") if name in names}
        if not self.lora_enabled:
            super().load_own_variables(own)
            return
        pairs = ("lora_a", self.lora_kernel_a), ("lora_b", self.lora_kernel_b)
        first = tf.convert_to_tensor(self.lora_kernel_a)  # Keras makes it zero
        super().load_own_variables(own)
        if not all(n in names and tuple(store[n].shape) == tuple(w.shape) for n, w in pairs):
            self.lora_kernel_a.assign(first)
            return
        for name, weight in pairs:
            weight.assign(store[name])
        kernel, low, high = self.factors
        kernel.assign(ops.merged_kernel(kernel, low, -high))


@keras.saving.register_keras_serializable(package="t2t_keras")
class FusedProjections(Linear):
    """Several linear maps of one input, such as W^Q, W^K and W^V of all heads, as one product.

    Their columns, `widths`, are adjacent in one matrix. Of x [..., model_dim] it returns a list of
    [..., width].
    """

    def __init__(self, widths, use_bias=False, **kwargs):
        super().__init__(sum(widths), use_bias=use_bias, **kwargs)
        self.widths = widths

    def call(self, x, training=False):
        return tf.split(super().call(x, training), self.widths, axis=-1)

    def get_config(self):
        config = super().get_config()
        del config["units"]  # it follows from the widths
        return config | {"widths": self.widths}


@keras.saving.register_keras_serializable(package="t2t_keras")
class SeparateProjections(Rematerialized, keras.layers.Layer):
    """The maps of `FusedProjections`, each with its own matrix."""

    def __init__(self, widths, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.widths = widths
        self.use_bias = use_bias
        self.parts = [
            Linear(width, use_bias=use_bias, dtype=self.dtype_policy, name=f"part_{i}")
            for i, width in enumerate(widths)
        ]
        keras_compat.track(self, "part", self.parts)

    def build(self, input_shape: Shape) -> None:
        for part in self.parts:
            part.build(input_shape)

    def call(self, x):
        return [part(x) for part in self.parts]

    def get_config(self):
        return super().get_config() | {"widths": self.widths, "use_bias": self.use_bias}


class SequenceLayer(Rematerialized, keras.layers.Layer):
    """A Keras layer whose first or only output has the shape and the mask of its first input.

    In a functional model Keras derives outputs only from their shape and gives all of them the
    compute dtype. Here `call` is traced instead, so that attention weights keep their float32.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape=None, *_, **shapes):
        # Keras names the shapes of a `call` that was given several tensors.
        return shapes["x_shape"] if input_shape is None else input_shape

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


class MaskedLayer(SequenceLayer):
    """A layer whose `call` takes one mask of each input: a Keras mask, `Sequences` or a `View`.

    Calling the layer also accepts the former names of arguments, and by position the former order:
    `Sequences` of each input, then a mask of each. The method `call` accepts neither.
    """

    masks = {"mask": "sequences"}  # noqa: RUF012  {name: earlier name, of older code and files}

    def __call__(self, *args, **kwargs):
        names = list(inspect.signature(self.call).parameters)
        if any(x not in names or old in names for x, old in self.masks.items()):  # of a subclass
            return super().__call__(*args, **kwargs)
        first, count = names.index(next(iter(self.masks))), len(self.masks)
        args, given = args[:first], args[first:]
        if len(given) > count and len(given) != 2 * count:
            raise TypeError(
                f"{len(given)} arguments follow {' and '.join(names[:first])}: give "
                f"{' and '.join(self.masks)}, and all others by their names."
            )
        for i, (name, earlier) in enumerate(self.masks.items()):
            forms = *given[i::count], kwargs.pop(earlier, None), kwargs.pop(name, None)
            value = next((form for form in forms if form is not None), None)
            if name == "mask" and (hasattr(value, "_fields") or are_fields(value)):
                # By its name Keras would hand it on as the mask of the output.
                inputs = [kwargs.pop(n) for n in names[len(args) : first] if n in kwargs]
                args = (*args, *inputs, value)
            elif value is not None:
                kwargs[name] = value
        return super().__call__(*args, **kwargs)


def are_fields(mask):
    """Whether a mask is the fields of `Sequences`: a loaded functional model has made them a list.

    Three tensors [length] are the mask of three rows.
    """
    if not isinstance(mask, (tuple, list)) or len(mask) != 3:
        return False
    if not all(field is None or hasattr(field, "shape") for field in mask):
        return False
    ranks = [tf.TensorShape(field.shape).rank for field in mask[:2] if field is not None]
    return all(rank in (None, 2) for rank in ranks)


@keras.saving.register_keras_serializable(package="t2t_keras")
class LayerNorm(SequenceLayer):
    """γ · (x − mean) / √(variance + ε) + β over the last axis (Ba et al. 2016).

    x is [..., model_dim], of any floating type; the computation is in float32, the result in the
    compute dtype. ε is `epsilon`.

    Raises:
        InputError: if epsilon is not above 0.

    Example:
        >>> layers.LayerNorm()(tf.constant([[1.0, 3.0, 5.0, 7.0]])).numpy().round(2)
        array([[-1.34, -0.45,  0.45,  1.34]], dtype=float32)
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs):
        super().__init__(autocast=False, **kwargs)
        require_positive("epsilon", epsilon)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones", autocast=False)
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros", autocast=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        x, gamma, beta = (tf.cast(t, tf.float32) for t in (x, self.gamma, self.beta))
        return tf.cast(ops.layer_norm(x, gamma, beta, self.epsilon), self.compute_dtype)

    def get_config(self) -> dict:
        return super().get_config() | {"epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Dropout(Rematerialized, keras.layers.Dropout):
    """`keras.layers.Dropout` that draws different masks on the replicas of `tf.distribute`.

    Args: as for the Keras layer, rate and seed; noise_shape is None.

    Raises:
        InputError: if rate is below 0, or 1 or more, or if noise_shape is given.

    Example:
        >>> float(tf.reduce_max(layers.Dropout(0.5)(tf.ones([9, 9]), training=True)))
        2.0
    """

    def __init__(self, rate: float, noise_shape: None = None, seed: int | None = None, **kwargs):
        if noise_shape is not None:
            raise InputError(
                f"noise_shape is {noise_shape}, but this layer drops single elements: use "
                "keras.layers.Dropout."
            )
        require_rate("rate", rate)
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training or self.rate == 0:
            return inputs
        return ops.dropout(inputs, self.rate, next_seed(self.seed_generator))


def next_seed(generator):
    """Returns the next seed of a `keras.random.SeedGenerator`, int32 [2], another on each replica.

    Replicas hold equal copies of its state; the replica's number is added to the first element.
    """
    seed = tf.cast(generator.next(), tf.uint32)
    replica = tf.distribute.get_replica_context()
    if replica is not None and replica.num_replicas_in_sync > 1:
        seed += tf.cast(tf.stack([replica.replica_id_in_sync_group, 0]), tf.uint32)
    return tf.cast(seed, tf.int32)


def deserialize(part):
    """Returns the Keras object of a saved config, a dict; an object or None unchanged.

    Raises InputError for a name.
    """
    if isinstance(part, str):
        raise InputError(f"{part!r} is only a name: give an object, such as layers.Softmax().")
    return keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part


# Rematerialization -------------------------------------------------------------------------------


def parts_of(layer):
    """Context manager in which a layer makes its parts.

    If every layer is rematerialized, the whole layer is computed again, and its parts only with it.
    """
    whole = keras_compat.remat_mode(layer) in ("full", "larger_than")
    return keras.RematScope(None) if whole else contextlib.nullcontext()


def _recomputed(layer, layer_call, *args, **kwargs):
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
