"""The training step of all models: gradient accumulation, fused losses, replicas, XLA.

`TrainableModel` is a `keras.Model`. Its `train_step` differs from Keras's in three ways.

- It can split the batch into micro-batches (gradient accumulation, `accumulate_gradients`). Losses
  and gradients are sums, which are divided once, by the tokens of the global batch.
- Its objective, which `compile` chooses, may be a loss that is fused with the output projection:
  it gets the decoder's output instead of logits, which then exist only in chunks
  (`FusedObjective`). Any other loss and metrics are computed by Keras (`KerasObjective`).
- On a GPU XLA compiles it, see `compiled_steps`: forward and backward pass, and on one device the
  update. Keras cannot compile the sum of gradients over several devices.

Evaluation always computes logits, without XLA.
"""

import functools
import itertools

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers import value_checks
from t2t_keras.layers.basic import Rematerialized
from t2t_keras.models.compiled_steps import CompiledSteps, DefaultSteps, PlainSteps, is_default

_SETTINGS = ("micro_batches", "parallel_micro_batches")


class TrainableModel(
    keras_compat.SavedSignature, keras_compat.ReplicaRepairs, Rematerialized, keras.Model
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
        InputError: by `fit`, if either is less than 1; by `compile`, for a loss of probabilities.

    Example:
        >>> model.micro_batches = 8
        >>> model.compile(t2t.adam(512), t2t.LabelSmoothedCrossEntropy())
    """

    micro_batches = 1
    parallel_micro_batches = 1
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
        has_own_step = type(self).train_step is not TrainableModel.train_step
        auto = jit_compile == "auto"
        if auto:
            jit_compile = not has_own_step and is_default(self.distribute_strategy)
        takes_xla = bool(jit_compile) and not run_eagerly
        self._asked_for_xla = "auto" if auto else takes_xla
        compiled = DefaultSteps if auto else CompiledSteps
        self._parts = compiled() if takes_xla else PlainSteps()
        replicas = self.distribute_strategy.num_replicas_in_sync
        if auto_scale_loss and optimizer and self.dtype_policy.name == "mixed_float16":
            optimizer = keras_compat.with_loss_scaling(optimizer)
        _require_loss_of_logits(loss)
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
        self.objective = _choose_objective(self, announced, loss_weights)

    def train_step(self, data):
        """Makes one update of the weights from a batch (inputs, labels, sample_weight)."""
        data = self._checked(data)
        micro_batches = self._micro_batches(data)
        size = _size(data)  # a divisor that keeps the gradients of sums in float16's range
        differentiate = self._parts.differentiate(functools.partial(self._differentiate, size))
        loss, tokens, gradients, outputs = accumulate_gradients(
            differentiate, micro_batches, self.parallel_micro_batches
        )
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        self._parts.update(self._update)(gradients, tokens, size)
        return self._report(loss, tokens, micro_batches, outputs)

    def _report(self, loss, tokens, batches, outputs):
        """Returns {name: value} of the loss and the metrics, with those of some batches."""
        keras_compat.update_loss_tracker(self, loss, tokens)
        for (inputs, labels, sample_weight), output in zip(batches, outputs, strict=True):
            results = self.compute_metrics(inputs, labels, output, sample_weight)
        return keras_compat.reducible(results)

    def _checked(self, data):
        """Returns a batch with checks: if ids or labels are out of range, the step fails.

        A user's own step under XLA is not checked, nor a step on several GPUs, which would wait.
        Labels are checked unless the loss ignores some, such as -100.
        """
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if keras.tree.is_nested(sample_weight) and not keras.tree.is_nested(labels):
            raise InputError(
                f"sample_weight is a {type(sample_weight).__name__}, but labels are one tensor: "
                "give one tensor, [batch, target] or [batch]."
            )
        replicated = self.distribute_strategy.num_replicas_in_sync > 1
        # `self.jit_compile` is that of a user's own step; ours compiles its parts, see `_parts`.
        if not self.limits or self.jit_compile or (replicated and ops.device() != "cpu"):
            return data
        counts_all_labels = hasattr(self.loss, "sum_and_tokens") or (
            isinstance(self.loss, keras.losses.SparseCategoricalCrossentropy)
            and self.loss.ignore_class is None
        )
        limits = self.limits if counts_all_labels else self.limits | {"labels": None}
        return (*value_checks.checked(limits, self.max_length, inputs, labels), sample_weight)

    def _micro_batches(self, data):
        """Returns the micro-batches of a batch, (inputs, labels, sample_weight) each."""
        for name in _SETTINGS:
            require_whole_number(name, getattr(self, name))
        batch = keras.utils.unpack_x_y_sample_weight(data)
        if self.micro_batches == 1:
            return [batch]
        rows = _rows(batch)
        cuts = [rows * i // self.micro_batches for i in range(self.micro_batches + 1)]
        return [  # they differ by one row at most
            _map_tensors(lambda x, b=begin, e=end: x[b:e], batch)
            for begin, end in itertools.pairwise(cuts)
        ]

    def _differentiate(self, size, micro_batch):
        """Computes the sum of a micro-batch's losses, and its gradients.

        Args:
            size: float32 scalar, by which the gradients are divided.
            micro_batch: (inputs, labels, sample_weight).

        Returns:
            The sum of the losses and the weight of their tokens, float32 scalars; the gradients of
            the sum times the loss scale of mixed_float16, a list; the outputs that metrics take.
        """
        with tf.GradientTape() as tape:
            loss, tokens, outputs = self.objective(self, micro_batch)
            scaled = self.optimizer.scale_loss(loss / size)
        # The variables after the call, which may build layers.
        gradients = tape.gradient(scaled, self.trainable_variables)
        if self.steps_per_execution > 1 and self.distribute_strategy.num_replicas_in_sync > 1:
            # In a loop replicas cannot exchange the rows of an embedding, new numbers in each step.
            gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        return loss, tokens, gradients, outputs

    def _update(self, gradients, tokens, size):
        """Updates the weights by the gradients of the mean over the global batch.

        Args:
            gradients: list of the gradients of this replica's sum / size; some may be None or
                sparse.
            tokens: float32 scalar, the weight of this replica's tokens.
            size: float32 scalar, a divisor that keeps the gradients of float16 in range.
        """
        factor = tf.math.divide_no_nan(size, *keras_compat.sum_over_replicas([tokens]))
        gradients = [_multiplied(gradient, factor) for gradient in gradients]
        self.optimizer.apply(gradients, self.trainable_variables)

    @property
    def fuses_loss(self):
        """Whether the step uses the fused loss; see `_choose_objective`."""
        return isinstance(self.objective, FusedObjective)

    def test_step(self, data):
        """Adds a batch (inputs, labels, sample_weight) to loss and metrics of an evaluation."""
        batch = keras.utils.unpack_x_y_sample_weight(self._checked(data))
        loss, tokens, predictions = KerasObjective()(self, batch, training=False)
        return self._report(loss, tokens, [batch], [predictions])

    def predict_step(self, data):
        return super().predict_step(self._checked(data))

    def require_in_range(self, inputs):
        """Raises InputError for ids out of range; only outside of graphs."""
        if tf.executing_eagerly():
            value_checks.checked(self.limits, self.max_length, inputs)

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        self._require_labels_for(kwargs.get("class_weight"))
        return super().fit(*args, **kwargs)

    @functools.wraps(keras.Model.train_on_batch)
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
            self.train_function = self._parts.guarded(self, self.train_function)

    def make_steps_of(self, parts):
        """Replaces the parts of the training step, see `compiled_steps`."""
        self._parts = parts
        self.make_train_function(force=True)

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
        settings = {name: getattr(self, name) for name in _SETTINGS}
        return config and config | settings | {"jit_compile": self._asked_for_xla}

    def compile_from_config(self, config):
        if type(self).compile is not TrainableModel.compile:  # a user's, of unknown arguments
            super().compile_from_config(config)  # warns
            return
        config = keras.saving.deserialize_keras_object(config)
        for name in _SETTINGS:
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


def _rows(batch):
    """Returns the number of rows of the first tensor in a nest, int32 scalar."""
    return tf.shape(next(x for x in keras.tree.flatten(batch) if x is not None))[0]


def _size(batch):
    """Returns the number of labels of a batch, or else its rows, at least 1: float32 scalar."""
    _, labels, _ = batch = keras.utils.unpack_x_y_sample_weight(batch)
    size = _rows(batch) if labels is None else tf.size(keras.tree.flatten(labels)[0])
    return tf.cast(tf.maximum(size, 1), tf.float32)


# Objectives --------------------------------------------------------------------------------------
#
# An objective is a function (model, micro_batch) → (loss, tokens, outputs): the sum of the losses,
# what the sums of all micro-batches and replicas are divided by together, once, and what metrics
# take.


def _choose_objective(model, metrics, loss_weights):
    """Returns the objective of a compiled model.

    It is fused if the loss has `from_hidden`, every metric `values_from_terms`, and the model
    `output_matrix`. It is not fused with `loss_weights`, or if a subclass overrides the model's
    `call`, `compute_loss` or `compute_metrics`, the loss's `call`, or a metric's `values` or
    `update_state`.

    Args:
        model: `TrainableModel`.
        metrics: list of all metrics.
        loss_weights: those of `compile`, or None.
    """
    fuses = (
        loss_weights is None
        and _has_fused_form(model, "output_matrix", "call", "compute_loss", "compute_metrics")
        and _has_fused_form(model.loss, "from_hidden", "call", "__call__")
        and all(
            _has_fused_form(metric, "values_from_terms", "values", "update_state")
            for metric in metrics
        )
    )
    if not fuses:
        return KerasObjective()
    return FusedObjective(any(getattr(metric, "needs_argmax", False) for metric in metrics))


def _has_fused_form(owner, fused_form, *methods):
    """Whether an object has a fused form that may replace the methods.

    It may not replace them if a subclass overrides one of them without its own fused form: each
    method must be defined in the class that defines the fused form, or in a base class of it.
    """
    kind = type(owner)

    def definer(name):
        return next((c for c in kind.__mro__ if name in vars(c)), object)

    return hasattr(kind, fused_form) and all(
        issubclass(definer(fused_form), definer(method)) for method in methods
    )


class FusedObjective:
    """A loss with `from_hidden`; the metrics take its `ops.LossTerms` instead of logits.

    Args:
        computes_argmax: whether a metric needs the most probable tokens.
    """

    def __init__(self, computes_argmax):
        self.computes_argmax = computes_argmax

    def __call__(self, model, micro_batch):
        """Returns the loss's sum over a micro-batch, the weight of its tokens, and `LossTerms`."""
        inputs, labels, sample_weight = micro_batch
        hidden = model(inputs, training=True, return_hidden=True)  # [batch, target, model_dim]
        terms = model.loss.from_hidden(
            labels,
            tf.cast(hidden, model.compute_dtype),
            tf.convert_to_tensor(model.output_matrix),
            sample_weight,
            compute_argmax=self.computes_argmax,
            bias=model.output_bias,
        )
        return terms.loss + _penalties(model, terms.tokens), terms.tokens, terms


class KerasObjective:
    """Any loss and metrics of logits, computed by Keras."""

    def __call__(self, model, micro_batch, training=True):
        """Returns the loss's sum over a micro-batch, its divisor, and the logits.

        Sum / divisor is the mean. The divisor is the number or the weight of the elements that
        count; for `LabelSmoothedCrossEntropy` it is the weight of the tokens. Several micro-batches
        or devices add up sums and divisors.

        Raises:
            InputError: for a loss that returns one number, such as a masked mean, with several
                micro-batches or devices: its divisor is unknown.
        """
        inputs, labels, sample_weight = micro_batch
        logits = keras_compat.call(model, inputs, training)
        parts = model.distribute_strategy.num_replicas_in_sync
        parts *= model.micro_batches if training else 1
        has_own_loss = type(model).compute_loss is not keras.Model.compute_loss
        if not has_own_loss:
            total, divisor = _loss_sum(model, labels, logits, sample_weight, parts)
            if divisor is not None:
                return total + _penalties(model, divisor), divisor, logits
        if parts > 1 and (has_own_loss or model.loss is not None):
            where = "micro_batches above 1" if model.micro_batches > 1 else "several devices"
            raise InputError(
                f"The loss returns one number for a batch, or none, so {where} cannot weight the "
                "parts by their tokens: give `compile` a loss that returns one number for each row "
                "or token, which Keras averages. LabelSmoothedCrossEntropy and ignore_class leave "
                "tokens out."
            )
        rows = tf.cast(_rows(micro_batch), tf.float32)
        loss = keras_compat.compute_loss(model, inputs, labels, logits, sample_weight, training)
        return tf.cast(loss, tf.float32) * rows, rows, logits


def _loss_sum(model, labels, logits, sample_weight, parts):
    """Returns the sum of the compiled loss and its divisor, or None for the divisor.

    There is none if several losses are compiled, or the loss has no elements or its own `__call__`.
    """
    loss, factor = keras_compat.compiled_loss(model, labels, logits)
    if loss is not None and _has_fused_form(loss, "sum_and_tokens", "__call__"):
        total, divisor = loss.sum_and_tokens(labels, logits, sample_weight)
    elif loss is not None and type(loss).__call__ is keras.losses.Loss.__call__:
        total, divisor = keras_compat.loss_sum(loss, labels, logits, sample_weight, parts)
    else:
        return None, None
    return tf.cast(total if factor is None else total * factor, tf.float32), divisor


def _penalties(model, tokens):
    """Returns tokens · the sum of `add_loss` and of regularizers; 0 if a part is empty."""
    penalties = [tf.cast(tf.reduce_sum(penalty), tf.float32) for penalty in model.losses]
    return tf.math.multiply_no_nan(tf.add_n(penalties), tokens) if penalties else 0.0


def _require_loss_of_logits(loss):
    """Raises InputError for Keras's losses of probabilities, which train badly on logits."""
    name = getattr(loss, "name", getattr(loss, "__name__", loss))  # loss, function or str
    takes_probabilities = isinstance(loss, tuple(_OF_PROBABILITIES.values())) or (
        isinstance(name, str) and name in _OF_PROBABILITIES
    )
    config = getattr(loss, "get_config", dict)()
    if takes_probabilities and not config.get("from_logits"):
        raise InputError(
            f"loss is {name!r}, which takes probabilities, and this model gives logits: give "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )


_OF_PROBABILITIES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
}


