"""Names of a model's variables that stay the same from one process to the next.

A checkpoint needs them, and Keras has none: variable paths hold running numbers (`dense_3`) and
repeat themselves, and the object graph of `tf.train.Checkpoint` leaves out every layer kept in a
list. Here a name is the way to a variable over attributes: `encoder/layers/0/attention/kernel`.
"""

import keras

# Where Keras keeps again what an attribute with a better name holds.
_TRACKERS = {
    "_layers",
    "_metrics",
    "_non_trainable_variables",
    "_operations",
    "_seed_generators",
    "_trainable_variables",
    "_variables",
}


def model_variables(model):
    """Returns the variables of a model, {name: `keras.Variable`}.

    Names begin with `model/`, those of the random states of its dropout with `random/`.
    """
    found = {}
    kinds = (keras.layers.Layer, keras.random.SeedGenerator)
    for path, owner, variable in _walk(model, (), kinds, set()):
        is_random = isinstance(owner, keras.random.SeedGenerator)
        found["/".join(("random" if is_random else "model", *path))] = variable
    return found


def optimizer_variables(optimizer):
    """Returns the variables of a built optimizer, {name: `keras.Variable`}: `optimizer/...`."""
    of_the_model = {id(variable) for variable in _trained_variables(optimizer)}
    walk = _walk(optimizer, ("optimizer",), (keras.optimizers.Optimizer,), of_the_model)
    return {"/".join(path): variable for path, _, variable in walk}


def _trained_variables(optimizer):
    inner = getattr(optimizer, "inner_optimizer", None)
    return optimizer._trainable_variables + (_trained_variables(inner) if inner else [])


def _walk(owner, path, kinds, seen):
    """Yields (path, owner, variable) for all variables below `owner`, each once."""
    for name, value in _children(owner):
        if id(value) in seen:
            continue
        here = (*path, str(name))
        if isinstance(value, keras.Variable):
            seen.add(id(value))
            yield here, owner, value
        elif isinstance(value, (*kinds, list, tuple, dict)):
            seen.add(id(value))
            yield from _walk(value, here, kinds, seen)


def _children(owner):
    if isinstance(owner, dict):
        return owner.items()
    if isinstance(owner, (list, tuple)):
        return enumerate(owner)

    def rank(item):
        name = item[0]
        is_tracker = name in _TRACKERS or name.startswith("_self_")
        return 2 if is_tracker else name.startswith("_")

    return sorted(vars(owner).items(), key=rank)
