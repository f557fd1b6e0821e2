"""The norm of the whole gradient, known to the optimizer and clipped by it."""

import tensorflow as tf

from t2t_keras.errors import InputError


class NormedGradient:
    """What makes a Keras optimizer know the norm of the whole gradient, and clip it if wished.

    Under several devices Keras's own clipping takes each device's share of the gradient before
    their sum, which is another optimizer for every number of devices. Here the norm is that of
    the sum, the gradient of the global batch.

    Args:
        learning_rate: float or `LearningRateSchedule`.
        clip_norm: the greatest norm; a longer gradient is shortened to it. None: no clipping, as
            in the paper.
        **kwargs: those of the optimizer that is derived from this class too.

    Attributes:
        gradient_norm: float32 variable, the norm at the latest update, before clipping.

    Raises:
        InputError: if clip_norm is not above 0.
    """

    def __init__(self, learning_rate=0.001, *, clip_norm=None, **kwargs):
        super().__init__(learning_rate, **kwargs)
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
