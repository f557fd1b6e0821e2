"""Validation of requests in the graph: an invalid one fails with a message that names the input.

A model server passes on any shape and any number that a client sends.
"""

import tensorflow as tf


def validate_rows(**inputs):
    """Raises InvalidArgumentError unless all inputs have a row for each text, shape [batch].

    Args:
        inputs: {name: tensor of any shape, strings or numbers}.

    Returns:
        List of the inputs.
    """
    names = list(inputs)
    tensors = [
        _of_rank(1, name, x, f"one {'string' if x.dtype == tf.string else 'number'} for each row, ")
        for name, x in inputs.items()
    ]
    sizes = [tf.size(x) for x in tensors]
    first = names[0]
    checks = [
        _same_size(first, name, sizes[0], size)
        for name, size in zip(names[1:], sizes[1:], strict=True)
    ]
    return _after(checks, tensors)


def validate_rows_of(source_ids, **inputs):
    """Raises InvalidArgumentError unless all inputs have a row for each source, shape [batch].

    Args:
        source_ids: int32 [batch, length].
        inputs: as for `validate_rows`.

    Returns:
        List of the inputs.
    """
    tensors, count = validate_rows(**inputs), tf.shape(source_ids)[0]
    name = next(iter(inputs))
    return _after([_same_size("source_ids", name, count, tf.size(tensors[0]))], tensors)


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


def validate_numbers(ranges, **inputs):
    """Raises InvalidArgumentError unless all numbers are in their range.

    Args:
        ranges: {name: `Range`}.
        inputs: {name: numbers [batch]}.

    Returns:
        List of the inputs.
    """
    checks = []
    for name, x in inputs.items():
        allowed = ranges[name]
        wrong = tf.boolean_mask(x, ~((x >= allowed.least) & (x <= allowed.most)))  # NaN, too
        message = f"{name} holds {{}}: give {allowed}."
        checks.append(_check(tf.size(wrong) == 0, message, wrong[:1]))
    return _after(checks, inputs.values())


def _of_rank(rank, name, tensor, wanted=""):
    # A server passes on any shape that a client sends. `tf.rank` would use the signature's rank,
    # and TensorFlow's optimizer the rank that later operations require: count the dimensions.
    shape = tf.shape(tensor)
    found = tf.size(tf.where(shape >= 0))
    shapes = {1: "shape [batch]", 2: "shape [batch, length]"}
    message = f"{name} has shape {{}}: give {wanted}{shapes[rank]}."
    return _after([_check(found == rank, message, shape)], [tensor])[0]


def _same_size(first, name, first_size, size):
    return _check(
        size == first_size,
        f"{first} has {{}} rows and {name} has {{}}: give one {name} for each {first}.",
        (first_size, size),
    )


def _check(condition, message, values):
    return tf.debugging.Assert(condition, [tf.strings.format(message, values)])


def _after(checks, tensors):
    # In eager mode a failed check has raised, and a passed one is None.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [tf.identity(tensor) for tensor in tensors]
