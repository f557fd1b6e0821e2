"""The paper's Adam (section 5.3), and Muon for the matrices of the model.

`adam(model_dim)` is the paper's optimizer with its learning rate. Both classes compute the norm of
the global batch's gradient, can clip it, and can keep an exponential moving average (EMA) of the
weights. For bfloat16 weights they compute in float32; float16 weights are refused.
"""

import inspect
import math
import re
from collections.abc import Sequence

import keras
import tensorflow as tf
from keras.optimizers import schedules

from t2t_keras.errors import InputError
from t2t_keras.keras_compat import track
from t2t_keras.layers.value_checks import require_no_float16
from t2t_keras.training import keras_compat
from t2t_keras.training.schedules import InverseSquareRoot


def naming_arguments_of(kind, *but):
    """Returns a decorator that lets `help` show the arguments in a function's **kwargs.

    They are those of the constructor of `kind`, without the names in `but`.
    """

    def decorate(function):
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {*but, *(parameter.name for parameter in named)}
        more = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(kind).parameters.items()
            if name not in known and parameter.kind is not parameter.VAR_KEYWORD
        ]
        function.__signature__ = signature.replace(parameters=[*named, *more])
        return function

    return decorate


class OwnOptimizer(keras_compat.GradientsAfterReduction, keras_compat.Float32Updates):
    """Base of the optimizers of this library, to mix with one of Keras; see `apply` for the order.

    The sum of the gradients over replicas is clipped, by `clipnorm` and `clipvalue` as well.

    After t updates the average is Σ d^(t-i) w_i / Σ d^(t-i), over the weights w_1 … w_t after each
    update, without the initial weights. Weights that an update does not change, frozen or without a
    gradient, are averaged as well. Training continues from the weights themselves. The averages are
    variables of the optimizer, so that checkpoints include them; of bfloat16 weights in float32.

    Args:
        weight_decay: λ of decoupled weight decay (AdamW, Loshchilov and Hutter 2019): each update
            subtracts rate · λ · weight as well. None: no decay, as in the paper.
        global_clipnorm: the largest norm of all gradients together; larger gradients are scaled
            down to it. None: no clipping, as in the paper.
        ema_decay: d, above 0 and below 1; the average covers about the last 1 / (1 - d) updates.
            None: no average.

    Attributes:
        gradient_norm: float32 variable, the norm at the latest update, before clipping; see also
            `take_largest_gradient_norm`.
        averages: the average of each weight, list of `keras.Variable`, once the optimizer is built
            with a decay; before the first update the weights themselves.

    Raises:
        InputError: if one of these is out of its range, and for `use_ema`; by `build`, for float16
            weights.
    """

    def __init__(
        self,
        *args,
        weight_decay=None,
        global_clipnorm=None,
        ema_decay=None,
        use_ema=False,
        **kwargs,
    ):
        if weight_decay is not None and not weight_decay >= 0:
            raise InputError(f"weight_decay is {weight_decay}: give 0 or more.")
        if global_clipnorm is not None and not global_clipnorm > 0:
            raise InputError(
                f"global_clipnorm is {global_clipnorm}: give more than 0, or None for no clipping."
            )
        if ema_decay is not None and not 0 < ema_decay < 1:
            raise InputError(f"ema_decay is {ema_decay}: give more than 0 and less than 1.")
        if use_ema:
            raise InputError("use_ema is not supported: give ema_decay=0.999 instead.")
        kwargs |= {"weight_decay": weight_decay, "global_clipnorm": global_clipnorm}
        super().__init__(*args, **kwargs)
        self.ema_decay = ema_decay
        # Not `keras.Variable`s, which a checkpoint would hold.
        types = {
            "gradient_norm": "float32",
            "largest_norm": "float32",
            "largest_norm_step": "int64",
        }
        self.gradient_norm, self._largest_norm, self._largest_norm_step = (
            tf.Variable(
                tf.zeros([], dtype),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                name=name,
            )
            for name, dtype in types.items()
        )

    def build(self, var_list):
        if self.built:
            return
        require_no_float16(var_list)
        super().build(var_list)
        if self.ema_decay is not None:
            with tf.init_scope():  # XLA cannot initialize a variable from another one
                self.averages = [
                    self.add_variable_from_reference(
                        weight, "average", lambda _, dtype, weight=weight: tf.cast(weight, dtype)
                    )
                    for weight in var_list
                ]
        track(self, "variable", self.variables)

    def apply(self, grads, trainable_variables=None):
        """Updates the weights by this replica's gradients, in this order.

        1. Gradients of bfloat16 weights are cast to float32.
        2. The gradients are summed over the replicas, by Keras's call of `summed_gradients`.
        3. `process_gradients` takes the norm of the sum, and clips it.
        4. `update_step` of a subclass updates each weight.
        5. The averages follow the weights.
        """
        super().apply(self.in_float32(grads), trainable_variables)
        self.update_averages()

    def process_gradients(self, gradients):
        # Dense, because the rows of an embedding's gradient may occur several times.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        # In float32, whatever the types of the weights; it takes no two types.
        norm = tf.linalg.global_norm([tf.cast(g, tf.float32) for g in gradients if g is not None])
        self.gradient_norm.assign(norm)
        comparable = tf.where(tf.math.is_nan(norm), math.inf, norm)
        largest, step = self._largest_norm.read_value(), self._largest_norm_step.read_value()
        this_step = tf.cast(tf.convert_to_tensor(self.iterations), tf.int64) + 1
        self._largest_norm_step.assign(tf.where(comparable > largest, this_step, step))
        self._largest_norm.assign(tf.maximum(comparable, largest))
        if self.global_clipnorm is None:
            return self.clip_gradients(gradients)
        factor = self.global_clipnorm / tf.maximum(norm, self.global_clipnorm)  # NaN stays NaN
        return [g if g is None else g * tf.cast(factor, g.dtype) for g in gradients]

    def update_averages(self):
        """Adds the weights after an update to their averages, if there are any."""
        if self.ema_decay is None:
            return
        decay = tf.constant(self.ema_decay, tf.float64)
        updates = tf.cast(tf.convert_to_tensor(self.iterations), tf.float64)
        rate = (1 - decay) / (1 - decay**updates)  # 1 at the first update
        if self.gradient_accumulation_steps:  # most batches make no update
            rest = keras_compat.batches_taken(self) % self.gradient_accumulation_steps
            rate = tf.where(tf.equal(rest, 0), rate, 0.0)
        weights = keras_compat.trained_weights(self)
        for weight, average in zip(weights, self.averages, strict=True):
            change = tf.cast(weight, average.dtype) - tf.convert_to_tensor(average)
            average.value.assign_add(change * tf.cast(rate, average.dtype))

    def average_of(self, variable: keras.Variable) -> keras.Variable:
        """Returns the average of a weight, or the variable itself if it is not trained."""
        index = keras_compat.variable_index(self, variable)
        return variable if index is None else self.averages[index]

    def take_largest_gradient_norm(self) -> tuple[float, int]:
        """Returns the largest gradient norm since the last call, a float, and its step, an int.

        A norm of nan counts as infinite.
        """
        result = float(self._largest_norm.numpy()), int(self._largest_norm_step.numpy())
        self._largest_norm.assign(0.0)
        return result

    def get_config(self) -> dict:
        return super().get_config() | {"ema_decay": self.ema_decay}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Adam(OwnOptimizer, keras.optimizers.Adam):
    """Adam with the paper's constants (section 5.3); one operation updates a weight.

    Args:
        learning_rate: the rate, or its schedule.
        beta_1: β1, decay of the mean of gradients.
        beta_2: β2, decay of the mean of their squares.
        epsilon: ε, added to the root of the mean square.
        weight_decay, global_clipnorm, ema_decay: see `OwnOptimizer`, also for what is refused.
        **kwargs: further arguments of `keras.optimizers.Adam`.

    Example:
        >>> optimizer = Adam(InverseSquareRoot(512), global_clipnorm=1.0, ema_decay=0.999)
    """

    @naming_arguments_of(keras.optimizers.Adam)
    def __init__(
        self,
        learning_rate: float | schedules.LearningRateSchedule = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        epsilon: float = 1e-9,
        *,
        weight_decay: float | None = None,
        global_clipnorm: float | None = None,
        ema_decay: float | None = None,
        name: str = "adam",
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            beta_1,
            beta_2,
            epsilon,
            weight_decay=weight_decay,
            global_clipnorm=global_clipnorm,
            ema_decay=ema_decay,
            name=name,
            **kwargs,
        )

    def update_step(self, gradient, variable, learning_rate):
        constants = self.beta_1, self.beta_2, self.epsilon
        moments = keras_compat.adam_moments(self, variable)
        _adam_update(self, variable, moments, gradient, learning_rate, constants, self.weight_decay)


