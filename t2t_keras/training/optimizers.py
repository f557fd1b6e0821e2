"""The optimizer (paper, section 5.3)."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training.gradient_norm import NormedGradient
from t2t_keras.training.moving_average import MovingAverage
from t2t_keras.training.schedules import InverseSquareRoot


@keras.saving.register_keras_serializable(package="t2t_keras")
class NormedAdam(NormedGradient, keras.optimizers.Adam):
    """Adam that knows the norm of the whole gradient; see `NormedGradient`."""

    def __init__(self, learning_rate=0.001, *, name="adam", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        adam_update(
            variable,
            self._momentums[index],
            self._velocities[index],
            gradient,
            learning_rate,
            self.iterations,
            (self.beta_1, self.beta_2, self.epsilon),
        )


@keras.saving.register_keras_serializable(package="t2t_keras")
class AveragingAdam(MovingAverage, NormedAdam):
    """`NormedAdam` that keeps a moving average of the weights; see `MovingAverage`."""


def adam_update(variable, mean, square, gradient, learning_rate, updates, constants):
    """Adam's update as one operation; Keras's formula goes through the weights many times.

    Args:
        variable: the weight, a `tf.Variable`.
        mean: the mean of its gradients, a `keras.Variable`.
        square: the mean of their squares, a `keras.Variable`.
        gradient: tensor of the weight's shape.
        learning_rate: scalar.
        updates: how many were made before, scalar.
        constants: β1, β2 and ε.
    """
    dtype = variable.dtype
    beta_1, beta_2, epsilon = (tf.cast(constant, dtype) for constant in constants)
    step = tf.cast(tf.convert_to_tensor(updates) + 1, dtype)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=mean.value.handle,
        v=square.value.handle,
        beta1_power=beta_1**step,
        beta2_power=beta_2**step,
        lr=tf.cast(learning_rate, dtype),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=epsilon,
        grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
    )


def adam(model_dim, warmup_steps=4000, scale=1.0, **constants):
    """Returns the paper's Adam with the rate of equation 3.

    Args:
        model_dim: width of the model.
        warmup_steps: steps in which the rate grows.
        scale: factor on the paper's rate.
        **constants: those of `scheduled_adam`.

    Returns:
        `NormedAdam`.
    """
    return scheduled_adam(InverseSquareRoot(model_dim, warmup_steps, scale), **constants)


def scheduled_adam(
    schedule,
    *,
    beta_1=0.9,
    beta_2=0.98,
    epsilon=1e-9,
    weight_decay=None,
    clip_norm=None,
    ema_decay=None,
):
    """Returns Adam with the paper's constants, β1 = 0.9, β2 = 0.98, ε = 1e-9, and any schedule.

    Args:
        schedule: `LearningRateSchedule`.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the root of the mean square.
        weight_decay: what each weight loses at an update, times the rate and itself, apart from
            Adam's step (Loshchilov and Hutter 2019); None: nothing, as in the paper.
        clip_norm: the greatest norm of a gradient; None: no clipping.
        ema_decay: of a moving average of the weights; None: none is kept.

    Returns:
        `NormedAdam`, or `AveragingAdam` where there is a decay.

    Raises:
        InputError: if a constant is out of its range.
    """
    require_decay(weight_decay)
    constants = {
        "beta_1": beta_1,
        "beta_2": beta_2,
        "epsilon": epsilon,
        "weight_decay": weight_decay,
        "clip_norm": clip_norm,
    }
    if ema_decay is None:
        return NormedAdam(schedule, **constants)
    return AveragingAdam(schedule, ema_decay=ema_decay, **constants)


def require_decay(weight_decay):
    """Raises InputError if a weight decay, or None, is below 0."""
    if weight_decay is not None and not weight_decay >= 0:
        raise InputError(f"weight_decay is {weight_decay}: give 0 or more.")
