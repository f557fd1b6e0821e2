"""All uses of private Keras and TensorFlow names, and workarounds for limits of Keras.

Written for Keras 3.15 and TensorFlow 2.21; `training/keras_compat.py` contains those of optimizers
and checkpoints. Each entry says why it is needed, which test fails without it, and the upstream
issue if one is known. A private name is given where there is no public one.
"""

import functools
import hashlib

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.backend.tensorflow import trainer as tensorflow_trainer
from keras.src.losses import loss as keras_loss
from keras.src.losses.losses import LossFunctionWrapper
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_util
from tensorflow_text.python.ops import sentencepiece_tokenizer

from t2t_keras.errors import require_backend

require_backend(keras.backend.backend())


class SavedSignature:
    """Makes `tf.saved_model.save` write the signature `serving_default` of a model or predictor.

    The signature returns the outputs of `saved_call` for the inputs `saved_inputs`. Keras derives
    it from the shapes with which it builds a model. A model that makes its weights in its
    constructor has no such shapes, and a SavedModel without a signature cannot be served.
    Test: tests/models/test_keras_compat.py::test_a_model_that_tensorflow_saves_has_a_signature.
    """

    @property
    def saved_inputs(self):
        """The inputs of `saved_call`, a list of `tf.TensorSpec` or nests of them."""
        return [self.input_signature]

    def saved_call(self, *inputs):
        """Returns the outputs of the signature."""
        return self(*inputs)

    @property
    def _default_save_signature(self):
        return tf.function(self.saved_call, input_signature=self.saved_inputs, autograph=False)


