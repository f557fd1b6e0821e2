"""Pooling: from one vector for each position to one for the whole sequence, for classification.

Padding has no weight; a row that is all padding gives zeros.
"""

import keras
import tensorflow as tf

from t2t_keras.layers.positions import require_rows
from t2t_keras.layers.value_checks import row_mask
from t2t_keras.types import Shape


class Pooling(keras.layers.Layer):
    """A weighted sum of the positions; a subclass defines their weights.

    x is [batch, length, model_dim]; its mask, which Keras passes, is bool [batch, length], False on
    padding; None: no padding. The result is [batch, model_dim] in the compute dtype, zeros for a
    row of padding; the sum is in float32.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        require_rows(x)
        real = tf.ones(tf.shape(x)[:2], tf.bool) if mask is None else row_mask("mask", mask, x)
        return self.pool(x, real)

    def pool(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Returns [batch, model_dim]; `real`, bool [batch, length], is False on padding."""
        weights = self.position_weights(x, real)
        pooled = tf.einsum("bl,bld->bd", weights, tf.cast(x, tf.float32))
        return tf.cast(pooled, self.compute_dtype)

    def position_weights(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Returns the weight of each position, float32 [batch, length], 0 on padding."""
        raise NotImplementedError

    def compute_mask(self, inputs, mask=None) -> None:
        del inputs, mask  # no positions, no padding

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[-1])


@keras.saving.register_keras_serializable(package="t2t_keras")
class MeanPooling(Pooling):
    """The mean over the positions that are not masked; see `Pooling`.

    Example:
        >>> x = tf.constant([[[1.0], [3.0], [8.0]]])
        >>> layers.MeanPooling()(x, mask=np.array([[True, True, False]])).numpy()
        array([[2.]], dtype=float32)
    """

    def position_weights(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        weights = tf.cast(real, tf.float32)
        return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))


@keras.saving.register_keras_serializable(package="t2t_keras")
class FirstPooling(Pooling):
    """The first position that is not masked, as in BERT (Devlin et al. 2019); see `Pooling`.

    Example:
        >>> layers.FirstPooling()(tf.constant([[[1.0], [3.0], [8.0]]])).numpy()
        array([[1.]], dtype=float32)
    """

    def position_weights(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        return tf.cast(real & (tf.cumsum(tf.cast(real, tf.int32), axis=1) == 1), tf.float32)


@keras.saving.register_keras_serializable(package="t2t_keras")
class AttentionPooling(Pooling):
    """A mean with weights softmax(x·w), w learned, over unmasked positions; see `Pooling`.

    Example:
        >>> layers.AttentionPooling()(tf.ones([2, 7, 32])).shape
        TensorShape([2, 32])
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.score = keras.layers.Dense(1, use_bias=False, dtype=self.dtype_policy, name="score")

    def build(self, input_shape: Shape) -> None:
        self.score.build(input_shape)

    def position_weights(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        scores = tf.cast(self.score(x)[..., 0], tf.float32)
        weights = tf.nn.softmax(tf.where(real, scores, tf.float32.min))
        return tf.where(real, weights, 0.0)


@keras.saving.register_keras_serializable(package="t2t_keras")
class MaxPooling(Pooling):
    """The largest value of each dimension over unmasked positions; see `Pooling`.

    Example:
        >>> layers.MaxPooling()(tf.constant([[[1.0], [3.0], [8.0]]])).numpy()
        array([[8.]], dtype=float32)
    """

    def pool(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        real = tf.expand_dims(real, -1)
        largest = tf.reduce_max(tf.where(real, x, x.dtype.min), axis=1)
        return tf.where(tf.reduce_any(real, axis=1), largest, 0)


POOLINGS = {
    "mean": MeanPooling,
    "max": MaxPooling,
    "first": FirstPooling,
    "attention": AttentionPooling,
}
"""The poolings by name."""
