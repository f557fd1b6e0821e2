"""The training step of all models: gradient accumulation, fused losses, replicas, XLA.

`Trainer` is a `keras.Model`. Its `train_step` differs from Keras's in three things. It can split
the batch into micro-batches (gradient accumulation). If the loss has a fused form with the output
projection, it gets the decoder's output instead of logits; the logits then exist only in chunks. If
the user overrides the loss, a metric or `call`, the step computes logits as Keras does. With
`jit_compile=True` XLA compiles the forward and backward pass, not the sum of the replicas'
gradients and the update, which Keras cannot compile on several devices. Evaluation always computes
logits, without XLA.
"""

import itertools

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.rematerialization import Rematerialized

_SETTINGS = ("micro_batches", "parallel_micro_batches")
_OF_PROBABILITIES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
}


class Trainer(keras_compat.ReplicaRepairs, Rematerialized, keras.Model):
    """A `keras.Model` with micro-batches and fused losses, under any `tf.distribute` strategy.

    The step of several micro-batches is that of the whole batch: their gradients are added up, each
    weighted by its fraction of the batch's tokens, before the one update. Optimizer steps,
    schedule, callbacks and checkpoints do not change; only dropout draws other masks.

    Micro-batches one after another need the memory of one of them. Several in parallel keep the
    cores busy where a whole batch does not: the operations of a small model are too short to be
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
        "auto" is without XLA. A `train_step` of your own is compiled as a whole, on one device.
        Under mixed_float16 the loss is scaled as by `keras.optimizers.LossScaleOptimizer`, but a
        step whose update is skipped counts as a step.
        """
        self._xla = jit_compile is True and not run_eagerly
        own_step = type(self).train_step is not Trainer.train_step
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
            jit_compile=self._xla and own_step and replicas == 1,
            auto_scale_loss=auto_scale_loss,
        )
        if self.optimizer is not None:
            keras_compat.keep_no_graphs(self.optimizer)
        # No attribute for the metrics themselves: Keras would track them a second time.
        announced = keras.tree.flatten([metrics or [], weighted_metrics or []])
        self._metrics_take_terms = all(
            _has_fused_form(type(metric), "values_from_terms", "values", "update_state")
            for metric in announced
        )
        self._computes_argmax = any(getattr(metric, "needs_argmax", False) for metric in announced)
        self._has_loss_weights = loss_weights is not None

    def train_step(self, data):
        """Makes one update of the weights from a batch (inputs, labels, weights)."""
        parts, factors = self._micro_batches(data)
        differentiate = self._compiled_differentiate() if self._xla else self._differentiate
        scale = self.optimizer.scale_loss(1.0)  # of float16
        # sums[-1] is the total so far, sums[-p] that of p - 1 parts ago, which a part waits for: at
        # most p = parallel_micro_batches run at the same time.
        sums, loss = [[]] * self.parallel_micro_batches, 0.0
        for i, (part, factor) in enumerate(zip(parts, factors, strict=True)):
            inputs, labels, weights = _after(sums[-self.parallel_micro_batches], part)
            part_loss, predictions, gradients = differentiate(
                inputs, labels, weights, factor, scale
            )
            sums.append(_add(sums[-1], gradients))
            loss += part_loss
            if i + 1 == len(parts):  # `compute_metrics` returns the loss, too
                keras_compat.update_loss_tracker(self, self._reported(loss), _rows(data))
            results = self.compute_metrics(inputs, labels, predictions, weights)
        self.optimizer.apply(sums[-1], self.trainable_variables)
        return keras_compat.reducible(results)

    def test_step(self, data):
        return keras_compat.reducible(super().test_step(data))

    def _differentiate(self, inputs, labels, weights, factor, scale):
        """Computes loss and gradients of a micro-batch.

        Args:
            inputs, labels, weights: the micro-batch.
            factor: see `_micro_batches`.
            scale: scalar, that of loss scaling.

        Returns:
            The loss, without the scale; the input of the metrics, which is logits or the
            `ops.LossTerms` of a fused loss; the gradients of the scaled loss, a list.
        """
        with tf.GradientTape() as tape:
            loss, predictions = self._loss_and_predictions(inputs, labels, weights, factor, scale)
        # The variables after the call, which may build layers.
        return loss / scale, predictions, tape.gradient(loss, self.trainable_variables)

    def _compiled_differentiate(self):
        """Returns `_differentiate` compiled by XLA."""
        if self.distribute_strategy.num_replicas_in_sync > 1 and not self.fuses_loss:
            # It exchanges the replicas' counts of tokens, which XLA cannot compile.
            require = "the fused loss: LabelSmoothedCrossEntropy, our metrics, no `call` of its own"
            raise InputError(f"jit_compile=True on several devices needs {require}.")

        def differentiate(*arguments):
            with ops.made_for("xla"):
                loss, predictions, gradients = self._differentiate(*arguments)
            if isinstance(predictions, ops.LossTerms):  # a function returns nests of tensors
                predictions = {"terms": vars(predictions)}
            dense = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
            return loss, predictions, dense

        compiled = tf.function(differentiate, autograph=False, jit_compile=True)

        def call(*arguments):
            loss, predictions, gradients = compiled(*arguments)
            if self.fuses_loss:
                predictions = ops.LossTerms(**predictions["terms"])
            return loss, predictions, gradients

        return call

    def _loss_and_predictions(self, inputs, labels, weights, factor, scale):
        """Returns the scaled loss of a micro-batch, a scalar, and the input of the metrics."""
        if not self.fuses_loss:
            logits = keras_compat.call(self, inputs, training=True)
            loss = keras_compat.compute_loss(self, inputs, labels, logits, weights)
            return loss * tf.cast(factor * scale, loss.dtype), logits
        hidden = self(inputs, training=True, return_hidden=True)
        terms = self.loss.from_hidden(
            labels,
            tf.cast(hidden, self.compute_dtype),
            tf.convert_to_tensor(self.output_matrix),
            weights,
            compute_argmax=self._computes_argmax,
            bias=self.output_bias,
            factor=factor * scale,
        )
        parts = self.distribute_strategy.num_replicas_in_sync * self.micro_batches
        penalties = [tf.reduce_sum(penalty) for penalty in self.losses]  # of regularizers
        penalties = [tf.cast(penalty, tf.float32) * scale / parts for penalty in penalties]
        return tf.add_n([terms.loss, *penalties]), terms

    def _reported(self, loss):
        """Returns the loss that Keras reports, which it multiplies by the number of replicas."""
        replica = tf.distribute.get_replica_context()
        if not self.fuses_loss or replica is None or replica.num_replicas_in_sync == 1:
            return loss
        [total] = keras_compat.sum_over_replicas([loss])
        return total / replica.num_replicas_in_sync

    @property
    def fuses_loss(self):
        """Whether the step uses the fused loss, which multiplies with `output_matrix` itself.

        It does if the loss has `from_hidden` and every metric `values_from_terms`. It does not with
        `loss_weights`, nor if a subclass overrides the model's `call`, `compute_loss` or
        `compute_metrics`, the loss's `call`, or a metric's `values` or `update_state`.
        """
        return (
            _has_fused_form(type(self), "output_matrix", "call", "compute_loss", "compute_metrics")
            and _has_fused_form(type(self.loss), "from_hidden", "call", "__call__")
            and self._metrics_take_terms
            and not self._has_loss_weights
        )

    def _micro_batches(self, data):
        """Returns the micro-batches of a batch, and the factor of each one's loss.

        For a fused loss, which is a sum, that is 1 / the tokens of the global batch; for another
        the micro-batch's fraction of the global batch.
        """
        for name in _SETTINGS:
            require_whole_number(name, getattr(self, name))
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        parts = [(inputs, labels, weights)]
        if self.micro_batches > 1:
            _check_reduction(self.loss)
            cuts = [_rows(inputs) * i // self.micro_batches for i in range(self.micro_batches + 1)]
            parts = [  # they differ by one row at most
                _map_tensors(lambda x, b=begin, e=end: x[b:e], parts[0])
                for begin, end in itertools.pairwise(cuts)
            ]
        if self.fuses_loss:
            counts = [self.loss.num_target_tokens(labels, weights)]
        elif len(parts) == 1:
            return parts, [1.0]
        else:
            counts = [_loss_denominator(self.loss, *part) for part in parts]
        counts = keras_compat.sum_over_replicas(counts)
        if self.fuses_loss:
            return parts, [tf.math.divide_no_nan(1.0, counts[0])] * len(parts)
        total = tf.add_n(counts)
        return parts, [tf.math.divide_no_nan(count, total) for count in counts]

    def make_train_function(self, force=False):
        # TensorFlow traces a step a second time if it made variables in the first.
        if not self.optimizer.built and keras_compat.all_layers_built(self):
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

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
            InputError: for HDF5: such a file could not be loaded.
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
            'dtype="mixed_bfloat16", for int8 on CPUs write a CTranslate2 model '
            "(t2t_keras.serving.ctranslate2)."
        )

    def get_compile_config(self):
        config = super().get_compile_config()  # {} of a model that is not compiled
        settings = {name: getattr(self, name) for name in _SETTINGS}
        return config and config | settings | {"jit_compile": self._xla}

    def compile_from_config(self, config):
        if type(self).compile is not Trainer.compile:  # a user's, of unknown arguments
            super().compile_from_config(config)  # warns
            return
        config = keras.saving.deserialize_keras_object(config)
        for name in _SETTINGS:
            setattr(self, name, config.pop(name, 1))
        self.compile(**config)
        if self.optimizer is not None:
            self._build_all_layers()
            self.optimizer.build(self.trainable_variables)

    def load_own_variables(self, store):
        self._build_all_layers()  # Keras reads the weights of layers that are built, no others
        super().load_own_variables(store)

    def _build_all_layers(self):
        """Calls the model if a subclass has layers that are built when it is first called."""
        if keras_compat.all_layers_built(self):
            return
        ids = keras.tree.map_structure(lambda x: tf.ones([1, 1], x.dtype), self.input_signature)
        try:
            self(ids)
        except Exception as error:
            raise InputError(
                f"{type(self).__name__} has layers that its first call builds, and that call fails "
                "for ids [1, 1]: build them in __init__, or call the model before it loads weights."
            ) from error