class ReplicaRepairs:
    """Repairs of `fit` and `evaluate` under `tf.distribute` (keras issue 20585).

    With `steps_per_execution` Keras runs a step within a condition within a loop. A step that
    synchronizes replicas fails there: "You must feed a value for placeholder tensor". Here the
    first step runs before the loop, so that the loop needs no condition.
    Test: tests/models/replicated_two_devices.py::test_steps_together_are_the_steps_one_by_one.

    Before its first step Keras adds up the replicas' parts of a batch, only to learn its shapes
    (`_maybe_symbolic_build`). Parts of unequal size or on several hosts cannot be added. Here the
    shapes come from the dataset's description, and no batch is drawn.
    Test: tests/models/replicated_two_devices.py::test_a_loss_of_keras_is_that_of_the_global_batch.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None and self.distribute_strategy.num_replicas_in_sync > 1:
            data_batch = keras.tree.map_structure(
                lambda spec: getattr(spec, "_value_specs", (spec,))[0],
                iterator._distributed_dataset.element_spec,
            )
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    def _make_function(self, step_function):
        function, strategy = super()._make_function(step_function), self.distribute_strategy
        steps = self.steps_per_execution
        if strategy.num_replicas_in_sync == 1 or steps == 1 or self.run_eagerly:
            return function

        @self._autoconvert_optionals
        @tf.function(autograph=False, reduce_retracing=True)
        def one_step(batch):
            results = strategy.run(step_function, args=(batch,))
            return tensorflow_trainer.reduce_per_replica(results, strategy, reduction="auto")

        @tf.function(autograph=False, reduce_retracing=True)
        def several_steps(iterator):
            def step(made, batch, _):
                results = one_step(batch.get_value())
                more = made + 1 < steps  # otherwise the next execution takes the batch
                batch = tf.cond(more, iterator.get_next_as_optional, lambda: batch)
                return made + 1, batch, results

            results = one_step(iterator.get_next())  # ends the epoch if there is none
            return tf.while_loop(
                lambda made, batch, _: tf.logical_and(made < steps, batch.has_value()),
                step,
                (1, iterator.get_next_as_optional(), results),
            )[2]

        def dispatch(iterator):
            distributed = isinstance(iterator, tf.distribute.DistributedIterator)
            return (several_steps if distributed else function)(iterator)

        return dispatch


def reducible(metrics):
    """Gives scalars an axis under `MultiWorkerMirroredStrategy` (keras issue 20585).

    Keras takes the mean of several hosts' metrics over their first axis (`reduce_per_replica`).
    Test: tests/models/test_processes.py::test_workers_train_as_one_process.
    """
    if not isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return metrics
    return keras.tree.map_structure(lambda value: tf.reshape(value, [1]), metrics)


def multi_worker_strategy():
    """Returns a `MultiWorkerMirroredStrategy` that a link cut for five seconds does not end.

    By TensorFlow's default a worker is lost when one heartbeat is not answered within 5 s. After a
    cut of 5 s TCP sends again at 6.2 s, after one of 7 s at 12.6 s. The public strategy has no such
    option. Here a heartbeat has 15 s, and a lost worker is noticed after about 30 s.
    Test: tests/end_to_end/test_two_hosts.py::test_a_late_worker_and_a_short_cut.
    """
    run = context.context()
    run.configure_coordination_service = functools.partial(
        run.configure_coordination_service, heartbeat_timeout_in_ms=30_000
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    finally:
        del run.configure_coordination_service  # the method of the class is again the one found


def update_loss_tracker(model, loss, tokens):
    """Adds a replica's sum over tokens, and their weight, to the "loss" that `fit` reports.

    `train_step` of Keras updates its private `Model._loss_tracker` in the same way.
    Test: tests/models/test_micro_batches.py::test_the_reported_loss_is_the_mean_over_all_tokens.
    """
    model._loss_tracker.update_state(tf.math.divide_no_nan(loss, tokens), sample_weight=tokens)


def call(model, inputs, training):
    """Calls a model whose `call` may or may not have a `training` argument, as Keras does.

    Only the private `_call_has_training_arg`, which `train_step` of Keras reads, tells which.
    Test: tests/models/test_train_step.py::test_with_parts_of_the_users_own_a_step_is_that_of_keras.
    """
    return model(inputs, training=training) if model._call_has_training_arg else model(inputs)


def compute_loss(model, inputs, labels, predictions, sample_weight, training=True):
    """Returns `Model.compute_loss`, which a subclass may define without `training`.

    Keras handles both forms in the private `Model._compute_loss` alone.
    Test: tests/models/test_train_step.py::test_with_parts_of_the_users_own_a_step_is_that_of_keras.
    """
    return model._compute_loss(inputs, labels, predictions, sample_weight, training=training)


def compiled_loss(model, labels, predictions):
    """Returns the `keras.losses.Loss` of a compiled model, and its weight or None.

    Keras makes it from a function or a string, and keeps it privately. For several losses, or none,
    both are None.
    Test: tests/models/test_micro_batches.py::test_a_loss_whose_parts_do_not_add_up_is_refused.
    """
    compiled = model._compile_loss
    if compiled is not None and not compiled.built:
        compiled.build(labels, predictions)
    losses = compiled._flat_losses if compiled is not None else []
    if len(losses) != 1 or losses[0].path:
        return None, None
    return losses[0].loss, losses[0].loss_weights


def loss_sum(loss, labels, predictions, weights, parts):
    """Returns the sum of a Keras loss's elements, and the divisor of `Loss.__call__` or None.

    The divisor is None without a reduction, for a loss of one number and, with several `parts`, for
    a fixed number of elements. Weights [batch] belong to rows; Keras takes them as the last axis's.
    `Loss.__call__` of Keras 3.15 divides immediately, so the sums of parts would be lost.
    Test: tests/models/test_micro_batches.py::test_a_keras_loss_is_put_together_of_its_parts.
    """
    masks = [backend.get_keras_mask(predictions)]
    labels, predictions = (tf.cast(x, loss.dtype) for x in (labels, predictions))
    losses = loss.call(labels, predictions)
    masks = [mask for mask in (*masks, backend.get_keras_mask(losses)) if mask is not None]
    mask = functools.reduce(tf.logical_and, masks) if masks else None
    if loss.reduction in (None, "none") or losses.shape.rank == 0:
        return losses, None
    rows, length = labels.shape[0], losses.shape[0]
    if parts > 1 and length not in (None, rows) and (rows is None or length == 1):
        return losses, None
    if weights is not None:
        weights = tf.cast(weights, loss.dtype)
        if weights.shape.rank == 1:
            weights = tf.reshape(weights, [-1] + [1] * (losses.shape.rank - 1))
    elements = keras_loss.reduce_weighted_values(losses, weights, mask, None, loss.dtype)
    if loss.reduction == "sum":
        return tf.reduce_sum(elements), tf.constant(1 / parts)
    counted = weights if loss.reduction == "mean_with_sample_weight" else None
    counted = keras_loss.apply_mask(counted, mask, loss.dtype, "sum")
    divisor = tf.size(elements) if counted is None else tf.reduce_sum(counted)
    return tf.reduce_sum(elements), tf.cast(divisor, tf.float32)


def wrapped_function(thing):
    """Returns the function of a loss or metric of Keras and its arguments; (None, {}) without one.

    `LossFunctionWrapper` and `MeanMetricWrapper` keep both privately. A subclass with a `call` or
    `update_state` of its own counts as without.
    Test: tests/models/test_train_step.py::test_losses_and_metrics_of_probabilities_are_refused.
    """
    for wrapper, method, name in (
        (LossFunctionWrapper, "call", "fn"),
        (keras.metrics.MeanMetricWrapper, "update_state", "_fn"),
    ):
        if isinstance(thing, wrapper) and getattr(type(thing), method) is getattr(wrapper, method):
            return getattr(thing, name), thing._fn_kwargs
    return None, {}


def all_layers(layer):
    """Returns a layer or model and all layers below it, a list (`Layer._flatten_layers`).

    Test: tests/models/test_lora.py::test_training_moves_the_low_rank_matrices_alone.
    """
    return list(layer._flatten_layers())


def lora_factors(layer):
    """Returns kernel, A and B · α / rank of a `keras.layers.Dense` with LoRA.

    The public `kernel` is their sum, a tensor, rounded to the compute dtype.
    Test: tests/models/test_lora.py::test_a_merged_model_has_the_sums_of_numpy_and_the_same_logits.
    """
    scale = layer.lora_alpha / layer.lora_rank
    return layer._kernel, layer.lora_kernel_a, tf.convert_to_tensor(layer.lora_kernel_b) * scale


def track(owner, name, items):
    """Lets `tf.train.Checkpoint` find a list of layers or variables of a Keras object by a name.

    Keras 3.15 shows TensorFlow only attributes: a checkpoint leaves out the items of lists, and
    still asserts that it is complete.
    Upstream: keras issue 19425.
    Test: tests/models/test_keras_model.py::test_a_checkpoint_of_tensorflow_has_the_projections.
    """
    for i, item in enumerate(items):
        owner._track_trackable(item, name=f"{name}_{i}", overwrite=True)


def record_gradient(name, inputs, output):
    """Lets the active gradient tapes use a gradient registered by `tf.RegisterGradient`.

    A tape ignores a graph's `gradient_override_map`, and `tf.custom_gradient` never frees the
    functions that it registers.
    Upstream: tensorflow issue 97697.
    Test: tests/ops/test_gradients.py::test_no_graph_is_kept.
    """
    tf.__internal__.record_gradient(name, list(inputs), (), [output])


def remat_mode(layer):
    """Returns the mode of the `keras.RematScope` that a layer was made in (`_remat_mode`), or None.

    Test: tests/layers/test_rematerialization.py::test_a_step_with_dropout_is_the_same.
    """
    return getattr(layer._remat_mode, "mode", None)


def is_training(layer):
    """Returns the `training` argument of the current call, which a layer passes to its parts.

    Test: tests/layers/test_residual.py::test_dropout_falls_on_the_sublayer_output_only.
    """
    return getattr(layer._get_call_context(), "training", None)


def share_sentencepiece_resource(tokenizer, model):
    """Gives a SentencePiece tokenizer a resource that survives `tf.random.set_seed`.

    Setting a seed drops TensorFlow's cached kernels, and with them each resource without a name of
    its own, as tensorflow-text 2.21 makes it: the tokenizer then fails with a lookup error.
    Test: tests/data/test_tokenizers.py::test_seeds_set_later_do_no_harm.
    """
    with tf.init_scope():
        tokenizer._model_resource._resource_handle = (
            sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
                model=model, shared_name=f"sentencepiece_{hashlib.sha256(model).hexdigest()}"
            )
        )


INT8_PRODUCT = "_QuantizedMatMul"
"""The operation that `int8_matmul` makes."""


def int8_matmul(x, operand, constant=True):
    """Returns (x · matrixᵀ) · scales, float32 [rows, outputs], inside a graph.

    TensorFlow 2.21 has one operation that multiplies int8 on CPUs, keeps the reordered matrix and
    gives float32; it belongs to oneDNN and has no Python function. The public
    `QuantizedMatMulWithBiasAndDequantize` reorders the matrix at every call and takes five times as
    long. Each node keeps the matrix of its first call, which must not change later.
    Test: tests/ops/test_int8.py::test_products_are_those_of_integers.

    Args:
        x: int8 [rows, width].
        operand: what `ops.int8.operand_of` returned.
        constant: whether the matrix never changes; else no node keeps it.
    """
    matrix, largest, bias = operand
    parts = [tf.bitcast(x, tf.qint8), tf.bitcast(matrix, tf.qint8), bias]
    ranges = [tf.constant(-127.0), tf.constant(127.0), largest, largest]

    def types(tensors):
        numbers = [tensor.dtype.as_datatype_enum for tensor in tensors]
        return AttrValue(list=AttrValue.ListValue(type=numbers))

    qint8, float32 = (AttrValue(type=x.as_datatype_enum) for x in (tf.qint8, tf.float32))
    operation = tf.compat.v1.get_default_graph()._create_op_internal(
        INT8_PRODUCT,
        parts + ranges,
        [tf.float32],
        name="int8_product",  # the operation's own begins with an underscore, as no node's may
        attrs={
            **dict.fromkeys(("T1", "T2"), qint8),
            **dict.fromkeys(("Tbias", "U", "Tout"), float32),
            "Tdevice_inputs": types(parts),
            "Thost_inputs": types(ranges),
            "Tdevice_outputs": types(parts[2:]),
            "Thost_outputs": types([]),
            "transpose_b": AttrValue(b=True),
            "is_weight_const": AttrValue(b=constant),
            "is_bias_const": AttrValue(b=True),
            "input_quant_mode": AttrValue(s=b"SCALED"),
            "fused_ops": AttrValue(list=AttrValue.ListValue(s=[b"BiasAdd", b"Dequantize"])),
        },
    )
    return operation.outputs[0]


_OPTIONS = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=2**25)
"""32 MiB, 6 packs of the paper's base model: the sum of the last layers' gradients overlaps with
the backward pass of the first ones. TensorFlow's default is one pack of all."""


