"""An exponential moving average of the weights, kept by the optimizer."""

from keras import ops

from t2t_keras.errors import InputError


class MovingAverage:
    """What makes a Keras optimizer keep an exponential moving average of the weights beside them.

    After t updates the average is Σ d^(t-i) w_i / Σ d^(t-i), over the weights w_1 … w_t after each
    update; those from before training play no part. Training itself goes on from the weights as
    they are. The averages are variables of the optimizer, so that a checkpoint holds them.

    Args:
        learning_rate: float or `LearningRateSchedule`.
        ema_decay: d, above 0 and below 1; the average looks back over some 1 / (1 - d) updates.
        **kwargs: those of the optimizer that is derived from this class too.

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
