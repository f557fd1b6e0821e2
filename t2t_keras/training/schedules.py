"""How the learning rate goes with the steps (paper, section 5.3)."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError


@keras.saving.register_keras_serializable(package="t2t_keras")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step: equation 3.

    rate = scale · model_dim^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)

    The paper counts steps from 1 and Keras from 0, so the first update has the rate of step 1;
    the highest rate, scale · (model_dim · warmup_steps)^-0.5, is that of step `warmup_steps`.

    Args:
        model_dim: width of the model.
        warmup_steps: steps of linear growth, at least 1.
        scale: factor on the whole; the paper's is 1.

    Raises:
        InputError: if model_dim, warmup_steps or scale is not above 0.

    Example:
        >>> float(InverseSquareRoot(model_dim=512, warmup_steps=4000)(3999))
        0.0006987712...
    """

    def __init__(self, model_dim, warmup_steps=4000, scale=1.0):
        super().__init__()
        for name, value in [
            ("model_dim", model_dim),
            ("warmup_steps", warmup_steps),
            ("scale", scale),
        ]:
            if not value > 0:
                raise InputError(f"The learning rate's {name} is {value}: give more than 0.")
        self.model_dim = model_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1.0
        growth = step * self.warmup_steps**-1.5
        return self.scale * self.model_dim**-0.5 * tf.minimum(tf.math.rsqrt(step), growth)

    def get_config(self):
        return {
            "model_dim": self.model_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="t2t_keras")
class Cooldown(keras.optimizers.schedules.LearningRateSchedule):
    """Any schedule, with a straight fall towards 0 in the last steps of a training.

    A variation for short trainings: the paper lets the rate decay by the inverse square root to
    the end and averages checkpoints instead (section 6.1).

    Args:
        schedule: `LearningRateSchedule` to follow before, and to scale down in the end.
        steps: steps of the whole training.
        cooldown_steps: how many of them, the last ones, fall; the step after them has rate 0.

    Raises:
        InputError: if cooldown_steps is not from 1 to steps.

    Example:
        >>> Cooldown(InverseSquareRoot(512), steps=100_000, cooldown_steps=20_000)
    """

    def __init__(self, schedule, steps, cooldown_steps):
        super().__init__()
        if not 1 <= cooldown_steps <= steps:
            raise InputError(
                f"cooldown_steps is {cooldown_steps}: give 1 to steps, which is {steps}."
            )
        self.schedule = schedule
        self.steps = steps
        self.cooldown_steps = cooldown_steps

    def __call__(self, step):
        left = (self.steps - tf.cast(step, tf.float32)) / self.cooldown_steps
        return self.schedule(step) * tf.clip_by_value(left, 0.0, 1.0)

    def get_config(self):
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "steps": self.steps,
            "cooldown_steps": self.cooldown_steps,
        }

    @classmethod
    def from_config(cls, config):
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(schedule, config["steps"], config["cooldown_steps"])
