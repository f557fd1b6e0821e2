"""Several linear maps of one input: W^Q, W^K, W^V of all heads (paper, section 3.2.2).

The paper's W are plain matrices: no bias.
"""

import keras
import tensorflow as tf

from t2t_keras.layers.heads import split_heads, split_stacked
from t2t_keras.layers.linear import Linear


class StackedProjections(Linear):
    """The matrices side by side in one kernel, so that one product serves all of them.

    Args:
        widths: the matrices' numbers of columns.
        kernel_initializer: as Keras names or describes it.

    Call arguments:
        x: [..., model_dim]; [batch, length, model_dim] if there are heads.
        heads: into how many heads each result is split; None: it is not.

    Returns:
        List of tensors [..., width], or [batch, heads, length, width / heads], one for each width.
    """

    def __init__(self, widths, **kwargs):
        super().__init__(sum(widths), use_bias=False, **kwargs)
        self.widths = widths

    def build(self, input_shape):
        super().build(input_shape)
        self.kernel.widths = self.widths  # for an optimizer that moves matrices as such

    def call(self, x, heads=None):
        y = super().call(x)
        if heads is None:
            return tf.split(y, self.widths, axis=-1)
        return split_stacked(y, self.widths, heads)

    def get_config(self):
        config = super().get_config()
        del config["units"], config["use_bias"]  # they follow
        return config | {"widths": self.widths}


class SeparateProjections(keras.layers.Layer):
    """A kernel for each matrix; with the stacked kernel's columns it gives the same results.

    Args:
        widths: the matrices' numbers of columns.
        kernel_initializer: as Keras names or describes it.

    Call arguments:
        x: [..., model_dim]; [batch, length, model_dim] if there are heads.
        heads: into how many heads each result is split; None: it is not.

    Returns:
        List of tensors [..., width], or [batch, heads, length, width / heads], one for each width.
    """

    def __init__(self, widths, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.parts = [
            Linear(
                width,
                use_bias=False,
                kernel_initializer=kernel_initializer,
                dtype=self.dtype_policy,
            )
            for width in widths
        ]

    def build(self, input_shape):
        for part in self.parts:
            part.build(input_shape)

    def call(self, x, heads=None):
        results = [part(x) for part in self.parts]
        return results if heads is None else [split_heads(y, heads) for y in results]


PROJECTIONS = {"stacked": StackedProjections, "separate": SeparateProjections}
"""The ways of keeping several matrices, by name."""
