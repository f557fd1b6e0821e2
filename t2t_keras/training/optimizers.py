"""The optimizer (paper, section 5.3)."""

import keras

from t2t_keras.training.schedules import InverseSquareRoot


def adam(model_dim, warmup_steps=4000, scale=1.0, **constants):
    """Returns the paper's Adam with the rate of equation 3.

    Args:
        model_dim: width of the model.
        warmup_steps: steps in which the rate grows.
        scale: factor on the paper's rate.
        **constants: those of `scheduled_adam`.

    Returns:
        `keras.optimizers.Adam`.
    """
    return scheduled_adam(InverseSquareRoot(model_dim, warmup_steps, scale), **constants)


def scheduled_adam(schedule, *, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    """Returns Adam with the paper's constants, β1 = 0.9, β2 = 0.98, ε = 1e-9, and any schedule.

    Clipping is not offered here: under several devices Keras clips each device's share of the
    gradient before their sum, which is another optimizer for every number of devices.

    Args:
        schedule: `LearningRateSchedule`.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the root of the mean square.

    Returns:
        `keras.optimizers.Adam`.
    """
    return keras.optimizers.Adam(schedule, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
