"""Checks of masks and of a batch: ids outside the vocabulary, labels of no class, rows too long.

TensorFlow's CPU kernels refuse such values but do not name the input; GPU kernels and XLA continue,
and one invalid label makes all weights NaN. `checked` examines a batch on the host, outside of what
XLA compiles, so that no device waits; `input_errors` raises the findings as an `InputError`.
"""

import functools
import re
from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError

_NOT_COUNTED = "to ignore a label (-100 elsewhere), give it the id 0 and the sample weight 0"
_RAISED = re.compile(
    r"assertion failed: \[(\w+ (?:hold|are rows of) |a pair of )\] \[(-?\d+)\] \[(.*?)\]\n"
)


class Limit(NamedTuple):
    """The allowed values of integers."""

    size: int  # the values are 0 to size - 1
    owner: str  # of the size, such as "the vocabulary has 1000 ids"
    fix: str  # advice for values outside the range

    @classmethod
    def of_ids(cls, vocab_size, fix="encode with the tokenizer of the model, or raise vocab_size"):
        """Returns the `Limit` of ids in a vocabulary."""
        return cls(vocab_size, f"the vocabulary has {vocab_size} ids", fix)

    @classmethod
    def of_labels(cls, vocab_size):
        """Returns the `Limit` of the ids of target tokens."""
        return cls.of_ids(vocab_size, f"encode with the tokenizer of the model; {_NOT_COUNTED}")

    @classmethod
    def of_classes(cls, classes):
        """Returns the `Limit` of the labels of a classifier."""
        return cls(classes, f"the model has {classes} classes", f"raise classes; {_NOT_COUNTED}")

    def make_check(self, name, values):
        """Returns the `Check` of integers [...] that are called `name`."""
        values = tf.cast(values, tf.int64)
        low, high = tf.reduce_min(values), tf.reduce_max(values)
        return Check(
            (low >= 0) & (high < self.size),
            f"{name} hold ",
            tf.where(low < 0, low, high),
            f", but {self.owner}, 0 to {self.size - 1}: {self.fix}.",
        )


class Check(NamedTuple):
    """A condition, and the sentence to raise if it is False."""

    holds: tf.Tensor  # bool scalar
    before: str  # the sentence before the value
    value: tf.Tensor  # int scalar
    after: str  # the rest of the sentence

    def require(self):
        """Returns an operation that fails unless the condition holds; eagerly raises InputError."""
        if not tf.executing_eagerly():
            return tf.debugging.Assert(self.holds, [self.before, self.value, self.after])
        if not self.holds:
            raise InputError(f"{self.before}{int(self.value)}{self.after}")
        return None


def require_dense(name, values):
    """Raises InputError for a RaggedTensor."""
    if isinstance(values, tf.RaggedTensor):
        raise InputError(
            f"{name} are a RaggedTensor of shape {values.shape}: give {name}.to_tensor(), rows of "
            "one length with 0 as padding."
        )


def require_sequences(ids):
    """Raises InputError for ids that are not sequences, [batch, length]."""
    require_dense("ids", ids)
    shape = tf.TensorShape(ids.shape)  # of an array as well
    if shape.rank != 2 or shape[1] == 0:
        raise InputError(
            f"ids have shape {shape}: give [batch, length], and each sequence at least its end "
            "or start id."
        )


def as_mask(mask):
    """Returns a mask as bool; one of 0 and 1, as preprocessing tools make it, counts as bool.

    Raises InputError for floats below 0, as other libraries add to scores of masked keys; in a
    graph `tf.errors.InvalidArgumentError` when it runs.
    """
    if mask is None:
        return None
    mask = tf.convert_to_tensor(mask)
    text = f"a mask is {mask.dtype.name}, with values below 0: give bool, True where to attend."
    if mask.dtype.is_floating:
        is_mask = tf.reduce_all(mask >= 0)
        if not tf.executing_eagerly():
            with tf.control_dependencies([tf.debugging.Assert(is_mask, [text])]):
                return tf.cast(mask, tf.bool)
    else:
        text = f"a mask is {mask.dtype.name}: give bool, True where to attend."
        is_mask = mask.dtype.is_bool or mask.dtype.is_integer
    if not is_mask:
        raise InputError(text)
    return tf.cast(mask, tf.bool)


