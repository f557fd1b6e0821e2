"""All uses of private Keras and TensorFlow names, and workarounds for limits of Keras.

Written for Keras 3.15 and TensorFlow 2.21. Each entry says why it is needed, and which test fails
when it is no longer needed.
"""

import hashlib

import keras
import tensorflow as tf
from tensorflow_text.python.ops import sentencepiece_tokenizer


class ReplicaRepairs:
    """Repairs of `fit` and `evaluate` under `tf.distribute` (keras issue 20585).

    Before its first step Keras adds up the replicas' parts of a batch, only to learn its shapes
    (`_maybe_symbolic_build`). Parts of unequal size cannot be added, nor can those of several
    hosts. Here the shapes come from the dataset's description, and no batch is drawn.

    Test: tests/models/replicated_two_devices.py::test_keras_cannot_add_the_replicas_batches.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None and self.distribute_strategy.num_replicas_in_sync > 1:
            data_batch = keras.tree.map_structure(
                lambda spec: getattr(spec, "_value_specs", (spec,))[0],
                iterator._distributed_dataset.element_spec,
            )
            iterator = None
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)


def reducible(metrics):
    """Gives scalars an axis under `MultiWorkerMirroredStrategy` (keras issue 20585).

    Keras takes the mean of several hosts' metrics over their first axis (`reduce_per_replica`).
    Test: tests/models/test_workers.py::test_keras_cannot_reduce_a_workers_scalars.
    """
    if not isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return metrics
    return keras.tree.map_structure(lambda value: tf.reshape(value, [1]), metrics)


def update_loss_tracker(model, loss, rows):
    """Adds a step's loss to what `fit` reports as "loss".

    `Model._loss_tracker` has no public name; `train_step` of Keras updates it the same way. A loss
    under `tf.distribute` is divided by the number of replicas, which is undone here.
    Test: tests/models/test_keras_compat.py::test_keras_has_no_public_name.

    Args:
        model: compiled `keras.Model`.
        loss: float32 scalar.
        rows: int32 scalar, rows of the batch.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    model._loss_tracker.update_state(loss * replicas, sample_weight=rows)


def call(model, inputs, training):
    """Calls a model whose `call` may or may not have a `training` argument.

    `_call_has_training_arg` has no public name; `train_step` of Keras reads the same.
    Test: tests/models/test_keras_compat.py::test_keras_has_no_public_name.
    """
    return model(inputs, training=training) if model._call_has_training_arg else model(inputs)


def compute_loss(model, inputs, labels, predictions, weights):
    """Returns `Model.compute_loss`, which a subclass may define without `training`.

    `Model._compute_loss` is where Keras handles both forms.
    Test: tests/models/test_keras_compat.py::test_keras_passes_training_to_any_compute_loss.
    """
    return model._compute_loss(inputs, labels, predictions, weights, training=True)


def all_layers_built(model):
    """Whether a model and all layers below it have their variables (`Layer._flatten_layers`).

    Test: tests/models/test_keras_compat.py::test_keras_has_no_public_name.
    """
    return all(layer.built for layer in model._flatten_layers())


def track(owner, name, items):
    """Lets `tf.train.Checkpoint` find the layers or variables that a Keras object has in a list.

    Keras 3.15 tells TensorFlow of attributes only: a checkpoint leaves out what is in lists, and
    asserts that it is complete.
    Upstream: keras issue 19425.
    Test: tests/models/test_keras_compat.py::test_keras_leaves_lists_out_of_tensorflow_checkpoints.

    Args:
        owner: `keras.layers.Layer` or `keras.optimizers.Optimizer`.
        name: str, the items' name in a checkpoint.
        items: list of layers or variables.
    """
    for i, item in enumerate(items):
        owner._track_trackable(item, name=f"{name}_{i}", overwrite=True)


def record_gradient(name, inputs, output):
    """Lets the gradient tapes that are open use a gradient registered by `tf.RegisterGradient`.

    A tape takes the gradient of an operation's type. A graph's `gradient_override_map` does not
    change it, and `tf.custom_gradient` keeps what it registers for ever.
    Upstream: tensorflow issue 97697.
    Test: tests/ops/test_gradients.py::test_tensorflow_never_frees_a_custom_gradient.

    Args:
        name: str, that of the gradient.
        inputs: list of tensors that the gradient has an entry for.
        output: the tensor that they are computed from.
    """
    tf.__internal__.record_gradient(name, list(inputs), (), [output])


