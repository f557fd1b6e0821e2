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
        order = self._order(("split", heads), self.beams, heads)
        parts = _taken(tf.reshape(rows, [-1, width]), order)
        return tf.reshape(parts, [self.batch, heads, self.beams, width])

    def join(self, tensor):
        """Returns [batch · beams, heads · width] of a tensor [batch, heads, beams, width]."""
        heads, width = tensor.shape[1], tensor.shape[3]
        order = self._order(("join", heads), heads, self.beams)
        return tf.reshape(_taken(tf.reshape(tensor, [-1, width]), order), [-1, heads * width])

    def _order(self, key, outer, inner):
        """Returns where [batch, outer, inner] has what [batch, inner, outer] wants, one after one.

        None if they are the same. All layers of a step share it.
        """
        if isinstance(self.beams, int) and self.beams == 1:
            return None
        if key not in self._orders:
            first = tf.range(self.batch)[:, tf.newaxis, tf.newaxis] * (outer * inner)
            within = tf.range(outer) * inner + tf.range(inner)[:, tf.newaxis]
            self._orders[key] = tf.reshape(first + within, [-1])
        return self._orders[key]


def _taken(parts, order):
    return parts if order is None else tf.gather(parts, order)
