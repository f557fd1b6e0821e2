"""Parts of texts in a graph: RaggedTensors string [batch, (parts)], by string operations only."""

import tensorflow as tf

from t2t_keras.data.base_tokenizer import valid_utf8

_CUT = b"\xff"
"""Marks the two ends of a match; no valid UTF-8 has this byte."""


def split_by_pattern(texts, pattern):
    """Divides texts, string [batch], at the matches of a pattern; the matches are parts as well.

    Bytes that are not UTF-8 count as U+FFFD. The pattern has RE2's syntax; an empty match divides a
    text and adds no part.

    Returns:
        string [batch, (parts)], no part empty, whose concatenation is the text; and bool
        [all parts], True for matches.
    """
    marked = tf.strings.regex_replace(valid_utf8(texts), pattern, _CUT + rb"\0" + _CUT)
    split = tf.raw_ops.StringSplitV2(input=marked, sep=_CUT)
    exists = tf.squeeze(tf.where(split.values != ""), 1)
    rows, number = tf.unstack(tf.gather(split.indices, exists), num=2, axis=1)
    parts = tf.RaggedTensor.from_value_rowids(
        tf.gather(split.values, exists), rows, tf.size(texts, tf.int64), validate=False
    )
    return parts, number % 2 == 1  # every second one is a match


def join_parts(parts, values):
    """Returns the texts of which values, string [all parts], are the parts: string [batch]."""
    return tf.strings.reduce_join(parts.with_values(values), axis=1)


def neighbors(rows, values, edge):
    """Returns the value before and behind each value, tensor [values], in its row: [values] both.

    rows: integers [values], in order; edge: the value beyond both ends of a row.
    """
    edges = tf.fill(tf.minimum(tf.shape(values), 1), edge)
    same_row = rows[1:] == rows[:-1]
    before = tf.concat([edges, tf.where(same_row, values[:-1], edge)], axis=0)
    return before, tf.concat([tf.where(same_row, values[1:], edge), edges], axis=0)


def ends_in_row(parts, lengths):
    """Returns the sum of lengths, int32 [all parts], up to each part in its row, with its own."""
    ends = tf.cumsum(lengths)
    first = tf.gather(parts.row_starts(), parts.value_rowids())
    return ends - tf.gather(tf.concat([[0], ends], axis=0), first)


def order_in_row(parts, flags):
    """Returns the number of True flags, bool [all parts], before each part in its row: int32."""
    ones = tf.cast(flags, tf.int32)
    return ends_in_row(parts, ones) - ones


def in_order(others, flags, values):
    """Returns `others`, string [rows], with values in place of the rows whose flag is True.

    flags: bool [rows]; values: string [number of True flags].
    """
    place = tf.minimum(tf.cumsum(tf.cast(flags, tf.int32), exclusive=True), tf.size(values))
    return tf.where(flags, tf.gather(tf.concat([values, [""]], axis=0), place), others)


def in_batches(function, rows, size, dtype=tf.string):
    """Applies a function to rows in batches of a size, inside a graph or outside: dtype [rows].

    The function takes some of the rows, tensor [rows, ...], and returns one value for each.
    """

    def next_batch(start, results):
        end = start + size
        return end, tf.concat([results, function(rows[start:end])], axis=0)

    _, results = tf.while_loop(
        lambda start, _: start < tf.shape(rows)[0],
        next_batch,
        (tf.constant(0), tf.constant([], dtype)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    return results
