"""The rows of decoding as heads of sentences, and back."""

import tensorflow as tf


class BeamRows:
    """How [batch · beams, heads · width] stands as [batch, heads, beams, width].

    The rows are gathered in their new order: of tensors as small as those of one step
    `tf.transpose` takes four times as long. With one beam it is the same order.

    Args:
        batch: int32 scalar, sentences.
        beams: hypotheses of each, int, or int32 scalar if not known statically.
    """

    def __init__(self, batch, beams):
        self.batch = batch
        self.beams = beams
        self._orders = {}

    def split(self, rows, heads):
        """Returns [batch, heads, beams, width] of rows [batch · beams, heads · width]."""
        width = rows.shape[-1] // heads
        parts = self._swapped(tf.reshape(rows, [-1, width]), self.beams, heads)
        return tf.reshape(parts, [self.batch, heads, self.beams, width])

    def join(self, tensor):
        """Returns [batch · beams, heads · width] of a tensor [batch, heads, beams, width]."""
        heads, width = tensor.shape[1], tensor.shape[3]
        parts = self._swapped(tf.reshape(tensor, [-1, width]), heads, self.beams)
        return tf.reshape(parts, [-1, heads * width])

    def _swapped(self, parts, outer, inner):
        """Returns parts, in order of [batch, outer, inner], in order of [batch, inner, outer]."""
        if isinstance(self.beams, int) and self.beams == 1:
            return parts
        places = (outer is self.beams, inner)
        if places not in self._orders:  # all layers of a step share it
            first = tf.range(self.batch)[:, tf.newaxis, tf.newaxis] * (outer * inner)
            within = tf.range(outer) * inner + tf.range(inner)[:, tf.newaxis]
            self._orders[places] = tf.reshape(first + within, [-1])
        return tf.gather(parts, self._orders[places])
