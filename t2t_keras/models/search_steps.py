"""The steps of a search over a model: their matrices, and a check that they agree with `call`."""

import keras

from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.layers.basic import Linear, has_form


class CombinedModel(keras_compat.SavedSignature, keras.Model):
    """Base of a model that combines the predictions of trained `members` in a search.

    Its settings, `fixed`, are set once: a search's graphs hold them.
    """

    fixed = ()

    @property
    def config(self):
        """The `TransformerConfig` of the first member."""
        return self.members[0].config

    @property
    def input_signature(self):
        """The inputs that a call needs, see `Transformer.input_signature`."""
        return self.members[0].input_signature

    @property
    def max_length(self) -> int | None:
        """The longest sequence that all members can read; None without a limit."""
        return min((m.max_length for m in self.members if m.max_length), default=None)

    def __setattr__(self, name, value):
        if name in self.fixed and name in vars(self):
            kind = type(self).__name__
            raise InputError(f"{name} of a {kind} is fixed: make another {kind} with {value!r}.")
        super().__setattr__(name, value)


def step_products(model):
    """Returns the matrices of a model's steps, as `ops.with_step_products` takes them.

    It is a dict of `matrices`, `output_matrices` and `dtype`, of all parts of the model that have a
    `step`, a `decoder` and an `output_matrix`, as a `Transformer` has.
    """
    members = [
        layer
        for layer in _layers_of(model)
        if all(hasattr(layer, name) for name in ("step", "decoder", "output_matrix"))
    ]
    decoders = [member.decoder for member in members]
    of_memory = [  # applied only once, to the memory
        part
        for decoder in decoders
        for layer in decoder.layers
        if hasattr(layer, "cross_attention")
        for part in keras_compat.all_layers(layer.cross_attention.kv_projection)
    ]
    return {
        "matrices": [
            layer.factors
            for decoder in decoders
            for layer in keras_compat.all_layers(decoder)
            if isinstance(layer, Linear) and layer not in of_memory
        ],
        "output_matrices": [member.output_matrix for member in members],
        "dtype": members[0].compute_dtype if members else "float32",
    }


def require_own_steps(model):
    """Raises InputError if a search would ignore the `call` of a user's class, or of its layers.

    A search runs `encode` and `step`. A subclass that overrides `call` must also override these
    methods, as far as its base class has them. Objects other than Keras models are not checked.
    """
    for layer in _layers_of(model):
        kind = type(layer)
        owner = _owner(kind, "call")
        if owner is None or owner.__module__.startswith("t2t_keras."):
            continue
        for name in ("encode", "step"):
            inherited = _owner(kind, name)
            if inherited not in (None, owner) and kind.__mro__.index(owner) < kind.__mro__.index(
                inherited
            ):
                raise InputError(
                    f"{kind.__name__} has a `call` of its own, which a search does not run: it "
                    f"runs the `{name}` of {inherited.__name__}. Override `{name}` as well, so "
                    "that both compute the same."
                )


def has_room(model):
    """Whether a search of a model may have fixed sizes: it and its layers have a `with_room`."""
    return has_form(model, "with_room") and all(
        has_form(layer, "with_room")
        for layer in _layers_of(model)
        if hasattr(layer, "initial_cache")
    )


def require_hidden_step(model, user):
    """Raises InputError if a model has no `hidden_step` for its `step`: `user` runs only that."""
    if not has_form(model, "hidden_step"):
        raise InputError(
            f"{user} runs the `hidden_step` of a model and ignores the `step` of "
            f"{type(model).__name__}: give a Transformer."
        )


def _layers_of(model):
    return keras_compat.all_layers(model) if isinstance(model, keras.layers.Layer) else []


def _owner(kind, name):
    """Returns the class that defines a method of a class; None if there is none."""
    return next((owner for owner in kind.__mro__ if name in vars(owner)), None)