# Gradient accumulation ---------------------------------------------------------------------------


def accumulate_gradients(differentiate, micro_batches, parallel):
    """Differentiates micro-batches and adds up their losses and gradients.

    Args:
        differentiate: function of a micro-batch; see `TrainableModel._differentiate`.
        micro_batches: list of (inputs, labels, sample_weight).
        parallel: int, how many may run at the same time: each micro-batch waits for the gradients
            of the one that is `parallel` before it.

    Returns:
        The sums of losses, tokens and gradients, a list, and the list of outputs.
    """
    losses, tokens, sums, outputs = [], [], [], []
    for i, micro_batch in enumerate(micro_batches):
        if i >= parallel:
            micro_batch = _after(sums[i - parallel], micro_batch)  # noqa: PLW2901
        loss, count, gradients, output = differentiate(micro_batch)
        losses.append(loss)
        tokens.append(count)
        sums.append(_add(sums[-1], gradients) if sums else gradients)
        outputs.append(output)
    return tf.add_n(losses), tf.add_n(tokens), sums[-1], outputs


def _after(gradients, micro_batch):
    """Returns the tensors of a micro-batch, available once the gradients are."""
    waits_for = [gradient for gradient in gradients if gradient is not None]
    if not waits_for:
        return micro_batch
    with tf.control_dependencies(waits_for):
        return _map_tensors(tf.identity, micro_batch)


def _add(sums, gradients):
    """Adds up two lists of gradients, any of which may be None.

    Those of float16 and bfloat16 weights are added up in float32.
    """
    return [
        total if new is None else new if total is None else _wide(total) + _wide(new)
        for total, new in zip(sums, gradients, strict=True)
    ]


def _multiplied(x, factor):
    if isinstance(x, tf.IndexedSlices):
        return tf.IndexedSlices(_multiplied(x.values, factor), x.indices, x.dense_shape)
    return x if x is None else x * tf.cast(factor, x.dtype)


def _wide(gradient):
    gradient = tf.convert_to_tensor(gradient)
    return tf.cast(gradient, tf.float32) if gradient.dtype.size == 2 else gradient


def _map_tensors(function, nest):
    return keras.tree.map_structure(function, nest, none_is_leaf=False)
