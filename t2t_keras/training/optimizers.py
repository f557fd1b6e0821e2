"""The optimizer (paper, section 5.3)."""

import keras

from t2t_keras.training.schedules import InverseSquareRoot


def adam(model_dim, warmup_steps=4000, scale=1.0, *, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    """Returns the paper's Adam: β1 = 0.9, β2 = 0.98, ε = 1e-9, and the rate of equation 3.

    Clipping is not offered here: under several devices Keras clips each device's share of the
    gradient before their sum, which is another optimizer for every number of devices.

    Args:
        model_dim: width of the model.
        warmup_steps: steps in which the rate grows.
        scale: factor on the paper's rate.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the root of the mean square.

    Returns:
        `keras.optimizers.Adam`.
    """
    return keras.optimizers.Adam(
        InverseSquareRoot(model_dim, warmup_steps, scale),
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
    )
