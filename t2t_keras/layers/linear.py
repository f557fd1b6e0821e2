"""x W + b as one product of two matrices."""

import keras
import tensorflow as tf

from t2t_keras.layers.few_rows import multiply
from t2t_keras.layers.product_sums import column_sums


@keras.saving.register_keras_serializable(package="t2t_keras")
class Linear(keras.layers.Dense):
    """`keras.layers.Dense` that TensorFlow can fuse: product, bias and ReLU are one operation.

    Dense multiplies a tensor of three axes by `tensordot`, whose reshapings stand between the
    product and the bias. Here the axes before the last are made one, and several again at the end.

    Call arguments:
        x: [..., width].

    Returns:
        [..., units].
    """

    def call(self, x):
        flat = len(x.shape) == 2
        rows = x if flat else tf.reshape(x, [-1, x.shape[-1]])
        y = multiply(rows, self.kernel)
        if self.bias is not None:
            y = _add_bias(y, tf.convert_to_tensor(self.bias))
        y = self.activation(y)
        if flat:
            return y
        y = tf.reshape(y, tf.concat([tf.shape(x)[:-1], [self.units]], axis=0))
        return tf.ensure_shape(y, [*x.shape[:-1], self.units])


@tf.custom_gradient
def _add_bias(x, bias):
    """Returns x + bias, [rows, units], whose gradient takes the quicker sum over rows."""

    def gradient(upstream):
        return upstream, column_sums(upstream)

    return tf.nn.bias_add(x, bias), gradient
