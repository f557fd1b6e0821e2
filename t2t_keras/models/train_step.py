"""The training step of all models, in the order of its calls: start with `TrainStep.train_step`.

It differs from Keras's in three ways.

- It can split the batch into micro-batches (gradient accumulation). Losses and gradients are sums,
  which are divided once, by the tokens of the global batch.
- Its objective, which `compile` chooses by `fuses`, is a function (model, micro_batch, training) →
  (loss, tokens, outputs): the sum of the losses, what the sums of all micro-batches and replicas
  are divided by together, once, and what metrics take. `fused_objective` has a loss that is fused
  with the output projection: it gets the decoder's output instead of logits, which then exist only
  in chunks. `keras_objective` lets Keras compute any other loss and metrics.
- On a GPU XLA compiles it, see `compiled_steps`: forward and backward pass, and on one device the
  update. Keras cannot compile the sum of gradients over several devices.
"""

import functools
import itertools

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers import value_checks
from t2t_keras.layers.basic import has_form

SETTINGS = ("micro_batches", "parallel_micro_batches")


class TrainStep:
    """The training and evaluation step, a part of `TrainableModel`."""

    def train_step(self, data):
        """Makes one update of the weights from a batch (inputs, labels, sample_weight)."""
        data = self._checked(data)
        micro_batches = self._micro_batches(data)
        size = _size(data)  # a divisor that keeps the gradients of sums in float16's range
        differentiate, update = functools.partial(self._differentiate, size), self._update
        if self.xla:
            differentiate, update = self.xla.compiled(differentiate, update)
        losses, counts, sums, outputs = [], [], [], []
        for i, micro_batch in enumerate(micro_batches):
            if i >= self.parallel_micro_batches:
                micro_batch = _after(sums[i - self.parallel_micro_batches], micro_batch)  # noqa: PLW2901
            loss, tokens, gradients, output = differentiate(micro_batch)
            losses.append(loss)
            counts.append(tokens)
            sums.append(ops.add_gradients(sums[-1], gradients) if sums else gradients)
            outputs.append(output)
        loss, tokens = tf.add_n(losses), tf.add_n(counts)
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        update(sums[-1], tokens, size)
        return self._report(loss, tokens, micro_batches, outputs)

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
        # `self.jit_compile` is that of a user's own step; ours compiles its parts, see `xla`.
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
        for name in SETTINGS:
            require_whole_number(name, getattr(self, name))
        batch = keras.utils.unpack_x_y_sample_weight(data)
        if self.micro_batches == 1:
            return [batch]
        rows = rows_of(batch)
        cuts = [rows * i // self.micro_batches for i in range(self.micro_batches + 1)]
        return [  # they differ by one row at most
            _map_tensors(lambda x, b=begin, e=end: x[b:e], batch)
            for begin, end in itertools.pairwise(cuts)
        ]

    def _differentiate(self, size, micro_batch):
        """Computes the sum of a micro-batch's losses, and its gradients.

        Returns:
            The sum of the losses and the weight of their tokens, float32 scalars; the gradients of
            the sum / size, times the loss scale of mixed_float16; the outputs that metrics take.
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

        Gradients and tokens are those of this replica, from `_differentiate`.
        """
        factor = tf.math.divide_no_nan(size, *keras_compat.sum_over_replicas([tokens]))
        self.optimizer.apply(ops.scale_gradients(gradients, factor), self.trainable_variables)

    def _report(self, loss, tokens, batches, outputs):
        """Returns {name: value} of the loss and the metrics, with those of some batches."""
        keras_compat.update_loss_tracker(self, loss, tokens)
        for (inputs, labels, sample_weight), output in zip(batches, outputs, strict=True):
            results = self.compute_metrics(inputs, labels, output, sample_weight)
        return keras_compat.reducible(results)

    def test_step(self, data):
        """Adds a batch (inputs, labels, sample_weight) to loss and metrics of an evaluation."""
        batch = keras.utils.unpack_x_y_sample_weight(self._checked(data))
        needs_hidden = self.fuses_loss and self.loss_is_fused_only
        objective = self.objective if needs_hidden else keras_objective
        loss, tokens, outputs = objective(self, batch, training=False)
        return self._report(loss, tokens, [batch], [outputs])

    def predict_step(self, data):
        return super().predict_step(self._checked(data))


# The objectives ----------------------------------------------------------------------------------


def defines_alone(owner, form):
    """Whether a class gives a form of its own, and for the methods has those of a class above."""
    return has_form(owner, form) and form in getattr(owner, "_defined_alone", ())


def fuses(model, metrics, loss_weights):
    """Whether a compiled model's step, with all metrics, may use the loss's `from_hidden`.

    It needs a fast form of three things: `output_matrix` stands for a model's `call`, `from_hidden`
    for a loss's, and `values_from_terms` for a metric's `values`.

    Raises:
        InputError: if the step may not, but the loss defines nothing but `from_hidden` anew.
    """
    lacking = [metric for metric in metrics if not has_form(metric, "values_from_terms")]
    if not has_form(model.loss, "from_hidden"):
        return False
    if has_form(model, "output_matrix") and loss_weights is None and not lacking:
        return True
    if defines_alone(model.loss, "from_hidden"):
        raise InputError(
            f"{type(model.loss).__name__} defines from_hidden, but this model, its metrics or "
            "loss_weights need a loss of logits: define sum_and_tokens or call as well."
        )
    return False


def fused_objective(model, micro_batch, training=True, *, computes_argmax):
    """Returns the loss's sum over a micro-batch, the weight of its tokens, and `ops.LossTerms`.

    The loss has `from_hidden`. The metrics take its terms instead of logits; `computes_argmax` says
    whether one needs the most probable tokens.
    """
    inputs, labels, sample_weight = micro_batch
    hidden = model(inputs, training=training, return_hidden=True)  # [batch, target, model_dim]
    terms = model.loss.from_hidden(
        labels,
        tf.cast(hidden, model.compute_dtype),
        tf.convert_to_tensor(model.output_matrix),
        sample_weight,
        compute_argmax=computes_argmax,
        bias=model.output_bias,
    )
    loss, tokens = tf.cast(terms.loss, tf.float32), tf.cast(terms.tokens, tf.float32)
    return loss + penalties(model, tokens), tokens, terms


def keras_objective(model, micro_batch, training=True):
    """Returns the sum of any loss over a micro-batch, its divisor, and the logits, as Keras does.

    Sum / divisor is the mean. The divisor is the number or the weight of the elements that count;
    for `LabelSmoothedCrossEntropy` it is the weight of the tokens.

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
            return total + penalties(model, divisor), divisor, logits
    if parts > 1 and (has_own_loss or model.loss is not None):
        where = "micro_batches above 1" if model.micro_batches > 1 else "several devices"
        raise InputError(
            f"The loss returns one number for a batch, or none, so {where} cannot weight the parts "
            "by their tokens: give `compile` a loss that returns one number for each row or token, "
            "which Keras averages. LabelSmoothedCrossEntropy and ignore_class leave tokens out."
        )
    rows = tf.cast(rows_of(micro_batch), tf.float32)
    loss = keras_compat.compute_loss(model, inputs, labels, logits, sample_weight, training)
    return tf.cast(loss, tf.float32) * rows, rows, logits


def _loss_sum(model, labels, logits, sample_weight, parts):
    """Returns the sum of the compiled loss and its divisor, or None for the divisor.

    There is none if several losses are compiled, or the loss has no elements or its own `__call__`.
    """
    loss, factor = keras_compat.compiled_loss(model, labels, logits)
    if loss is not None and has_form(loss, "sum_and_tokens"):
        total, divisor = loss.sum_and_tokens(labels, logits, sample_weight)
        divisor = tf.cast(divisor, tf.float32)
    elif loss is not None and type(loss).__call__ is keras.losses.Loss.__call__:
        total, divisor = keras_compat.loss_sum(loss, labels, logits, sample_weight, parts)
    else:
        return None, None
    total = tf.cast(total, tf.float32)
    return total if factor is None else total * factor, divisor


def penalties(model, tokens):
    """Returns tokens · the sum of `add_loss` and of regularizers; 0 if a part is empty."""
    penalties = [tf.cast(tf.reduce_sum(penalty), tf.float32) for penalty in model.losses]
    return tf.math.multiply_no_nan(tf.add_n(penalties), tokens) if penalties else 0.0


def rows_of(batch):
    """Returns the number of rows of the first tensor in a nest, int32 scalar."""
    return tf.shape(next(x for x in keras.tree.flatten(batch) if x is not None))[0]


def _size(batch):
    """Returns the number of labels of a batch, or else its rows, at least 1: float32 scalar."""
    _, labels, _ = batch = keras.utils.unpack_x_y_sample_weight(batch)
    size = rows_of(batch) if labels is None else tf.size(keras.tree.flatten(labels)[0])
    return tf.cast(tf.maximum(size, 1), tf.float32)


def _after(gradients, micro_batch):
    """Returns the tensors of a micro-batch, available once the gradients are."""
    waits_for = [gradient for gradient in gradients if gradient is not None]
    if not waits_for:
        return micro_batch
    with tf.control_dependencies(waits_for):
        return _map_tensors(tf.identity, micro_batch)


def _map_tensors(function, nest):
    return keras.tree.map_structure(function, nest, none_is_leaf=False)