def sum_over_replicas(values):
    """Returns the sums over all replicas of a list of tensors of any types, without a gradient.

    `ReplicaContext.all_reduce` gives its result a `tf.custom_gradient`, also for one replica, and
    TensorFlow keeps that, and with it the graph and its variables, forever.
    Upstream: tensorflow issue 97697.
    Test: tests/models/test_memory.py::test_a_model_is_freed_with_its_weights_and_graphs.
    """
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return list(values)
    add, extended = tf.distribute.ReduceOp.SUM, replica.strategy.extended

    def sum_of_one_type(values):
        if not extended._use_merge_call():
            return extended._replica_ctx_all_reduce(add, values, _OPTIONS)
        return replica.merge_call(
            lambda strategy, *parts: strategy.extended.batch_reduce_to(
                add, [(part, part) for part in parts], _OPTIONS
            ),
            args=values,
        )

    sums = {}
    for dtype in dict.fromkeys(value.dtype for value in values):
        indices = [i for i, value in enumerate(values) if value.dtype == dtype]
        sums |= zip(indices, sum_of_one_type([values[i] for i in indices]), strict=True)
    return [sums[i] for i in range(len(values))]


def unwrapped(optimizer):
    """Returns the optimizer inside of Keras's `LossScaleOptimizer`, or the optimizer itself.

    Test: tests/training/test_optimizers.py::test_loss_scaling_hides_neither_norm_nor_average.
    """
    return getattr(optimizer, "inner_optimizer", optimizer)


