"""Muon: matrices move by an orthogonal matrix instead of a multiple of their gradient.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the scale of the
updates is that of Liu et al. 2025, arXiv:2502.16982, with which a rate made for Adam fits.
"""

import keras
import tensorflow as tf

from t2t_keras.training.gradient_norm import NormedGradient
from t2t_keras.training.moving_average import MovingAverage
from t2t_keras.training.optimizers import adam_update, require_decay


@keras.saving.register_keras_serializable(package="t2t_keras")
class NormedMuon(NormedGradient, keras.optimizers.Muon):
    """Keras's Muon that knows the norm of the whole gradient; see `NormedGradient`.

    Embeddings and whatever else `exclude_layers` names, or is no matrix, have Adam's update. The
    matrices of `StackedProjections`, which stand side by side in one kernel, are moved each by an
    orthogonal one of its own.
    """

    def __init__(self, learning_rate=0.001, *, name="muon", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        square = self.adam_velocities[index]
        if square is None:
            super().update_step(gradient, variable, learning_rate)
            return
        adam_update(
            variable,
            self.momentums[index],
            square,
            gradient,
            learning_rate * self.adam_lr_ratio,
            self.iterations,
            (self.adam_beta_1, self.adam_beta_2, self.epsilon),
        )

    def _muon_update_step(self, gradient, variable, lr, m):
        # As Keras has it, but for the parts.
        self.assign_add(m, gradient + m * (self.momentum - 1))
        whole = gradient + self.momentum * m if self.nesterov else tf.convert_to_tensor(m)
        kernel = self._trainable_variables[self._get_variable_index(variable)]
        parts = tf.split(whole, getattr(kernel, "widths", [whole.shape[1]]), axis=1)
        moves = [
            self.lr_adjust(lr * self.zeropower_via_newtonschulz5(part, self.ns_steps))
            for part in parts
        ]
        self.assign_sub(variable, tf.concat(moves, axis=1))


@keras.saving.register_keras_serializable(package="t2t_keras")
class AveragingMuon(MovingAverage, NormedMuon):
    """`NormedMuon` that keeps a moving average of the weights; see `MovingAverage`."""


def scheduled_muon(
    schedule,
    *,
    momentum=0.95,
    beta_1=0.9,
    beta_2=0.98,
    epsilon=1e-9,
    weight_decay=None,
    clip_norm=None,
    ema_decay=None,
):
    """Returns Muon for matrices, beside the paper's Adam for embeddings, biases and norms.

    Learned positions are embeddings too.

    Args:
        schedule: `LearningRateSchedule`, as for Adam.
        momentum: decay of the sum of gradients that is made orthogonal.
        beta_1: of Adam, decay of the mean of gradients.
        beta_2: of Adam, decay of the mean of their squares.
        epsilon: of Adam, added to the root of the mean square.
        weight_decay: what each weight, of a matrix or not, loses at an update, times the rate and
            itself; None: nothing.
        clip_norm: the greatest norm of a gradient; None: no clipping.
        ema_decay: of a moving average of the weights; None: none is kept.

    Returns:
        `NormedMuon`, or `AveragingMuon` where there is a decay.

    Raises:
        InputError: if a constant is out of its range.
    """
    require_decay(weight_decay)
    constants = {
        "momentum": momentum,
        "adam_beta_1": beta_1,
        "adam_beta_2": beta_2,
        "epsilon": epsilon,
        "weight_decay": weight_decay,
        "adam_weight_decay": weight_decay,
        "clip_norm": clip_norm,
        "exclude_layers": ["positions"],
    }
    if ema_decay is None:
        return NormedMuon(schedule, **constants)
    return AveragingMuon(schedule, ema_decay=ema_decay, **constants)