def _has_fused_form(kind, fused_form, *methods):
    """Whether a class has a fused form, and no subclass overrides one of the methods it stands for.

    The class that defines the fused form is then the one that defines a method, or below it.
    """

    def owner(name):
        return next((c for c in kind.__mro__ if name in vars(c)), object)

    return hasattr(kind, fused_form) and all(
        issubclass(owner(fused_form), owner(method)) for method in methods
    )


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


def _rows(batch):
    """Returns the number of rows of the first tensor in a nest, int32 scalar."""
    return tf.shape(next(x for x in keras.tree.flatten(batch) if x is not None))[0]


def _check_reduction(loss):
    """Raises InputError for a loss whose micro-batches do not add up to the loss of the batch."""
    reduction = getattr(loss, "reduction", None)
    if not hasattr(loss, "num_target_tokens") and reduction not in (None, "sum_over_batch_size"):
        raise InputError(
            f"The loss has reduction={reduction!r}, which micro_batches above 1 do not support: "
            'use reduction="sum_over_batch_size" or micro_batches = 1.'
        )


def _loss_denominator(loss, inputs, labels, weights):
    """Returns the denominator by which `loss` divides the sum over a part, float32 scalar."""
    if hasattr(loss, "num_target_tokens"):
        return loss.num_target_tokens(labels, weights)
    return tf.cast(_rows(inputs), tf.float32)  # Keras's losses are means over elements


def _after(gradients, part):
    """Returns the tensors of a part, available once the gradients are: a bound on memory."""
    waits_for = [gradient for gradient in gradients if gradient is not None]
    if not waits_for:
        return part
    with tf.control_dependencies(waits_for):
        return _map_tensors(tf.identity, part)


def _add(sums, gradients):
    """Adds up two lists of gradients, any of which may be None; the first may be empty."""
    if not sums:
        return gradients
    return [
        total if new is None else new if total is None else tf.convert_to_tensor(total) + new
        for total, new in zip(sums, gradients, strict=True)
    ]


def _map_tensors(function, nest):
    return keras.tree.map_structure(function, nest, none_is_leaf=False)
