"""Why scores are divided by √d_k (section 3.2.1, footnote 4).

"Assume that the components of q and k are independent random variables with mean 0 and variance 1.
Then their dot product has mean 0 and variance d_k", and softmax is pushed "into regions where it
has extremely small gradients".
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.layers.variants.attention import DotProductAttention


class ScoreScale(NamedTuple):
    """Statistics of the scores of standard normal queries and keys.

    Attributes:
        variance: variance of a score.
        gradient: mean norm of softmax's gradient, see `softmax_gradient`.
        largest: mean of the largest weight of a query.
    """

    variance: float
    gradient: float
    largest: float


def measure_scores(key_dim, scaled, keys=64, queries=512, seed=0):
    """Returns the `ScoreScale` of d_k = key_dim, computed by the library's attention.

    Args:
        key_dim: d_k.
        scaled: bool, whether scores are divided by √d_k.
        keys: int, keys of each query.
        queries: int, number of queries, each with its own keys.
        seed: int.
    """
    attend = (ScaledDotProductAttention if scaled else DotProductAttention)()
    shape = [queries, 1, key_dim], [queries, keys, key_dim]
    query, key = (tf.random.stateless_normal(s, [seed, i]) for i, s in enumerate(shape))
    _, weights = attend(query, key, key)
    weights = weights.numpy()[:, 0].astype(np.float64)
    return ScoreScale(
        variance=float(np.var(attend.score(query, key))),
        gradient=float(softmax_gradient(weights).mean()),
        largest=float(weights.max(axis=-1).mean()),
    )


def softmax_gradient(weights):
    """Returns the norm of softmax's gradient at given weights.

    The gradient ∂p/∂s is diag(p) - p pᵀ. Its Frobenius norm is 0 where one weight is 1.

    Args:
        weights: float [..., keys], each row sums to 1.

    Returns:
        float [...].
    """
    squares = np.sum(weights**2, axis=-1)
    # Σ (p_i δ_ij - p_i p_j)² = Σ p_i² - 2 Σ p_i³ + (Σ p_i²)²
    norm = squares - 2 * np.sum(weights**3, axis=-1) + squares**2
    return np.sqrt(np.maximum(norm, 0.0))
