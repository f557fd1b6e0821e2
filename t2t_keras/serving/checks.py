"""Validation of requests inside the graph: errors name the invalid input."""

import tensorflow as tf

_RANKS = {1: "give one string for each row, shape [batch]", 2: "give shape [batch, length]"}


def validate_texts(**inputs):
    """Raises InvalidArgumentError unless all inputs are strings [batch] of one batch size.

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


def validate_ids(vocab_size, **inputs):
    """Raises InvalidArgumentError unless inputs are ids [batch, length] of the vocabulary.

    Args:
        vocab_size: int.
        inputs: {name: int32 tensor of any shape}.

    Returns:
        List of the inputs.
    """
    tensors, checks = [], []
    for name, x in inputs.items():
        tensor = _of_rank(2, name, x)
        values = tf.concat([[0], tf.reshape(tensor, [-1])], axis=0)  # never empty
        least, most = tf.reduce_min(values), tf.reduce_max(values)
        message = f"{name} holds the id {{}}: ids are 0 to {vocab_size - 1}."
        inside = (least >= 0) & (most < vocab_size)
        checks.append(_check(inside, message, tf.where(least < 0, least, most)))
        tensors.append(tensor)
    return _after(checks, tensors)


def _of_rank(rank, name, tensor):
    # A server passes on any shape that a client sends. `tf.rank` would use the signature's rank,
    # and TensorFlow's optimizer the rank that later operations require: count the dimensions.
    shape = tf.shape(tensor)
    found = tf.size(tf.where(shape >= 0))
    message = f"{name} has shape {{}}: {_RANKS[rank]}."
    return _after([_check(found == rank, message, shape)], [tensor])[0]


def _check(condition, message, values):
    return tf.debugging.Assert(condition, [tf.strings.format(message, values)])


def _after(checks, tensors):
    # In eager mode a failed check has raised, and a passed one is None.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [tf.identity(tensor) for tensor in tensors]