def remat_mode(layer):
    """Returns the mode of the `keras.RematScope` that a layer was made in, or None.

    `Operation._remat_mode` has no public name.
    Test: tests/layers/test_rematerialization.py::test_keras_has_no_public_name.
    """
    return getattr(layer._remat_mode, "mode", None)


def is_training(layer):
    """Returns the `training` that a layer hands to its parts, inside of its call.

    `Layer._get_call_context` has no public name, and only a `call` with such an argument gets it.
    Test: tests/layers/test_rematerialization.py::test_keras_has_no_public_name.
    """
    return getattr(layer._get_call_context(), "training", None)


def share_sentencepiece_resource(tokenizer, model):
    """Gives a SentencePiece tokenizer a resource that survives `tf.random.set_seed`.

    Setting a seed drops TensorFlow's cached kernels. A resource without a name of its own goes with
    the kernel that made it, and tensorflow-text 2.21 gives its resources no name: the tokenizer
    then fails with a lookup error.
    Test: tests/data/test_tokenizers.py::test_seeds_set_later_do_no_harm.

    Args:
        tokenizer: `tf_text.SentencepieceTokenizer`.
        model: bytes that it was made from.
    """
    with tf.init_scope():
        tokenizer._model_resource._resource_handle = (
            sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
                model=model, shared_name=f"sentencepiece_{hashlib.sha256(model).hexdigest()}"
            )
        )


_TRACKERS = {
    "_layers",
    "_metrics",
    "_non_trainable_variables",
    "_operations",
    "_seed_generators",
    "_trainable_variables",
    "_variables",
}


def attributes(owner):
    """Returns [(name, value)] of a Keras object, sorted: public, private, Keras's own collections.

    Keras 3.15. `tf.train.Checkpoint` leaves out layers in lists and variable paths are not unique,
    so a checkpoint names variables by attributes. Keras's collections repeat variables that an
    attribute of the class has under a better name, and therefore come last.
    Upstream: keras issue 19425.
    Test: tests/training/test_checkpoints.py::test_keras_has_no_unique_names_of_variables.
    """

    def rank(item):
        name = item[0]
        return 2 if name in _TRACKERS or name.startswith("_self_") else name.startswith("_")

    return sorted(vars(owner).items(), key=rank)


def variable_index(optimizer, variable):
    """Returns the index of a weight among those that a built optimizer trains, or None.

    Keras 3.15. `update_step` gets the `tf.Variable`, of one replica under a strategy, and Keras has
    no public way from there to what the optimizer keeps for the weight.
    Upstream: none known.
    Test: tests/training/test_optimizers.py::test_keras_has_no_public_index_of_a_weight.
    """
    try:
        return optimizer._get_variable_index(variable)
    except KeyError:
        return None


def adam_moments(optimizer, index):
    """Returns the means of a weight's gradients and of their squares that Keras's Adam keeps.

    Keras 3.15. Its update goes through the weights many times, and adds up squares instead of
    squaring the sum where an embedding's gradient holds a row twice; ours takes both variables.
    Upstream: keras issue 19992.
    Test: tests/training/test_optimizers.py::test_keras_adam_takes_many_operations.
    """
    return optimizer._momentums[index], optimizer._velocities[index]


def sum_over_replicas(values, options=None):
    """Returns the sums over all replicas of a list of tensors, without a gradient.

    `ReplicaContext.all_reduce` gives its result a `tf.custom_gradient`, also for one replica, and
    TensorFlow keeps that, and with it the graph and its variables, for ever.
    Upstream: tensorflow issue 97697.
    Test: tests/models/test_memory.py::test_keras_optimizers_keep_a_graph_for_ever.

    Args:
        values: list of tensors.
        options: `tf.distribute.experimental.CommunicationOptions`, or None.
    """
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return list(values)
    add, options = tf.distribute.ReduceOp.SUM, options or _OPTIONS
    extended = replica.strategy.extended
    if not extended._use_merge_call():
        return extended._replica_ctx_all_reduce(add, list(values), options)
    return replica.merge_call(
        lambda strategy, *parts: strategy.extended.batch_reduce_to(
            add, [(part, part) for part in parts], options
        ),
        args=values,
    )


