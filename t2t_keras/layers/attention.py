"""What one head computes: values weighed by how well keys fit a query (paper, section 3.2.1)."""

import keras
import tensorflow as tf

from t2t_keras.layers import few_queries
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.selection import Softmax


class Attention(keras.layers.Layer):
    """Values weighed by how well their keys fit a query; a subclass says what the score is.

    Args:
        selection: from scores to weights, see `selection.py`; `Softmax()` if None.
        dropout: share of the weights set to zero in training, the others grow; 0: none.

    Call arguments:
        query: [..., query, key_dim].
        key: [..., key, key_dim].
        value: [..., key, value_dim].
        attention_mask: bool, broadcastable to [..., query, key], True where attention is allowed;
            None allows all. A query that may attend to nothing gets zeros.

    Returns:
        [..., query, value_dim] in the compute dtype; the weights themselves are float32.
    """

    def __init__(self, selection=None, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.selection = revived(selection) or Softmax()
        self.dropout = Dropout(dropout, dtype=self.dtype_policy)

    def call(self, query, key, value, attention_mask=None):
        weights = self.weigh(query, key, attention_mask)  # [..., query, key]
        weights = self.dropout(tf.cast(weights, value.dtype))
        context = few_queries.matmul(weights, value)  # [..., query, value_dim]
        if attention_mask is None:
            return context
        attends = tf.reduce_any(attention_mask, axis=-1, keepdims=True)  # [..., query, 1]
        return context * tf.cast(attends, context.dtype)

    def weigh(self, query, key, attention_mask=None):
        """Returns the attention weights, float32 [..., query, key]; every row sums to 1."""
        return self.selection(self.score(query, key), attention_mask)

    def score(self, query, key):
        """Returns how well each key fits each query, float32 [..., query, key]."""
        raise NotImplementedError

    def get_config(self):
        selection = keras.saving.serialize_keras_object(self.selection)
        return super().get_config() | {"selection": selection, "dropout": self.dropout.rate}


@keras.saving.register_keras_serializable(package="t2t_keras")
class ScaledDotProductAttention(Attention):
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V (paper, section 3.2.1, equation 1)."""

    def score(self, query, key):
        """Returns Q Kᵀ / √d_k, float32 [..., query, key]."""
        scale = tf.cast(key.shape[-1] ** -0.5, query.dtype)
        return tf.cast(few_queries.matmul(query * scale, key, transpose_b=True), tf.float32)


@keras.saving.register_keras_serializable(package="t2t_keras")
class DotProductAttention(Attention):
    """Softmax(Q Kᵀ) V, "identical to our algorithm, except for the scaling" (section 3.2.1)."""

    def score(self, query, key):
        """Returns Q Kᵀ, float32 [..., query, key]."""
        return tf.cast(few_queries.matmul(query, key, transpose_b=True), tf.float32)


def revived(part):
    """Returns the object of a saved file's description; an object, or None, as it is."""
    return keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