def keep_no_graphs(optimizer):
    """Lets an optimizer of Keras sum gradients by `sum_over_replicas`.

    Test: tests/models/test_memory.py::test_a_model_is_freed_with_its_weights_and_graphs.
    """
    inner = unwrapped(optimizer)
    if not hasattr(inner, "process_gradients"):  # of `training.keras_compat`, which does so itself
        inner._all_reduce_sum_gradients = functools.partial(summed_gradients, inner)


def summed_gradients(optimizer, grads_and_vars):
    """Returns [(gradient, variable)] with gradients summed over the replicas.

    If the optimizer has `process_gradients`, that gets the sums. Keras calls it in `apply`, as
    `_all_reduce_sum_gradients`.
    Test: tests/models/test_memory.py::test_a_model_is_freed_with_its_weights_and_graphs.
    """
    gradients, variables = zip(*grads_and_vars, strict=True)
    sums = iter(sum_over_replicas([g for g in gradients if g is not None]))
    gradients = [g if g is None else next(sums) for g in gradients]
    process = getattr(optimizer, "process_gradients", list)
    return list(zip(process(gradients), variables, strict=True))


@keras.saving.register_keras_serializable(package="t2t_keras")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Loss scaling for float16 that skips an update on all replicas and counts it as a step.

    Keras 3.15 checks on only one replica whether gradients are finite: if they are not finite on
    another one, the weights become NaN. Keras also does not count a skipped update, so the number
    of steps falls behind the number of batches, by which a run ends and resumes.
    Test: tests/training/two_devices.py::test_one_replicas_infinite_gradient_skips_all_updates.
    """

    def check_finite(self, grads):
        # All rows of a sparse gradient: of rows of one word Keras would ask the last alone.
        values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        finite = super().check_finite(values)
        [infinite] = sum_over_replicas([tf.cast(tf.logical_not(finite), tf.float32)])
        return infinite == 0

    def _stateful_handle_non_finite_grads(self):
        super()._stateful_handle_non_finite_grads()
        inner = self.inner_optimizer
        if inner.gradient_accumulation_steps:
            return  # as with Keras, the next batch takes the place of this one
        inner._iterations.assign_add(1)
        if hasattr(inner, "update_averages"):  # of the weights after each step
            inner.update_averages()


def with_loss_scaling(optimizer):
    """Returns an optimizer, given itself or by name, in a `LossScaleOptimizer`.

    Test: tests/models/test_train_step.py::test_mixed_float16_trains_with_loss_scaling.
    """
    optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer
    return LossScaleOptimizer(optimizer, name="loss_scale_optimizer")


def is_in_xla():
    """Returns whether a function is traced that XLA compiles, `tf.function(jit_compile=True)`.

    Test: tests/decoding/test_beam_search.py::test_a_search_in_a_function_of_xla_is_refused.
    """
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def xla_update_slice(x, values, begins):
    """Returns x with values written from the indices begins, int32 [axes], on; only in XLA.

    In XLA TensorFlow's public operation, `TensorStridedSliceUpdate`, takes constant indices only.
    The import loads a library, which only a search with XLA needs.
    Test: tests/tasks/test_compiled_search.py::test_a_compiled_search_is_the_plain_one.
    """
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops  # noqa: PLC0415

    return gen_xla_ops.xla_dynamic_update_slice(input=x, update=values, indices=begins)