def keep_no_graphs(optimizer):
    """Lets an optimizer of Keras sum gradients by `sum_over_replicas`.

    Test: tests/models/test_memory.py::test_keras_optimizers_keep_a_graph_for_ever.
    """

    def all_reduce_sum_gradients(grads_and_vars):
        gradients, variables = zip(*grads_and_vars, strict=True)
        sums = iter(sum_over_replicas([g for g in gradients if g is not None]))
        gradients = [g if g is None else next(sums) for g in gradients]
        return list(zip(gradients, variables, strict=True))

    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of loss scaling
    if not isinstance(inner, GradientsAfterReduction):
        inner._all_reduce_sum_gradients = all_reduce_sum_gradients


_OPTIONS = tf.distribute.experimental.CommunicationOptions()
_BYTES_PER_PACK = 2**25  # 32 MiB, 6 packs of the paper's base model


class GradientsAfterReduction:
    """Mixin of an optimizer whose gradients are clipped after they are summed over the replicas.

    Subclasses define `process_gradients`, and may call `clip_gradients` in it.

    Keras 3.15. It clips each replica's gradients before their sum, so that the same global batch
    gives another update for another number of devices.
    Upstream: tensorflow issue 33929.
    Test: tests/training/two_devices.py::test_keras_clips_the_gradients_of_each_replica.
    """

    def process_gradients(self, gradients):
        """Returns the gradients to apply.

        Args:
            gradients: list of tensors, summed over all replicas; None for a weight without one.
        """
        raise NotImplementedError

    def clip_gradients(self, gradients):
        """Returns the gradients clipped as Keras's `clipnorm` or `clipvalue` says."""
        return super()._clip_gradients(gradients)

    def _clip_gradients(self, grads):
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars, strict=True)
        # Several packs, so that the sum of the last layers' gradients overlaps with the backward
        # pass of the first ones; TensorFlow's default is one pack of all.
        options = tf.distribute.experimental.CommunicationOptions(_BYTES_PER_PACK)
        sums = iter(sum_over_replicas([g for g in gradients if g is not None], options))
        gradients = [g if g is None else next(sums) for g in gradients]
        return list(zip(self.process_gradients(list(gradients)), variables, strict=True))


@keras.saving.register_keras_serializable(package="t2t_keras")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Loss scaling for float16, whose skipped updates are steps, the same on all replicas.

    Keras 3.15 asks one replica alone whether gradients are finite: if those of another one are
    not, the weights become NaN. And it does not count an update that it skips, so that the number
    of steps is no longer that of batches, by which runs end and resume.
    Upstream: none known.
    Test: tests/training/two_devices.py::test_keras_asks_one_replica_whether_gradients_are_finite.

    Args: those of `keras.optimizers.LossScaleOptimizer`.
    """

    def check_finite(self, grads):
        finite = super().check_finite(grads)
        [infinite] = sum_over_replicas([tf.cast(tf.logical_not(finite), tf.float32)])
        return infinite == 0

    def _stateful_handle_non_finite_grads(self):
        super()._stateful_handle_non_finite_grads()
        inner = self.inner_optimizer
        if hasattr(inner, "update_average"):  # the average is one of the weights after each step
            for index, variable in enumerate(inner._trainable_variables):
                self._distribution_strategy.extended.update(
                    variable.value, inner.update_average, args=(index,), group=False
                )
        inner._iterations.assign_add(1)


def with_loss_scaling(optimizer):
    """Returns an optimizer, or the one of a name, in a `LossScaleOptimizer` if it is in none.

    Test: tests/models/test_trainer.py::test_mixed_float16_trains_with_and_without_loss_scaling.
    """
    optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer
    return LossScaleOptimizer(optimizer, name="loss_scale_optimizer")


def skips_steps(optimizer):
    """Whether an optimizer's `iterations` leave out batches, as Keras's loss scaling does.

    Test: tests/training/test_callbacks.py::test_skipped_updates_of_loss_scaling_are_no_steps.
    """
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return scales and not isinstance(optimizer, LossScaleOptimizer)
