"""Embeddings and softmax share one matrix (paper, section 3.4)."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="t2t_keras")
class SharedEmbedding(keras.layers.Layer):
    """One matrix for the source embedding, the target embedding and the pre-softmax product.

    "In the embedding layers, we multiply those weights by √d_model" (section 3.4).

    Args:
        vocab_size: number of ids; 0 is padding.
        model_dim: width of an embedding.

    Call arguments:
        ids: int32 [batch, length].

    Returns:
        [batch, length, model_dim] in the compute dtype.
    """

    def __init__(self, vocab_size, model_dim, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.model_dim = model_dim

    def build(self, input_shape=None):
        self.matrix = self.add_weight(
            name="matrix",
            shape=(self.vocab_size, self.model_dim),
            # Embeddings have unit variance once multiplied by √d_model, logits without it.
            initializer=keras.initializers.RandomNormal(stddev=self.model_dim**-0.5),
        )

    def call(self, ids):
        scale = tf.cast(self.model_dim**0.5, self.compute_dtype)
        return tf.gather(tf.cast(self.matrix, self.compute_dtype), ids) * scale

    def logits(self, hidden):
        """Returns hidden · matrixᵀ: float32 [..., vocab_size] of hidden [..., model_dim]."""
        dtype = self.compute_dtype
        rows = tf.reshape(tf.cast(hidden, dtype), [-1, self.model_dim])
        logits = tf.matmul(rows, tf.cast(self.matrix, dtype), transpose_b=True)
        shape = tf.concat([tf.shape(hidden)[:-1], [self.vocab_size]], axis=0)
        logits = tf.cast(tf.reshape(logits, shape), tf.float32)
        return tf.ensure_shape(logits, [*hidden.shape[:-1], self.vocab_size])

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "model_dim": self.model_dim,
        }
