"""From scores to weights: how attention chooses among the keys (paper, section 3.2.1).

A selection is called with scores [..., query, key] and a mask, and returns the weights of the
keys, in which every row sums to 1. `Softmax` is the paper's, the others are variations.
"""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers import few_queries

# Taken off a forbidden score. Finite, so that a row with nothing allowed stays free of NaN.
_FORBIDDEN = 1e9


@keras.saving.register_keras_serializable(package="t2t_keras")
class Softmax:
    """Weights exp(score) / Σ exp(score): soft attention (paper, equation 1).

    Call arguments:
        scores: float32 [..., query, key].
        attention_mask: bool, broadcastable to [..., query, key], True where attention is allowed;
            None allows all.

    Returns:
        float32 [..., query, key].
    """

    def __call__(self, scores, attention_mask=None):
        return few_queries.softmax(_masked(scores, attention_mask))

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="t2t_keras")
class TemperedSoftmax(Softmax):
    """Weights softmax(β · score): even for a small inverse temperature β, hard for a large one.

    Args:
        inverse_temperature: β, more than 0.

    Raises:
        InputError: if β is not above 0.
    """

    def __init__(self, inverse_temperature):
        if not inverse_temperature > 0:
            raise InputError(
                f"inverse_temperature is {inverse_temperature}: give a number above 0."
            )
        self.inverse_temperature = inverse_temperature

    def __call__(self, scores, attention_mask=None):
        return super().__call__(self.inverse_temperature * scores, attention_mask)

    def get_config(self):
        return {"inverse_temperature": self.inverse_temperature}


@keras.saving.register_keras_serializable(package="t2t_keras")
class ArgMax(TemperedSoftmax):
    """Weight 1 for the key of the highest score, the first of equals, and 0 elsewhere.

    Which key is highest has no gradient. Training goes straight through: backwards, the weights
    count as softmax(β · score) (Bengio et al. 2013, "Estimating or propagating gradients").
    """

    def __call__(self, scores, attention_mask=None):
        soft = super().__call__(scores, attention_mask)
        chosen = tf.argmax(_masked(scores, attention_mask), axis=-1)  # [..., query]
        hard = tf.one_hot(chosen, tf.shape(scores)[-1], dtype=soft.dtype)
        return hard + (soft - tf.stop_gradient(soft))  # the difference is 0, its gradient is not


def _masked(scores, attention_mask):
    if attention_mask is None:
        return scores
    # A sum would be fused with the scores' product, into an operation of oneDNN's that is slow.
    return scores - _FORBIDDEN * (1.0 - tf.cast(attention_mask, scores.dtype))
