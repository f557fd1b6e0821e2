"""Residual connection, dropout and layer norm around a sub-layer (paper, sections 3.1 and 5.4).

`PostNorm` is the paper's post-norm, `PreNorm` is pre-norm. The caller runs the sub-layer between
`before` and `after`:

    y = self.attention(self.attention_residual.before(x), …)
    x = self.attention_residual.after(x, y)
"""

import keras
import tensorflow as tf

from t2t_keras.layers.basic import Dropout, LayerNorm


class Residual(keras.layers.Layer):
    """What the norm placements share: the norm and the dropout of one sub-layer.

    Args:
        dropout: P_drop, rate at which the sub-layer's output is dropped in training.
        epsilon: added to the variance in the layer norm.
    """

    def __init__(self, dropout=0.1, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.norm = LayerNorm(epsilon=epsilon, dtype=self.dtype_policy)
        # autocast=False: the sum may be in float32, which the compute dtype would round.
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, autocast=False)

    def build(self, input_shape):
        self.norm.build(input_shape)

    def before(self, x):
        """Returns the input of the sub-layer, [..., model_dim], of x [..., model_dim]."""
        raise NotImplementedError

    def after(self, x, y):
        """Returns the output of the connection, [..., model_dim], of x and the sub-layer's y."""
        raise NotImplementedError

    @staticmethod
    def final_norm(**kwargs):
        """Returns the layer that follows the last layer of a stack."""
        raise NotImplementedError

    def get_config(self):
        return super().get_config() | {"dropout": self.dropout.rate, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="t2t_keras")
class PostNorm(Residual):
    """x ← LayerNorm(x + Dropout(Sublayer(x))): the paper's (sections 3.1 and 5.4).

    The sum is in float32 whatever the policy, as the norm is: nothing is rounded between them.
    """

    def before(self, x):
        return x

    def after(self, x, y):
        return self.norm(tf.cast(x, tf.float32) + self.dropout(tf.cast(y, tf.float32)))

    @staticmethod
    def final_norm(**kwargs):
        """Returns the identity: with post-norm the output of a stack is already normalized."""
        del kwargs
        return keras.layers.Identity(name="final_norm")


@keras.saving.register_keras_serializable(package="t2t_keras")
class PreNorm(Residual):
    """x ← x + Dropout(Sublayer(LayerNorm(x))) (Xiong et al. 2020)."""

    def before(self, x):
        return self.norm(x)

    def after(self, x, y):
        return x + self.dropout(y)

    @staticmethod
    def final_norm(**kwargs):
        """Returns one more layer norm."""
        return LayerNorm(name="final_norm", **kwargs)
