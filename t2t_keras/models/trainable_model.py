"""`TrainableModel`: compile, fit and save of all models; its step is in `train_step`."""

import functools
from typing import Any

import keras
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.layers import value_checks
from t2t_keras.layers.basic import HasFastForms, Rematerialized, defines_alone, has_form
from t2t_keras.models.compiled_steps import CompiledSteps, DefaultSteps, is_default
from t2t_keras.models.keras_objective import keras_objective
from t2t_keras.models.train_step import SETTINGS, TrainStep, fused_objective

_wraps: Any = functools.wraps
"""Of any type: to a type checker, what `functools.wraps` returns is no method."""


class TrainableModel(
    HasFastForms,
    TrainStep,
    keras_compat.SavedSignature,
    keras_compat.ReplicaRepairs,
    Rematerialized,
    keras.Model,
):
    """A `keras.Model` with micro-batches and fused losses, under any `tf.distribute` strategy.

    A step of several micro-batches, or devices, equals the step of the whole batch: the sums of
    losses are added up and divided once, by all tokens (or by the elements that another loss
    counts). `fit` and `evaluate` report the loss in the same way, over all batches. A loss that
    returns one number, such as a masked mean, is refused in such steps. Optimizer steps, schedule,
    callbacks and checkpoints do not change; only dropout draws other masks.

    Micro-batches one after another need the memory of one of them. Several in parallel keep the
    cores busy if a whole batch does not: the operations of a small model are too short to be
    shared between threads; see `tf.config.threading.set_intra_op_parallelism_threads`.

    Attributes:
        micro_batches: int, number of parts of a batch (on each replica), cut by rows. Set it before
            `compile`; it is saved with the other arguments of `compile`.
        parallel_micro_batches: int, how many of them may run at the same time.

    Raises:
        InputError: by the constructor, under ParameterServerStrategy; by `fit`, if either is less
            than 1, or class_weight is given for sequences; by `compile`, for float16 weights,
            another jit_compile, a loss or metric of probabilities, or a loss that defines nothing
            but `from_hidden` anew if its step needs logits.

    Example:
        >>> model.micro_batches = 8
        >>> model.compile(t2t.adam(512), t2t.LabelSmoothedCrossEntropy())
    """

    # A fused step gets hidden states from `call`, and metrics get no logits.
    fast_forms = {"output_matrix": ("call", "compute_loss", "compute_metrics")}  # noqa: RUF012
    micro_batches = 1
    parallel_micro_batches = 1
    xla = None  # the parts of a step that XLA compiles, `CompiledSteps`; None: nothing
    output_bias = None  # that of the logits, beside a model's `output_matrix`
    max_length = None  # longest row of ids
    limits = {}  # noqa: RUF012  {name of ids, or "labels": `Limit`}, which a model states
    labels_are_sequences = False  # whether a row has several labels
    head_settings = {}  # noqa: RUF012  arguments of the constructor beside config, which are saved

    def __init__(self, *args, **kwargs):
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            raise InputError(
                f"The strategy is {type(strategy).__name__}, whose workers do not train in step: "
                "make the model in the scope of MirroredStrategy or MultiWorkerMirroredStrategy, "
                "see t2t_keras.training.distribution.default_strategy."
            )
        super().__init__(*args, **kwargs)

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        run_eagerly=False,
        steps_per_execution=1,
        jit_compile="auto",
        auto_scale_loss=True,
    ):
        """Configures training; see `keras.Model.compile`.

        With `jit_compile=True` XLA compiles a training step once for each shape of a batch: give
        `fit` batches of few shapes, as `LengthBuckets` makes with `bucket_lengths`, and `Packing`.
        "auto" is True on one GPU, but only the first 16 shapes are compiled, and a model that XLA
        cannot compile runs without it; else it is False. A `train_step` of your own is compiled
        only with True: as a whole, on one device. Under mixed_float16 the loss is scaled as by
        `keras.optimizers.LossScaleOptimizer`, but a step whose update is skipped counts as a step.
        """
        if jit_compile not in ("auto", True, False, None):  # 1 and np.True_ are True
            raise InputError(f'jit_compile is {jit_compile!r}: give True, False or "auto".')
        value_checks.require_no_float16(self.trainable_variables)
        replicas = self.distribute_strategy.num_replicas_in_sync
        has_own_step = type(self).train_step is not TrainStep.train_step
        auto = jit_compile == "auto"
        if auto:
            jit_compile = not has_own_step and is_default(replicas)
        takes_xla = bool(jit_compile) and not run_eagerly
        self._asked_for_xla = "auto" if auto else takes_xla
        compiled = DefaultSteps if auto else CompiledSteps
        self.xla = compiled() if takes_xla else None
        if auto_scale_loss and optimizer and self.dtype_policy.name == "mixed_float16":
            optimizer = keras_compat.with_loss_scaling(optimizer)
        _require_logits("loss", loss)
        _require_logits("metric", [metrics, weighted_metrics])
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=takes_xla and has_own_step and replicas == 1,
            auto_scale_loss=auto_scale_loss,
        )
        if self.optimizer is not None:
            keras_compat.keep_no_graphs(self.optimizer)
        announced = keras.tree.flatten([metrics or [], weighted_metrics or []])
        # A step with `from_hidden` in place of a loss's call needs two more fast forms: the model's
        # `output_matrix` in place of its call, and each metric's `values_from_terms`.
        self.fuses_loss = (
            has_form(self.loss, "from_hidden")
            and has_form(self, "output_matrix")
            and all(has_form(metric, "values_from_terms") for metric in announced)
            and loss_weights is None
        )
        needs_hidden = defines_alone(self.loss, "from_hidden")
        if needs_hidden and not self.fuses_loss:
            raise InputError(
                f"{type(self.loss).__name__} defines from_hidden, but this model, its metrics or "
                "loss_weights need a loss of logits: define sum_and_tokens or call as well."
            )
        compute_argmax = any(getattr(metric, "needs_argmax", False) for metric in announced)
        fused = functools.partial(fused_objective, compute_argmax=compute_argmax)
        self.objective = fused if self.fuses_loss else keras_objective
        self.test_objective = fused if needs_hidden else keras_objective

    def require_in_range(self, inputs):
        """Raises InputError for ids out of range; only outside of graphs."""
        if tf.executing_eagerly():
            value_checks.checked(self.limits, self.max_length, inputs)

    @_wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        self._require_labels_for(kwargs.get("class_weight"))
        return super().fit(*args, **kwargs)

    @_wraps(keras.Model.train_on_batch)
    def train_on_batch(self, *args, **kwargs):
        self._require_labels_for(kwargs.get("class_weight"))
        return super().train_on_batch(*args, **kwargs)

    def _require_labels_for(self, class_weight):
        if class_weight is not None and self.labels_are_sequences:
            raise InputError(
                "class_weight is for one label a row: weight tokens by sample_weight, "
                "[batch, target]."
            )

    def make_train_function(self, force=False):
        # TensorFlow traces a step a second time if it made variables in the first.
        if not self.optimizer.built and _all_layers_built(self):
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        if self.train_function is None or force:
            super().make_train_function(force)
            self.train_function = value_checks.input_errors(self.train_function)
            if self.xla:
                self.train_function = self.xla.guarded(self, self.train_function)

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            super().make_test_function(force)
            self.test_function = value_checks.input_errors(self.test_function)

    def make_predict_function(self, force=False):
        if self.predict_function is None or force:
            super().make_predict_function(force)
            self.predict_function = value_checks.input_errors(self.predict_function)

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """Exports the model, from ids to logits; see `keras.Model.export`.

        By default the inputs are those of `input_signature`, of any batch and length. For an
        export from text to text see `t2t_keras.export_saved_model`.
        """
        signature = input_signature or [self.input_signature]
        super().export(filepath, format, verbose, signature, **kwargs)

    def save(self, filepath, *args, **kwargs):
        """Saves the model as a .keras file; see `keras.Model.save`.

        Raises:
            InputError: for an HDF5 file, which could not be loaded.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise InputError(
                f"{filepath}: save the model as .keras, or its weights by save_weights."
            )
        super().save(filepath, *args, **kwargs)

    def quantize(self, mode=None, **kwargs):
        """Raises InputError: the layers do not support Keras's quantization."""
        del kwargs
        raise InputError(
            f"quantize({mode!r}) is not supported: for less memory train or load with "
            'dtype="mixed_bfloat16", for int8 on CPUs export with precision="int8" '
            "(t2t_keras.export_saved_model)."
        )

    def get_compile_config(self):
        config = super().get_compile_config()  # {} of a model that is not compiled
        settings = {name: getattr(self, name) for name in SETTINGS}
        return config and config | settings | {"jit_compile": self._asked_for_xla}

    def compile_from_config(self, config):
        if type(self).compile is not TrainableModel.compile:  # a user's, of unknown arguments
            super().compile_from_config(config)  # warns
            return
        config = keras.saving.deserialize_keras_object(config)
        for name in SETTINGS:
            setattr(self, name, config.pop(name, 1))
        self.compile(**config)
        if self.optimizer is not None:
            self.build_all_layers()
            self.optimizer.build(self.trainable_variables)

    def load_own_variables(self, store):
        self.build_all_layers()  # Keras reads the weights of layers that are built, no others
        super().load_own_variables(store)

    def build_all_layers(self):
        """Calls the model if a subclass has layers to build; raises InputError if that fails."""
        if _all_layers_built(self):
            return
        ids = keras.tree.map_structure(lambda x: tf.ones([1, 1], x.dtype), self.input_signature)
        try:
            self(ids)
        except Exception as error:
            raise InputError(
                f"{type(self).__name__} has layers that its first call builds, and that call fails "
                "for ids [1, 1]: build them in __init__, or call the model before it loads weights."
            ) from error


