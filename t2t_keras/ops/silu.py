"""The activation x · sigmoid(x), SiLU or Swish (Ramachandran et al. 2017)."""

import tensorflow as tf

from t2t_keras.ops.gradients import define_gradient


def silu(x, training=True):
    """Returns x · sigmoid(x) of x [...]; in training it keeps only x, as `tf.nn.silu` does."""
    y = x * tf.sigmoid(x)
    return _with_gradient(y, x) if training else y


@define_gradient("Silu")
def _with_gradient(upstream, x):
    with tf.control_dependencies([upstream]):  # else it would be the sigmoid of the forward pass
        sigmoid = tf.sigmoid(x)
    return [upstream * sigmoid * (1.0 + x * (1.0 - sigmoid))]
