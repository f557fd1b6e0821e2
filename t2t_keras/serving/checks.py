"""Requests that cannot be answered: refused inside the graph, naming the input at fault."""

import tensorflow as tf

_RANKS = {1: "give one string for each row, shape [batch]", 2: "give shape [batch, length]"}


def texts(**inputs):
    """Refuses inputs that are not strings [batch], all of one batch size.

    Args:
        inputs: {name: tensor of any shape}.

    Returns:
        List of the inputs.
    """
    names, tensors = list(inputs), [_of_rank(1, name, x) for name, x in inputs.items()]
    sizes = [tf.size(x) for x in tensors]
    first = names[0]
    checks = [
        _check(
            size == sizes[0],
            f"{first} has {{}} rows and {name} has {{}}: give one {name} for each {first}.",
            (sizes[0], size),
        )
        for name, size in zip(names[1:], sizes[1:], strict=True)
    ]
    return _after(checks, tensors)


def ids(vocab_size, **inputs):
    """Refuses inputs that are not ids [batch, length] within the vocabulary.

    Args:
        vocab_size: int.
        inputs: {name: int32 tensor of any shape}.

    Returns:
        List of the inputs.
    """
    tensors, checks = [], []
    for name, x in inputs.items():
        tensor = _of_rank(2, name, x)
        values = tf.concat([[0], tf.reshape(tensor, [-1])], axis=0)  # not even then empty
        least, most = tf.reduce_min(values), tf.reduce_max(values)
        message = f"{name} holds the id {{}}: ids are 0 to {vocab_size - 1}."
        inside = (least >= 0) & (most < vocab_size)
        checks.append(_check(inside, message, tf.where(least < 0, least, most)))
        tensors.append(tensor)
    return _after(checks, tensors)


def _of_rank(rank, name, tensor):
    # A server hands on whatever shape a client sends. `tf.rank` would believe the signature, and
    # TensorFlow's optimizer what the operations behind the check ask for: so the sizes are counted.
    shape = tf.shape(tensor)
    found = tf.size(tf.where(shape >= 0))
    message = f"{name} has shape {{}}: {_RANKS[rank]}."
    return _after([_check(found == rank, message, shape)], [tensor])[0]


def _check(condition, message, values):
    return tf.debugging.Assert(condition, [tf.strings.format(message, values)])


def _after(checks, tensors):
    # Eager checks have raised already and are None.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [tf.identity(tensor) for tensor in tensors]
