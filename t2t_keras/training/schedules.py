"""Learning rate schedules: the paper's (section 5.3), and a linear decay to zero at the end."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError, require_positive


@keras.saving.register_keras_serializable(package="t2t_keras")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then inverse square root decay: equation 3, the "Noam" schedule.

    rate = scale · model_dim^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)

    The paper counts steps from 1 and Keras from 0, so the first update has the rate of step 1.
    The highest rate is at step `warmup_steps`: scale · (model_dim · warmup_steps)^-0.5.

    Args:
        model_dim: width of the model.
        warmup_steps: steps of linear growth, at least 1.
        scale: factor on the rate; 1 in the paper.

    Call arguments:
        step: integer scalar, updates made before.

    Returns:
        float32 scalar, the rate.

    Raises:
        InputError: if model_dim, warmup_steps or scale is not above 0.

    Example:
        >>> float(t2t.InverseSquareRoot(model_dim=512, warmup_steps=4000)(3999))
        0.0006987712...
    """

    def __init__(self, model_dim: int, warmup_steps: int = 4000, scale: float = 1.0):
        super().__init__()
        self.model_dim, self.warmup_steps, self.scale = model_dim, warmup_steps, scale
        for name in ("model_dim", "warmup_steps", "scale"):
            require_positive(f"The learning rate's {name}", getattr(self, name))

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32) + 1.0
        growth = step * self.warmup_steps**-1.5
        return self.scale * self.model_dim**-0.5 * tf.minimum(tf.math.rsqrt(step), growth)

    def get_config(self) -> dict:
        return {"model_dim": self.model_dim, "warmup_steps": self.warmup_steps, "scale": self.scale}


@keras.saving.register_keras_serializable(package="t2t_keras")
class LinearDecayToZero(keras.optimizers.schedules.LearningRateSchedule):
    """Another schedule whose rate decays linearly to 0 in the last steps of a training.

    A variation for short trainings (Zhai et al. 2022, "Scaling Vision Transformers",
    arXiv:2106.04560): the paper's rate falls with the inverse square root to the end, and
    checkpoints are averaged instead (section 6.1).

    Args:
        schedule: the one that is scaled down.
        steps: those of the whole training.
        decay_steps: the last ones, in which the rate decays; the step after them has rate 0.

    Raises:
        InputError: if decay_steps is not from 1 to steps.

    Example:
        >>> LinearDecayToZero(InverseSquareRoot(512), steps=100_000, decay_steps=20_000)
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        steps: int,
        decay_steps: int,
    ):
        super().__init__()
        if not 1 <= decay_steps <= steps:
            raise InputError(f"decay_steps is {decay_steps}: give 1 to steps, which is {steps}.")
        self.schedule = schedule
        self.steps = steps
        self.decay_steps = decay_steps

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        remaining = (self.steps - tf.cast(step, tf.float32)) / self.decay_steps
        return self.schedule(step) * tf.clip_by_value(remaining, 0.0, 1.0)

    def get_config(self) -> dict:
        schedule = keras.saving.serialize_keras_object(self.schedule)
        return {"schedule": schedule, "steps": self.steps, "decay_steps": self.decay_steps}

    @classmethod
    def from_config(cls, config):
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**config | {"schedule": schedule})
