"""How a sub-layer is wrapped: dropout, residual connection, layer norm (sections 3.1 and 5.4)."""

import keras
import tensorflow as tf

from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer_norm import LayerNorm


class _Residual(keras.layers.Layer):
    """The norm and the dropout around one sub-layer.

    Args:
        dropout: share of the sub-layer's output set to zero in training, 0 to 1.
        epsilon: added to the variance in the layer norm.

    Call arguments:
        x: [..., model_dim].
        sublayer: function of one tensor [..., model_dim] → [..., model_dim].

    Returns:
        [..., model_dim].
    """

    def __init__(self, dropout=0.1, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.norm = LayerNorm(epsilon=epsilon, dtype=self.dtype_policy)
        # It takes a sum's terms as they come: in float32, or in the compute dtype.
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, autocast=False)

    def build(self, input_shape):
        self.norm.build(input_shape)

    def get_config(self):
        return super().get_config() | {"dropout": self.dropout.rate, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="t2t_keras")
class PostNormResidual(_Residual):
    """LayerNorm(x + Dropout(Sublayer(x))): the paper's (sections 3.1 and 5.4).

    The sum is in float32 whatever the policy, as the norm is: nothing is rounded between them, and
    in training it is quicker than a product and a sum in bfloat16.
    """

    def call(self, x, sublayer):
        y = tf.cast(sublayer(x), tf.float32)
        return self.norm(tf.cast(x, tf.float32) + self.dropout(y))

    @staticmethod
    def final_norm(**_):
        """Returns what follows the last layer of a stack: nothing, its output is normed."""
        return keras.layers.Identity(name="final_norm")


@keras.saving.register_keras_serializable(package="t2t_keras")
class PreNormResidual(_Residual):
    """x + Dropout(Sublayer(LayerNorm(x))): a variation (Xiong et al. 2020)."""

    def call(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))

    @staticmethod
    def final_norm(**kwargs):
        """Returns what follows the last layer of a stack: one more layer norm."""
        return LayerNorm(name="final_norm", **kwargs)