def row_mask(name, mask, x, rows="x"):
    """Returns the mask of rows x [batch, length, ...] as bool [batch, length]; None: None.

    Raises InputError for another shape, as far as it is known, or kind.
    """
    if mask is None:
        return None
    require_dense(name, mask)
    mask = as_mask(mask)
    if not mask.shape.is_compatible_with(x.shape[:2]):
        raise _wrong_shape(name, mask.shape, f"[batch, length], here {x.shape[:2]} as {rows}")
    return mask


def row_integers(name, values, x, rows="x", broadcast=False):
    """Returns integers [batch, length] of rows x [batch, length, ...] as a tensor; None: None.

    With `broadcast` they may be broadcastable to that shape. Raises InputError for another shape,
    as far as it is known, or kind.
    """
    if values is None:
        return None
    require_dense(name, values)
    values = tf.convert_to_tensor(values)
    if not values.dtype.is_integer:
        raise InputError(
            f"{name} are {values.dtype.name}: give integers; a mask is given as mask=."
        )
    form = f"[batch, length], here {x.shape[:2]} as {rows}"
    if broadcast:
        require_broadcastable(name, values, x.shape[:2], form)
    elif not values.shape.is_compatible_with(x.shape[:2]):
        raise _wrong_shape(name, values.shape, form)
    return values


def require_broadcastable(name, values, shape, form):
    """Raises InputError for a tensor that cannot be broadcast to a static shape; None may.

    `form` is the shape in words.
    """
    if values is None:
        return
    try:
        fits = tf.broadcast_static_shape(values.shape, shape).is_compatible_with(shape)
    except ValueError:
        fits = False
    if not fits:
        raise _wrong_shape(name, values.shape, f"{form}, {shape}, or broadcastable to it")


def _wrong_shape(name, shape, form):
    return InputError(f"{name} has shape {shape}: give {form}.")


def require_no_float16(weights):
    """Raises InputError for weights of float16, which lose small updates."""
    if any(weight.dtype == "float16" for weight in weights):
        raise InputError(
            'Weights are float16, which loses small updates: train with dtype="mixed_float16", '
            'whose weights are float32, or "bfloat16".'
        )


def length_check(name, length, max_positions):
    """Returns the `Check` that rows of this length, int or scalar, fit the learned positions."""
    return Check(
        tf.convert_to_tensor(length) <= max_positions,
        f"{name} are rows of ",
        tf.convert_to_tensor(length),
        f" positions, longer than the learned positions, {max_positions}: cut them, raise "
        "max_positions, or use sinusoidal positions.",
    )


def checked(limits, max_length, inputs, labels=None):
    """Checks inputs and labels and returns them; eager code raises an InputError.

    `limits` are {name of ids, or "labels": `Limit`, or None}, `max_length` the number of learned
    positions, or None. Inputs are a dict of tensors, or only source_ids. Values that are None, or
    no integers, are skipped.
    """
    values = inputs if isinstance(inputs, dict) else {"source_ids": inputs}
    values = {**values, "labels": labels}
    for name, value in values.items():
        require_dense(name, value)
    checks = []
    with ops.on_host():
        for name, limit in limits.items():
            x = values.get(name)
            if limit is None or not tf.is_tensor(x) or isinstance(x, keras.KerasTensor):
                continue
            if not x.dtype.is_integer:
                continue
            checks.append(limit.make_check(name, x))
            side = name.removesuffix("_ids")
            positions = values.get(f"{side}_positions")
            if max_length and side != name and positions is None and x.shape.rank == 2:
                checks.append(length_check(name, tf.shape(x)[1], max_length))
            elif max_length and tf.is_tensor(positions):
                longest = tf.reduce_max(tf.cast(positions, tf.int64)) + 1
                checks.append(length_check(f"{side}_positions", longest, max_length))
        asserted = [check.require() for check in checks]
    if tf.executing_eagerly() or not asserted:
        return inputs, labels
    with tf.control_dependencies(asserted):
        return keras.tree.map_structure(
            lambda x: tf.identity(x) if tf.is_tensor(x) and x.dtype.is_integer else x,
            (inputs, labels),
        )


def input_errors(function):
    """Returns the function of a step that raises a failed `Check` as an `InputError`."""

    @functools.wraps(function)
    def call(*arguments):
        try:
            return function(*arguments)
        except tf.errors.InvalidArgumentError as error:
            if raised := _RAISED.search(f"{error.message}\n"):
                raise InputError("".join(raised.groups())) from None
            raise

    return call