@keras.saving.register_keras_serializable(package="t2t_keras")
class Muon(keras_compat.HiddenMatrices, OwnOptimizer, keras.optimizers.Muon):
    """Muon for the matrices of hidden layers, and the paper's Adam for all other weights.

    A matrix moves by the orthogonal matrix nearest to the sum of its gradients (Jordan et al. 2024,
    "Muon: An optimizer for hidden layers in neural networks"), scaled so that a learning rate for
    Adam fits (Liu et al. 2025, arXiv:2502.16982). Of several matrices fused in one kernel each gets
    its own orthogonal update.

    A weight is a matrix of a hidden layer if its name contains "kernel", as in Keras's `Dense`.
    Adam moves all others: vectors (also with a second axis of size 1, or as rows of a table),
    embeddings, positions, and the output projection of this library's models, tied or not. For your
    own model, name the output layer in `exclude_layers`. A variable of no layer is a matrix, unless
    it has a name of its own.

    Args:
        learning_rate: as for `Adam`.
        momentum: decay of the sum of gradients.
        adam_beta_1, adam_beta_2, epsilon: Adam's constants.
        exclude_layers: regular expressions; a weight whose path matches one also gets Adam's
            update.
        split_kernels: {name of a layer: numbers of columns of the matrices fused in its kernel},
            for example {"qkv_projection": [512, 512, 512]}.
        weight_decay, global_clipnorm, ema_decay: see `OwnOptimizer`, also for what is refused.
        **kwargs: further arguments of `keras.optimizers.Muon`.

    Raises:
        InputError: when it is built, if a kernel does not have the columns in split_kernels.

    Example:
        >>> optimizer = Muon(1e-3, split_kernels={"qkv_projection": [128, 128, 128]})
    """

    @naming_arguments_of(keras.optimizers.Muon)
    def __init__(
        self,
        learning_rate: float | schedules.LearningRateSchedule = 0.001,
        momentum: float = 0.95,
        *,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.98,
        epsilon: float = 1e-9,
        weight_decay: float | None = None,
        exclude_layers: Sequence[str] = (),
        split_kernels: dict[str, list[int]] | None = None,
        global_clipnorm: float | None = None,
        ema_decay: float | None = None,
        name: str = "muon",
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            momentum=momentum,
            adam_beta_1=adam_beta_1,
            adam_beta_2=adam_beta_2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            exclude_layers=list(exclude_layers),
            global_clipnorm=global_clipnorm,
            ema_decay=ema_decay,
            name=name,
            **({"adam_weight_decay": weight_decay} | kwargs),
        )
        self.split_kernels = {key: list(widths) for key, widths in (split_kernels or {}).items()}

    def build(self, var_list):
        if self.built:
            return
        super().build(var_list)
        self._widths = [self._widths_of(variable) for variable in var_list]

    def update_step(self, gradient, variable, learning_rate):
        index = keras_compat.variable_index(self, variable)
        momentum, square = self.momentums[index], self.adam_velocities[index]
        if square is None:
            self._orthogonal_update(variable, momentum, gradient, learning_rate, index)
        else:
            constants = self.adam_beta_1, self.adam_beta_2, self.epsilon
            decay = self.adam_weight_decay, self.adam_lr_ratio
            _adam_update(
                self, variable, (momentum, square), gradient, learning_rate, constants, *decay
            )

    def is_hidden_matrix(self, variable):
        """Whether a weight has an orthogonal update: by its axes, its name, `exclude_layers`."""
        if len(variable.shape) != 2 or 1 in variable.shape:
            return False
        if any(re.search(pattern, variable.path) for pattern in self.exclude_layers):
            return False
        name = variable.name
        if "embedding" in name.lower() and not self.exclude_embeddings:
            return True
        of_no_layer = variable.path == name and name.startswith("variable")  # Keras's own name
        return of_no_layer or ("kernel" in name and name != "output_kernel")

    def get_config(self) -> dict:
        split_kernels = {key: list(widths) for key, widths in self.split_kernels.items()}
        return super().get_config() | {"split_kernels": split_kernels}

    def _orthogonal_update(self, variable, momentum, gradient, learning_rate, index):
        self.assign_add(momentum, gradient + momentum * (self.momentum - 1))
        total = gradient + self.momentum * momentum if self.nesterov else momentum
        updates = [
            self.lr_adjust(learning_rate * self.zeropower_via_newtonschulz5(part, self.ns_steps))
            for part in tf.split(tf.cast(total, tf.float32), self._widths[index], axis=1)
        ]
        weights = self.decayed(variable, self.weight_decay, learning_rate)
        self.assign(variable, weights - tf.cast(tf.concat(updates, axis=1), weights.dtype))

    def _widths_of(self, variable):
        """Returns the numbers of columns of the matrices in a kernel; None if Adam updates it."""
        if not self.is_hidden_matrix(variable):
            return None
        parts = reversed(variable.path.split("/"))  # the nearest layer's first
        key = next((part for part in parts if part in self.split_kernels), None)
        if key is None:
            return [variable.shape[1]]
        widths = self.split_kernels[key]
        if sum(widths) != variable.shape[1]:
            raise InputError(
                f"split_kernels[{key!r}] is {widths}, in sum {sum(widths)}, but {variable.path} "
                f"has {variable.shape[1]} columns: give the widths of the matrices fused in it."
            )
        return widths


