"""Batches of labelled text, by token budget."""

import tensorflow as tf

from t2t_keras.data.batching import LengthBuckets
from t2t_keras.errors import InputError


class LabelledBuckets(LengthBuckets):
    """Batches of texts of like length, each with the id of its class.

    Pairs are texts and classes: a source is a text's ids and the end id, a target begins with the
    class's id, as `write_shards` with `Labels` for a target tokenizer lays them down.

    Args:
        tokens_per_batch: most tokens of a batch, padding included.
        max_length: tokens of a text, its end included; what goes beyond is cut off.
        batch_multiple: as for `LengthBuckets`.
    """

    def __init__(self, tokens_per_batch, max_length, batch_multiple=1):
        super().__init__(tokens_per_batch, batch_multiple)
        if max_length < 2:
            raise InputError(f"max_length is {max_length}: give at least 2, a token and the end.")
        self.max_length = max_length

    def plan(self, lengths, seed):
        return super().plan(tf.minimum(lengths, self.max_length), seed)

    def build(self, window, members):
        """Builds one batch.

        Returns:
            `({"source_ids"}, labels, weights)`: int32 `[batch, length]`, int32 `[batch]` and
            float32 `[batch]`, all 1.
        """
        texts = tf.gather(window.source, members)
        ends = texts[:, -1:]
        ids = tf.concat([texts[:, :-1][:, : self.max_length - 1], ends], axis=1).to_tensor()
        labels = tf.gather(window.target, members)[:, :1].values
        return {"source_ids": ids}, labels, tf.ones_like(labels, tf.float32)
