"""Private Keras names of optimizers and checkpoints, see `t2t_keras/keras_compat.py`."""

import keras
import tensorflow as tf

from t2t_keras.keras_compat import LossScaleOptimizer, summed_gradients, unwrapped

_OWN = "layer metric non_trainable_variable operation seed_generator trainable_variable variable"
_TRACKERS = {f"_{name}s" for name in _OWN.split()}


def attributes(owner):
    """Returns [(name, value)] of a Keras object, sorted: public, private, Keras's own collections.

    Keras 3.15. `tf.train.Checkpoint` leaves out layers in lists and variable paths are not unique,
    so a checkpoint names variables by attributes. Keras's collections come last: they repeat
    variables that an attribute of the class has under a better name.
    Upstream: keras issue 19425.
    Test: tests/training/test_checkpoints.py::test_every_variable_has_one_name_that_tells_its_place.
    """

    def rank(item):
        name = item[0]
        return 2 if name in _TRACKERS or name.startswith("_self_") else name.startswith("_")

    return sorted(vars(owner).items(), key=rank)


def variable_index(optimizer, variable):
    """Returns the index of a weight among those that a built optimizer trains, or None.

    Keras 3.15. `update_step` gets the `tf.Variable`, under a strategy of one replica, and no public
    name leads from it to the optimizer's variables of the weight.
    Test: tests/training/test_optimizers.py::test_settings_of_keras_act_as_in_keras.
    """
    try:
        return optimizer._get_variable_index(variable)
    except KeyError:
        return None


def trained_weights(optimizer):
    """Returns the weights that a built optimizer trains, in the order of `variable_index`.

    Keras 3.15 has no public name for them. An attribute of our own would make them variables of
    the optimizer, as checkpoints see it.
    Test: tests/training/test_optimizers.py::test_settings_of_keras_act_as_in_keras.
    """
    return optimizer._trainable_variables


def batches_taken(optimizer):
    """Returns the number of batches that an optimizer took, a `keras.Variable`.

    With `gradient_accumulation_steps` the public `iterations` count updates, each of several
    batches.
    Test: tests/training/test_callbacks.py::test_accumulated_gradients_are_a_step_when_applied.
    """
    return unwrapped(optimizer)._iterations


def latest_learning_rate(optimizer):
    """Returns the learning rate of an optimizer's latest update, float.

    Keras 3.15: `learning_rate` is the rate of the next update, and a schedule has no public name.
    Test: tests/training/test_callbacks.py::test_the_learning_rate_of_a_row_is_that_of_its_step.
    """
    schedule = unwrapped(optimizer)._learning_rate
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return float(schedule(max(int(batches_taken(optimizer).numpy()) - 1, 0)))
    return float(optimizer.learning_rate)


def adam_moments(optimizer, variable):
    """Returns Adam's moments of a weight: the means of its gradients and of their squares.

    With `amsgrad` the largest mean of squares so far is the third one.

    Keras 3.15. Keras's own update reads and writes the weights several times. If an embedding's
    gradient contains a row twice, it adds up the squares instead of squaring the sum. Our update
    uses only these variables.
    Upstream: keras issue 19992.
    Test: tests/training/test_optimizers.py::test_adam_updates_as_its_algorithm_says.
    """
    index = variable_index(optimizer, variable)
    moments = optimizer._momentums[index], optimizer._velocities[index]
    return (*moments, optimizer._velocity_hats[index]) if optimizer.amsgrad else moments


class Float32Updates:
    """Mixin of an optimizer that computes in float32 for weights of bfloat16.

    Subclasses cast gradients by `in_float32` when they arrive. The optimizer's own variables are
    float32. An update rounds a weight only once, decay included: `update_step` reads it from
    `decayed`.

    Keras 3.15 computes in the type of the weight. In bfloat16 an average's decay of 0.999 becomes
    1, and a small weight decay is lost by rounding.
    Test: tests/training/test_optimizers.py::test_adam_of_bfloat16_weights_computes_in_float32.
    """

    @staticmethod
    def _is_half(x):
        return x is not None and tf.as_dtype(x.dtype) in (tf.bfloat16, tf.float16)

    def add_variable(self, shape, initializer="zeros", dtype=None, *args, **kwargs):
        dtype = "float32" if dtype == "bfloat16" else dtype
        return super().add_variable(shape, initializer, dtype, *args, **kwargs)

    def in_float32(self, gradients):
        """Returns gradients, any of which may be None, those of bfloat16 as float32."""
        return [tf.cast(g, tf.float32) if self._is_half(g) else g for g in gradients]

    def decayed(self, variable, weight_decay, learning_rate):
        """Returns a weight, at least in float32, after the decay of this `update_step`."""
        if not self._is_half(variable):
            return tf.convert_to_tensor(variable)  # `apply` made its decay
        weights = tf.cast(variable, tf.float32)
        if weight_decay is None or not self._use_weight_decay(variable):
            return weights
        return weights * (1 - weight_decay * tf.cast(learning_rate, tf.float32))

    def _apply_weight_decay(self, variables):
        super()._apply_weight_decay([v for v in variables if not self._is_half(v)])


class HiddenMatrices:
    """Mixin of `keras.optimizers.Muon`: weights with `is_hidden_matrix` have an orthogonal update.

    Keras 3.15 uses every weight with two axes whose path, the names of all enclosing layers, does
    not contain "embedding": also untied output projections and tables of vectors.
    Test: tests/training/test_optimizers.py::test_vectors_and_output_kernels_are_no_hidden_matrices.
    """

    def _should_use_adamw(self, variable):
        return not self.is_hidden_matrix(variable)


class GradientsAfterReduction:
    """Mixin of an optimizer whose gradients are clipped after they are summed over the replicas.

    Subclasses define `process_gradients`, and may call `clip_gradients` in it.

    Keras 3.15. It clips each replica's gradients before their sum, so that the same global batch
    gives another update for another number of devices.
    Upstream: tensorflow issue 33929.
    Test: tests/training/two_devices.py::test_two_devices_take_the_same_steps_as_one.
    """

    def process_gradients(self, gradients):
        """Returns those to apply; given are sums over replicas, None for a weight without one."""
        raise NotImplementedError

    def clip_gradients(self, gradients):
        """Returns the gradients, clipped by Keras's `clipnorm` or `clipvalue`."""
        return super()._clip_gradients(gradients)

    def _clip_gradients(self, grads):
        return grads

    _all_reduce_sum_gradients = summed_gradients


def skips_steps(optimizer):
    """Whether `iterations` of an optimizer do not count batches whose update was skipped.

    Keras's loss scaling does not count them. Ours counts them, except with
    `gradient_accumulation_steps`.
    Test: tests/training/test_callbacks.py::test_skipped_updates_of_loss_scaling_are_no_steps.
    """
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return False
    accumulates = unwrapped(optimizer).gradient_accumulation_steps
    return bool(accumulates) or not isinstance(optimizer, LossScaleOptimizer)
