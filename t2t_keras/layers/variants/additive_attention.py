"""Additive attention (Bahdanau et al. 2015; paper, section 3.2.1: "a feed-forward network with a
single hidden layer").

The hidden layers of all pairs of a query and a key have [query, key, key_dim] elements in each
head. They are computed for a few queries at a time, also in the backward pass, so that the memory
is proportional to the scores.
"""

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.types import Shape

_MAX_HIDDEN = 1 << 23  # elements of hidden layers that may exist at a time: 32 MiB


@keras.saving.register_keras_serializable(package="t2t_keras")
class AdditiveAttention(ScaledDotProductAttention):
    """The score of a query and a key is vᵀ tanh(q + k), with a learned v for each head.

    Bahdanau's score is vᵀ tanh(W s + U h). In multi-head attention q = x W_i^Q and k = y W_i^K
    are projected already, so head i has W = W_i^Q and U = W_i^K. Only v is a new weight.

    Arguments and results are as for `ScaledDotProductAttention`; query, key and value are
    [..., heads, length, width].

    Example:
        >>> attention = layers.AdditiveAttention()
        >>> layers.MultiHeadSelfAttention(4, 8, attention=attention)(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    def build(self, query_shape: Shape, key_shape=None, value_shape=None) -> None:
        super().build(query_shape, key_shape, value_shape)
        heads, key_dim = query_shape[-3], query_shape[-1]
        self.vector = self.add_weight(
            name="vector",
            shape=(heads, key_dim),
            initializer=keras.initializers.RandomNormal(stddev=key_dim**-0.5),
        )

    def score(self, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Returns vᵀ tanh(q + k), float32 [..., heads, query, key]."""
        scores = additive_scores(
            *(tf.cast(tensor, tf.float32) for tensor in (query, key, self.vector))
        )
        return tf.ensure_shape(scores, [*query.shape[:-1], key.shape[-2]])


def additive_scores(query, key, vector):
    """Returns vᵀ tanh(q + k) for all pairs, float32 [..., heads, query, key].

    All are float32: query and key [..., heads, length, key_dim], vector [heads, key_dim].
    """

    def scores_of(tanh, _):
        return (tf.reduce_sum(tanh * vector[:, tf.newaxis], axis=-1),)  # [part, ..., heads, key]

    (scores,) = _by_parts(scores_of, query, key)
    return _with_gradient(_back(scores, query), query, key, vector)


@ops.define_gradient("AdditiveScores")
def _with_gradient(upstream, query, key, vector):  # [..., heads, query, key]
    upstreams = _front(upstream)[..., tf.newaxis]  # [query, ..., heads, key, 1]
    all_but_heads = [*range(key.shape.rank - 2), key.shape.rank - 1]

    def gradients_of(tanh, rows):
        above = upstreams[rows]
        inner = above * vector[:, tf.newaxis] * (1.0 - tanh * tanh)
        of_vector = tf.reduce_sum(above * tanh, axis=all_but_heads)
        return tf.reduce_sum(inner, axis=-2), tf.reduce_sum(inner, axis=0), of_vector

    of_query, of_key, of_vector = _by_parts(
        gradients_of, query, key, tf.zeros_like(key), tf.zeros_like(vector)
    )
    return _back(of_query, query), of_key, of_vector


def _by_parts(compute, query, key, *sums):
    """Computes something for parts of the queries, whose hidden layers fit in memory.

    XLA must know the size of the parts' array, and else computes all queries as one part.

    Args:
        compute: function of the hidden layers of a part, [part, ..., heads, key, key_dim], and the
            slice of its queries, to its rows [part, ...] and a summand for each of `sums`.
        query, key: as for `additive_scores`.
        *sums: zeros of the shapes of the sums.

    Returns:
        The rows of all queries [query, ...], and the sums.
    """
    queries = _front(query)  # [query, ..., heads, key_dim]

    def compute_rows(rows):
        return compute(tf.tanh(queries[rows][..., tf.newaxis, :] + key[tf.newaxis]), rows)

    is_known = query.shape[-2] is not None and key.shape.is_fully_defined()
    if ops.device() == "xla" and not is_known:
        return compute_rows(slice(None))
    count = tf.maximum(tf.shape(query)[-2], 1)  # one part, of no queries, where there are none
    # At least 1, also where there are no keys and no queries.
    part = tf.maximum(_MAX_HIDDEN // tf.maximum(tf.size(key), 1), 1)

    def add_part(begin, parts, *sums):
        computed, *summands = compute_rows(slice(begin, begin + part))
        sums = [total + summand for total, summand in zip(sums, summands, strict=True)]
        return begin + part, parts.write(begin // part, computed), *sums

    parts = tf.TensorArray(tf.float32, -(-count // part), infer_shape=False)
    _, parts, *sums = tf.while_loop(lambda begin, *_: begin < count, add_part, (0, parts, *sums))
    return parts.concat(), *sums


def _front(x):
    """Brings the queries to the front: [..., query, width] --> [query, ..., width]."""
    rank = x.shape.rank
    return tf.transpose(x, [rank - 2, *range(rank - 2), rank - 1])


def _back(x, query):
    """Undoes `_front`, and sets the static sizes to those of `query`, except the last."""
    rank = query.shape.rank
    x = tf.transpose(tf.ensure_shape(x, [None] * rank), [*range(1, rank - 1), 0, rank - 1])
    return tf.ensure_shape(x, [*query.shape[:-1], None])
