"""The training step of all models, in the order of its calls: start with `TrainStep.train_step`.

It differs from Keras's in three ways.

- It can split the batch into micro-batches (gradient accumulation). Losses and gradients are sums,
  which are divided once, by the tokens of the global batch.
- Its objective, which `compile` chooses, is a function (model, micro_batch, training) →
  (loss, tokens, outputs): the sum of the losses, what the sums of all micro-batches and replicas
  are divided by together, once, and what metrics take. `fused_objective` has a loss that is fused
  with the output projection: it gets the decoder's output instead of logits, which then exist only
  in chunks. `keras_objective`, in a file of its own, lets Keras compute any other loss and metrics.
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

SETTINGS = ("micro_batches", "parallel_micro_batches")


class TrainStep:
    """The training and evaluation step, a part of `TrainableModel`."""

    def train_step(self, data):
        """Makes one update of the weights from a batch (inputs, labels, sample_weight)."""
        for name in SETTINGS:
            require_whole_number(name, getattr(self, name))
        batch = self._checked(data)
        micro_batches, parts = [batch], self.micro_batches
        if parts > 1:  # they differ by one row at most
            rows = rows_of(batch)
            cuts = [rows * i // parts for i in range(parts + 1)]
            micro_batches = [
                _map_tensors(lambda x, b=begin, e=end: x[b:e], batch)
                for begin, end in itertools.pairwise(cuts)
            ]
        # A divisor that keeps the gradients of sums in float16's range: labels, or else rows.
        labels = keras.tree.flatten(batch[1])[0]
        size = rows_of(batch) if labels is None else tf.size(labels)
        size = tf.cast(tf.maximum(size, 1), tf.float32)

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
            if sums:
                gradients = [_sum(total, g) for total, g in zip(sums[-1], gradients, strict=True)]
            sums.append(gradients)
            outputs.append(output)
        loss, tokens = tf.add_n(losses), tf.add_n(counts)
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        update(sums[-1], tokens, size)
        return self._report(loss, tokens, micro_batches, outputs)

    def _checked(self, data):
        """Returns (inputs, labels, sample_weight); a step with ids or labels out of range fails.

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
            return inputs, labels, sample_weight
        counts_all_labels = hasattr(self.loss, "sum_and_tokens") or (
            isinstance(self.loss, keras.losses.SparseCategoricalCrossentropy)
            and self.loss.ignore_class is None
        )
        limits = self.limits if counts_all_labels else self.limits | {"labels": None}
        return (*value_checks.checked(limits, self.max_length, inputs, labels), sample_weight)

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
        gradients = map(_dense, tape.gradient(scaled, self.trainable_variables))
        return loss, tokens, list(gradients), outputs

    def _update(self, gradients, tokens, size):
        """Updates the weights by the gradients of the mean over the global batch.

        Gradients and tokens are those of this replica, from `_differentiate`.
        """
        factor = tf.math.divide_no_nan(size, *keras_compat.sum_over_replicas([tokens]))
        self.optimizer.apply([_scaled(g, factor) for g in gradients], self.trainable_variables)

    def _report(self, loss, tokens, batches, outputs):
        """Returns {name: value} of the loss and the metrics, with those of some batches."""
        keras_compat.update_loss_tracker(self, loss, tokens)
        for (inputs, labels, sample_weight), output in zip(batches, outputs, strict=True):
            results = self.compute_metrics(inputs, labels, output, sample_weight)
        return keras_compat.reducible(results)

    def test_step(self, data):
        """Adds a batch (inputs, labels, sample_weight) to loss and metrics of an evaluation."""
        batch = self._checked(data)
        loss, tokens, outputs = self.test_objective(self, batch, training=False)
        return self._report(loss, tokens, [batch], [outputs])

    def predict_step(self, data):
        return super().predict_step(self._checked(data))


def fused_objective(model, micro_batch, training=True, *, compute_argmax):
    """Returns the loss's sum over a micro-batch, the weight of its tokens, and `ops.LossTerms`.

    The loss has `from_hidden`. The metrics take its terms instead of logits; `compute_argmax` says
    whether one needs the most probable tokens.
    """
    inputs, labels, sample_weight = micro_batch
    hidden = model(inputs, training=training, return_hidden=True)  # [batch, target, model_dim]
    terms = model.loss.from_hidden(
        labels,
        tf.cast(hidden, model.compute_dtype),
        tf.convert_to_tensor(model.output_matrix),
        sample_weight,
        compute_argmax=compute_argmax,
        bias=model.output_bias,
    )
    loss, tokens = tf.cast(terms.loss, tf.float32), tf.cast(terms.tokens, tf.float32)
    return loss + penalties(model, tokens), tokens, terms


def penalties(model, tokens):
    """Returns tokens · the sum of `add_loss` and of regularizers; 0 if a part is empty."""
    penalties = [tf.cast(tf.reduce_sum(penalty), tf.float32) for penalty in model.losses]
    return tf.math.multiply_no_nan(tf.add_n(penalties), tokens) if penalties else 0.0


def rows_of(batch):
    """Returns the number of rows of the first tensor in a nest, int32 scalar."""
    return tf.shape(next(x for x in keras.tree.flatten(batch) if x is not None))[0]


def _sum(total, new):
    """Returns the sum of two gradients, any of which may be None; of half floats in float32."""
    if total is None or new is None:
        return new if total is None else total
    total, new = (tf.cast(g, tf.float32) if g.dtype.size == 2 else g for g in (total, new))
    return total + new


def _dense(gradient):
    """Returns a gradient with one row for each row of the weight; None stays None.

    That of an embedding has a row for each token. Keras's Adam squares each of a word's rows, not
    their sum, and replicas cannot exchange them in a loop, as their number changes.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    # In bfloat16 the sum of many rows would stop growing.
    wide = tf.cast(gradient, tf.float32) if gradient.dtype.size == 2 else gradient
    return tf.cast(tf.convert_to_tensor(wide), gradient.dtype)


def _scaled(gradient, factor):
    """Returns a gradient times a scalar; None stays None."""
    return gradient if gradient is None else gradient * tf.cast(factor, gradient.dtype)


def _after(gradients, micro_batch):
    """Returns the tensors of a micro-batch, available once the gradients are."""
    waits_for = [gradient for gradient in gradients if gradient is not None]
    if not waits_for:
        return micro_batch
    with tf.control_dependencies(waits_for):
        return _map_tensors(tf.identity, micro_batch)


def _map_tensors(function, nest):
    return keras.tree.map_structure(function, nest, none_is_leaf=False)
