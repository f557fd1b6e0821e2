"""The optimizer (paper, section 5.3)."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training.schedules import InverseSquareRoot


@keras.saving.register_keras_serializable(package="t2t_keras")
class NormedAdam(keras.optimizers.Adam):
    """Adam that knows the norm of the whole gradient, and may clip it.

    Under several devices Keras's own clipping takes each device's share of the gradient before
    their sum, which is another optimizer for every number of devices. Here the norm is that of
    the sum, the gradient of the global batch.

    Args:
        learning_rate: float or `LearningRateSchedule`.
        clip_norm: the greatest norm; a longer gradient is shortened to it. None: no clipping, as
            in the paper.
        **kwargs: those of `keras.optimizers.Adam`.

    Attributes:
        gradient_norm: float32 variable, the norm at the latest update, before clipping.

    Raises:
        InputError: if clip_norm is not above 0.
    """

    def __init__(self, learning_rate=0.001, *, clip_norm=None, name="adam", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)
        if clip_norm is not None and not clip_norm > 0:
            raise InputError(
                f"clip_norm is {clip_norm}: give more than 0, or None for no clipping."
            )
        self.clip_norm = clip_norm
        # No `keras.Variable`: it is no state that a checkpoint would have to hold.
        self.gradient_norm = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            name="gradient_norm",
        )

    def _all_reduce_sum_gradients(self, grads_and_vars):
        pairs = super()._all_reduce_sum_gradients(grads_and_vars)
        norm = tf.linalg.global_norm([gradient for gradient, _ in pairs])
        self.gradient_norm.assign(norm)
        if self.clip_norm is None:
            return pairs
        factor = self.clip_norm / tf.maximum(norm, self.clip_norm)  # NaN stays: it must be seen
        return [(g if g is None else g * tf.cast(factor, g.dtype), v) for g, v in pairs]

    def get_config(self):
        return super().get_config() | {"clip_norm": self.clip_norm}


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


def scheduled_adam(schedule, *, beta_1=0.9, beta_2=0.98, epsilon=1e-9, clip_norm=None):
    """Returns Adam with the paper's constants, β1 = 0.9, β2 = 0.98, ε = 1e-9, and any schedule.

    Args:
        schedule: `LearningRateSchedule`.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the root of the mean square.
        clip_norm: the greatest norm of a gradient; None: no clipping.

    Returns:
        `NormedAdam`.
    """
    return NormedAdam(schedule, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, clip_norm=clip_norm)