def _all_layers_built(model):
    return all(layer.built for layer in keras_compat.all_layers(model))


# Names of Keras's losses and metrics of probabilities. Those with `from_logits` take logits too.
_OF_PROBABILITIES = {
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy",
    "dice",
    "kl_divergence",
    "sparse_categorical_crossentropy",
    "tversky",
}


def _require_logits(kind, things):
    """Raises InputError for Keras's losses and metrics of probabilities, wrong for logits.

    `things` is a nest of losses or metrics (`kind`), functions, or their names.
    """
    get, place = {
        "loss": (keras.losses.get, "keras.losses"),
        "metric": (keras.metrics.get, "keras.metrics"),
    }[kind]
    for thing in keras.tree.flatten(things):
        try:
            resolved = get(thing) if isinstance(thing, str) else thing
        except ValueError:  # no such name, as Keras will say, or one of Keras's `compile` alone
            resolved = None
        is_cross_entropy = isinstance(thing, str) and thing in ("ce", "crossentropy")
        if is_cross_entropy or _takes_probabilities(resolved):
            name = getattr(thing, "name", getattr(thing, "__name__", thing))
            raise InputError(
                f"{kind} is {name!r}, which takes probabilities, and this model gives logits: give "
                f"{place}.SparseCategoricalCrossentropy(from_logits=True)."
            )


def _takes_probabilities(thing):
    """Whether a function, loss or metric of Keras takes probabilities as it is configured."""
    function, options = thing, {}
    if isinstance(thing, (keras.losses.Loss, keras.metrics.Metric)):
        function, options = keras_compat.wrapped_function(thing)
    while isinstance(function, functools.partial):
        function, options = function.func, function.keywords | options
    name = getattr(function, "__name__", None)
    is_of_keras = function is getattr(keras.losses, name or "", None)
    return is_of_keras and name in _OF_PROBABILITIES and not options.get("from_logits")
