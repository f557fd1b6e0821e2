"""Where pieces stand in a text: from places in bytes to places in characters."""

from typing import NamedTuple

import tensorflow as tf


class Located(NamedTuple):
    """The pieces of texts and what part of its text each one covers.

    Places count characters (Unicode code points), so that `text[begin:end]` is the part in
    Python. Bad bytes count as `bytes.decode("utf-8", "replace")` replaces them.

    Attributes:
        ids: RaggedTensor int32 [batch, (length)].
        begins: RaggedTensor int32 [batch, (length)].
        ends: RaggedTensor int32 [batch, (length)]. A part is never empty. A piece of nothing but
            spaces covers them, any other leaves out those before it; every piece that spells a
            character in part covers it whole.
    """

    ids: tf.RaggedTensor
    begins: tf.RaggedTensor
    ends: tf.RaggedTensor


def valid_utf8(texts):
    """Returns texts, string of any shape, with U+FFFD for bad bytes."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def located(texts, ids, begins, ends):
    """Returns the `Located` of pieces whose places are known in bytes.

    Args:
        texts: string [batch], valid UTF-8.
        ids: RaggedTensor int32 [batch, (length)].
        begins, ends: integers [pieces], bytes of each piece within its own text, in rising order.
            They may lie within a character, spaces before a piece belong to it, and a piece that
            has no bytes of its own ends where it begins: it stands for what the next one does.
    """
    rows = ids.value_rowids()
    # All texts in one row of bytes, and a last byte so that there is one after each text.
    offsets = tf.gather(tf.cumsum(tf.strings.length(texts), exclusive=True), rows)
    bytes_ = tf.io.decode_raw(tf.strings.reduce_join(texts) + ".", tf.uint8)
    begins = tf.cast(begins, tf.int32) + offsets
    ends = _furthest(tf.cast(ends, tf.int32) + offsets, rows, begins)

    printed = bytes_ != ord(" ")
    next_printed = tf.cast(tf.where(printed)[:, 0], tf.int32)
    core = tf.gather(next_printed, tf.gather(_count_before(printed), begins))
    begins = tf.where(core < ends, core, begins)

    first = tf.bitwise.bitwise_and(bytes_, 0xC0) != 0x80  # a character's first byte
    characters = _count_before(first)
    inside = 1 - tf.cast(tf.gather(first, begins), tf.int32)
    begins, ends, offsets = (tf.gather(characters, places) for places in (begins, ends, offsets))
    return Located(ids, ids.with_values(begins - inside - offsets), ids.with_values(ends - offsets))


def _count_before(flags):
    """Counts the flags set before each place, int32 [places]."""
    return tf.cumsum(tf.cast(flags, tf.int32), exclusive=True)


def _furthest(ends, rows, begins):
    """Returns the last of the ends, int32 [pieces], among neighbours with the same begin."""
    runs = first_of_runs(rows) | first_of_runs(begins)
    runs = tf.cumsum(tf.cast(runs, tf.int32)) - 1
    return tf.gather(tf.math.segment_max(ends, runs), runs)


def first_of_runs(values):
    """Says of each value [n] whether it differs from the one before, bool [n]."""
    return tf.concat([tf.ones_like(values[:1], tf.bool), values[1:] != values[:-1]], axis=0)