@naming_arguments_of(Adam, "learning_rate")
def adam(model_dim: int, warmup_steps: int = 4000, scale: float = 1.0, **kwargs) -> Adam:
    """Returns the paper's Adam with the paper's learning rate (section 5.3, equation 3).

    β1 is 0.9, β2 0.98, ε 1e-9; the rate grows in the warm-up and then falls with the inverse square
    root of the step.

    Args:
        model_dim, warmup_steps, scale: see `InverseSquareRoot`.
        **kwargs: all arguments of `keras.optimizers.Adam` except the learning rate, such as
            `weight_decay`, `clipnorm` or `loss_scale_factor`. `global_clipnorm` clips by
            the norm of the global batch on any number of devices, and `ema_decay` keeps an
            average of the weights for checkpoints.

    Raises:
        InputError: if an argument is out of its range.

    Example:
        >>> optimizer = t2t.adam(model_dim=512, warmup_steps=4000, weight_decay=0.01)
        >>> float(optimizer.learning_rate)  # of the first step
        1.74692...e-07
    """
    return Adam(InverseSquareRoot(model_dim, warmup_steps, scale), **kwargs)


def _adam_update(
    optimizer, variable, moments, gradient, learning_rate, constants, weight_decay, rate_factor=1
):
    """Applies Adam's update to a weight, a `tf.Variable`, with the `adam_moments` of it.

    One fused operation replaces Keras's formula, which reads and writes the weights several times.
    For bfloat16 weights and for AMSGrad the formula is computed step by step, in float32. The
    constants are β1, β2 and ε; `rate_factor` is one of the update's rate, not of the decay's.
    """
    mean, square, *largest = moments
    dtype = tf.as_dtype(mean.dtype)
    beta_1, beta_2, epsilon = (tf.cast(constant, dtype) for constant in constants)
    step = tf.cast(tf.convert_to_tensor(optimizer.iterations) + 1, dtype)
    rate = tf.cast(learning_rate, dtype) * rate_factor
    gradient = tf.cast(tf.convert_to_tensor(gradient), dtype)
    if variable.dtype == dtype and not largest:
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.value.handle,
            v=square.value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=epsilon,
            grad=gradient,
        )
        return
    optimizer.assign_add(mean, (gradient - mean) * (1 - beta_1))
    optimizer.assign_add(square, (gradient**2 - square) * (1 - beta_2))
    if largest:
        optimizer.assign(largest[0], tf.maximum(largest[0], square))
        square = largest[0]
    rate *= tf.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    weights = optimizer.decayed(variable, weight_decay, learning_rate)
    optimizer.assign(variable, weights - rate * mean / (tf.sqrt(square) + epsilon))
