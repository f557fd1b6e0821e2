"""Embeddings and softmax share one matrix (paper, section 3.4)."""

import keras
import tensorflow as tf

from t2t_keras.layers.few_rows import ColumnBlocks
from t2t_keras.layers.logit_factors import LogitFactors, remember_factors
from t2t_keras.layers.readings import readings
from t2t_keras.layers.weight_copies import copied


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
            # Cast where it is used, and no more of it: a frequent word's gradient adds up many
            # rows, too many for bfloat16.
            autocast=False,
        )

    def call(self, ids):
        return self.embed(ids, self.matrix)

    def embed(self, ids, matrix):
        """Returns what a call does, which would cast all of a matrix that it is given.

        Args:
            ids: int32 [batch, length].
            matrix: one of `readings`, or the matrix itself.
        """
        rows = tf.cast(tf.gather(matrix, ids), self.compute_dtype)  # [batch, length, model_dim]
        return rows * tf.cast(self.model_dim**0.5, self.compute_dtype)

    def readings(self, count):
        """Returns the matrix, [vocab_size, model_dim], for so many uses, see `readings.py`."""
        return readings(tf.convert_to_tensor(self.matrix), count)

    def logits(self, hidden, for_loss=False, matrix=None, seek_best=True):
        """Returns hidden · matrixᵀ, float32 [..., vocab_size].

        Args:
            hidden: [..., model_dim].
            for_loss: whether they remember their `LogitFactors`, for a loss that multiplies itself.
            matrix: one of `readings`; None: the matrix itself.
            seek_best: whether that loss shall find out the likeliest classes, for a metric.
        """
        hidden = tf.cast(hidden, self.compute_dtype)
        matrix = self.matrix if matrix is None else matrix
        factors = LogitFactors(hidden, tf.convert_to_tensor(matrix), seek_best)
        logits = factors.multiply()
        if for_loss:
            remember_factors(logits, factors)
        return logits

    def columns(self):
        """Returns the product with the matrix turned round, of [rows, model_dim] a function.

        It gives [rows, vocab_size], both in the compute dtype.
        """
        turned = copied(
            ("columns", id(self.matrix), self.compute_dtype),
            lambda: tf.transpose(tf.cast(self.matrix, self.compute_dtype)),
        )
        return lambda hidden: tf.matmul(hidden, turned)

    def column_blocks(self):
        """Returns what `columns` does, by `ColumnBlocks`, for steps of few rows."""
        return ColumnBlocks(self.matrix, self.compute_dtype, turned=True).multiply

    def step_logits(self, hidden, multiply=None):
        """Returns what `logits` does, of the rows of a step of decoding, [rows, model_dim].

        Args:
            hidden: [rows, model_dim].
            multiply: from `columns` or `column_blocks`; either is faster than the matrix as it is.
        """
        if multiply is None:
            return self.logits(hidden)
        return tf.cast(multiply(tf.cast(hidden, self.compute_dtype)), tf.float32)

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "model_dim": self.model_dim,
        }
