"""Numbers that a layer has from the start and never learns, saved and exported as its weights."""

import numpy as np


def add_fixed(layer, name, value, dtype):
    """Gives a layer a weight of this value, which no policy casts, and returns it.

    Args:
        layer: Keras layer or model.
        name: str.
        value: array of any shape.
        dtype: str, of the weight.
    """
    value = np.asarray(value, dtype)
    weight = layer.add_weight(
        name=name,
        shape=value.shape,
        dtype=dtype,
        initializer="zeros",
        trainable=False,
        autocast=False,
    )
    weight.assign(value)
    return weight
