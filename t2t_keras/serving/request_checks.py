"""Validation of requests in the graph: an invalid one fails with a message that names the input.

A model server passes on any shape and any number that a client sends.
"""

import tensorflow as tf

from t2t_keras.graphs import after


def validated(vocab_size, given):
    """Returns {name: tensor} of the inputs of a request, {`Input`: tensor}.

    The graph fails unless each input has its rank, [batch] or ids [batch, length], all have a row
    for each of the first one, ids are in the vocabulary, and numbers in their ranges.
    """
    tensors, checks = {}, []
    for x, value in sorted(given.items(), key=lambda item: -item[0].rank):  # ids first
        tensor = _of_rank(x, value)
        if tensors:
            first, size = next(iter(tensors.items()))
            sizes = tf.shape(size)[0], tf.shape(tensor)[0]
            message = f"{first} has {{}} rows and {x.name} has {{}}: give one {x.name} for each "
            checks.append(_check(sizes[0] == sizes[1], f"{message}{first}.", sizes))
        if x.rank == 2:
            values = tf.concat([[0], tf.reshape(tensor, [-1])], axis=0)  # never empty
            least, most = tf.reduce_min(values), tf.reduce_max(values)
            message = f"{x.name} holds the id {{}}: ids are 0 to {vocab_size - 1}."
            inside = (least >= 0) & (most < vocab_size)
            checks.append(_check(inside, message, tf.where(least < 0, least, most)))
        if x.allowed is not None:
            inside = (tensor >= x.allowed.least) & (tensor <= x.allowed.most)
            wrong = tf.boolean_mask(tensor, ~inside)  # NaN, too
            message = f"{x.name} holds {{}}: give {x.allowed}."
            checks.append(_check(tf.size(wrong) == 0, message, wrong[:1]))
        tensors[x.name] = tensor
    return after(checks, tensors)


def _of_rank(x, tensor):
    # `tf.rank` would use the signature's rank, and TensorFlow's optimizer the rank that later
    # operations require: count the dimensions.
    shape = tf.shape(tensor)
    kind = "string" if tensor.dtype == tf.string else "number"
    wanted = {1: f"one {kind} for each row, shape [batch]", 2: "shape [batch, length]"}[x.rank]
    right = tf.size(tf.where(shape >= 0)) == x.rank
    return after([_check(right, f"{x.name} has shape {{}}: give {wanted}.", shape)], tensor)


def _check(condition, message, values):
    return tf.debugging.Assert(condition, [tf.strings.format(message, values)])
