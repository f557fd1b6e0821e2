"""Residual connection, dropout and layer norm around a sub-layer (paper, sections 3.1 and 5.4).

`residual(x)` is the input of the sub-layer, `residual(x, y)` the output of the connection, y being
the sub-layer's; `residual.around(x, sublayer)` is both.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from t2t_keras.layers.basic import Dropout, LayerNorm, SequenceLayer
from t2t_keras.types import Shape


class Residual(SequenceLayer):
    """Base class of the norm placements: the norm and the dropout of one sub-layer.

    Args:
        dropout: P_drop, rate at which the sub-layer's output is dropped in training.
        epsilon: added to the variance in the layer norm.

    A call with x alone returns the input of the sub-layer. A call with x and y, the output of the
    sub-layer, returns the output of the connection. All are [..., model_dim].
    """

    def __init__(self, dropout: float = 0.1, epsilon: float = 1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.norm = LayerNorm(epsilon=epsilon, dtype=self.dtype_policy, name="norm")
        # autocast=False: the sum may be in float32, which the compute dtype would round.
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, autocast=False, name="dropout")

    def build(self, x_shape: Shape, y_shape: Shape | None = None) -> None:
        self.norm.build(x_shape)
        self.dropout.build(x_shape)

    def around(self, x: tf.Tensor, sublayer: Callable) -> tf.Tensor | tuple:
        """Returns the output of the connection around a sub-layer, and its further results.

        x and the results of the sub-layer and of the connection are [..., model_dim]. A sub-layer
        may return a tuple of this and more: then the connection returns a tuple of the same size.
        """
        y = sublayer(self(x))
        return (self(x, y[0]), *y[1:]) if isinstance(y, tuple) else self(x, y)

    @staticmethod
    def final_norm(**kwargs) -> keras.layers.Layer:
        """Returns the layer that follows the last layer of a stack."""
        raise NotImplementedError

    def get_config(self) -> dict:
        return super().get_config() | {"dropout": self.dropout.rate, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="t2t_keras")
class PostNorm(Residual):
    """Post-norm, x ← LayerNorm(x + Dropout(Sublayer(x))), as in the paper (sections 3.1 and 5.4).

    Sum and norm are computed in float32 with any dtype policy, without rounding between them.
    Arguments and results are as for `Residual`.

    Example:
        >>> residual, sublayer = layers.PostNorm(), layers.FeedForward(128)
        >>> x = tf.ones([2, 7, 32])
        >>> residual(x, sublayer(residual(x))).shape
        TensorShape([2, 7, 32])
    """

    in_ctranslate2 = True

    def call(self, x: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
        if y is None:
            return x
        return self.norm(tf.cast(x, tf.float32) + self.dropout(tf.cast(y, tf.float32)))

    @staticmethod
    def final_norm(**kwargs):
        """Returns the identity: with post-norm the output of a stack is already normalized."""
        with keras.RematScope(None):  # Keras cannot compute it again
            return keras.layers.Identity(name="final_norm", dtype=kwargs.get("dtype"))


@keras.saving.register_keras_serializable(package="t2t_keras")
class PreNorm(Residual):
    """Pre-norm, x ← x + Dropout(Sublayer(LayerNorm(x))) (Xiong et al. 2020).

    A stack of them ends with one more `LayerNorm`. Arguments and results are as for `Residual`.

    Example:
        >>> residual, sublayer = layers.PreNorm(), layers.FeedForward(128)
        >>> x = tf.ones([2, 7, 32])
        >>> residual(x, sublayer(residual(x))).shape
        TensorShape([2, 7, 32])
    """

    in_ctranslate2 = True

    def call(self, x: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
        return self.norm(x) if y is None else x + self.dropout(y)

    @staticmethod
    def final_norm(**kwargs):
        """Returns one more layer norm."""
        return LayerNorm(name="final_norm", **kwargs)
