"""A sequence's numbers as those of heads, which stand before positions (paper, section 3.2.2)."""

import tensorflow as tf


def split_heads(x, heads):
    """Returns [batch, heads, length, width] of [batch, length, heads · width]."""
    batch, length = tf.unstack(tf.shape(x)[:2])
    x = tf.reshape(x, [batch, length, heads, x.shape[-1] // heads])
    return tf.transpose(x, [0, 2, 1, 3])


def split_stacked(x, widths, heads):
    """Returns the heads of several tensors that stand side by side, as `split_heads` does.

    Of equal widths all change places at once, and none is copied before.

    Args:
        x: [batch, length, Σ widths].
        widths: those of the tensors, ints.
        heads: int, of each.

    Returns:
        List of [batch, heads, length, width / heads], one for each width.
    """
    if len(set(widths)) > 1:
        return [split_heads(part, heads) for part in tf.split(x, widths, axis=-1)]
    batch, length = tf.unstack(tf.shape(x)[:2])
    x = tf.reshape(x, [batch, length, len(widths), heads, widths[0] // heads])
    return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]))
