"""The optimizer (paper, section 5.3)."""

import keras
import tensorflow as tf
from keras import ops

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

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
        else:
            self._update_at_once(tf.convert_to_tensor(gradient), variable, learning_rate)

    def _update_at_once(self, gradient, variable, learning_rate):
        """Adam's update as one operation; Keras's formula goes through the weights many times."""
        index, dtype = self._get_variable_index(variable), variable.dtype
        step = tf.cast(tf.convert_to_tensor(self.iterations) + 1, dtype)
        beta_1, beta_2 = tf.cast(self.beta_1, dtype), tf.cast(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )

    def get_config(self):
        return super().get_config() | {"clip_norm": self.clip_norm}


@keras.saving.register_keras_serializable(package="t2t_keras")
class AveragingAdam(NormedAdam):
    """Adam that keeps an exponential moving average of the weights beside them.

    After t updates the average is Σ d^(t-i) w_i / Σ d^(t-i), over the weights w_1 … w_t after each
    update; those from before training play no part. Training itself goes on from the weights as
    they are. The averages are variables of the optimizer, so that a checkpoint holds them.

    Args:
        learning_rate: float or `LearningRateSchedule`.
        ema_decay: d, above 0 and below 1; the average looks back over some 1 / (1 - d) updates.
        **kwargs: those of `NormedAdam`.

    Attributes:
        averages: the average of each weight, list of `keras.Variable`, once it is built.

    Raises:
        InputError: if ema_decay is out of its range.
    """

    def __init__(self, learning_rate=0.001, *, ema_decay, **kwargs):
        super().__init__(learning_rate, **kwargs)
        if not 0 < ema_decay < 1:
            raise InputError(f"ema_decay is {ema_decay}: give more than 0 and less than 1.")
        self.ema_decay = ema_decay

    def build(self, var_list):
        if self.built:
            return
        super().build(var_list)
        self.averages = self.add_optimizer_variables(var_list, "average")

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)
        average = self.averages[self._get_variable_index(variable)]
        decay = ops.cast(self.ema_decay, variable.dtype)
        updates = ops.cast(self.iterations + 1, variable.dtype)
        rate = (1 - decay) / (1 - ops.power(decay, updates))  # 1 at the first update
        self.assign_add(average, ops.multiply(ops.subtract(variable, average), rate))

    def average_of(self, variable):
        """Returns the average of a weight; of a variable that is not trained, itself."""
        index = self._trainable_variables_indices.get(self._var_key(variable))
        return variable if index is None else self.averages[index]

    def get_config(self):
        return super().get_config() | {"ema_decay": self.ema_decay}


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
    schedule, *, beta_1=0.9, beta_2=0.98, epsilon=1e-9, clip_norm=None, ema_decay=None
):
    """Returns Adam with the paper's constants, β1 = 0.9, β2 = 0.98, ε = 1e-9, and any schedule.

    Args:
        schedule: `LearningRateSchedule`.
        beta_1: decay of the mean of gradients.
        beta_2: decay of the mean of their squares.
        epsilon: added to the root of the mean square.
        clip_norm: the greatest norm of a gradient; None: no clipping.
        ema_decay: of a moving average of the weights; None: none is kept.

    Returns:
        `NormedAdam`, or `AveragingAdam` where there is a decay.
    """
    constants = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "clip_norm": clip_norm}
    if ema_decay is None:
        return NormedAdam(schedule, **constants)
    return AveragingAdam(schedule, ema_decay=ema_decay, **constants)
