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
