"""One training step over several micro-batches: for small memories, or for several cores."""

import keras
import tensorflow as tf

from t2t_keras.errors import require_whole_number

_SETTINGS = ("micro_batches", "parallel_micro_batches")


class MicroBatchedModel(keras.Model):
    """A `keras.Model` whose training step may take its batch in parts.

    The step is that of the whole batch: the parts' gradients are added up, each weighted by its
    share of the batch's tokens, before the one update. Steps, schedule, callbacks and checkpoints
    know nothing of it. Only dropout draws otherwise.

    Parts one after the other need the memory of one part's activations. Parts side by side keep
    several cores busy where a whole batch does not: the operations of a small model are too short
    to be shared out. `tf.config.threading.set_intra_op_parallelism_threads` tells TensorFlow so.

    Attributes:
        micro_batches: into how many parts `fit` cuts a batch (on each replica), by rows; set it
            before `compile`. 1, the default, is Keras's own step. Saved with what `compile` took.
        parallel_micro_batches: how many of them may be under way at a time; 1, the default: one.

    Raises:
        InputError: by `fit`, if one of them is no whole number of at least 1.

    Example:
        >>> model.micro_batches = 8
        >>> model.compile(adam(512), LabelSmoothedCrossEntropy())
    """

    micro_batches = 1
    parallel_micro_batches = 1

    def get_compile_config(self):
        config = super().get_compile_config()  # {} of a model that is not compiled
        return config and config | {name: getattr(self, name) for name in _SETTINGS}

    def compile_from_config(self, config):
        config = dict(config)
        for name in _SETTINGS:
            setattr(self, name, config.pop(name, 1))
        super().compile_from_config(config)

    def train_step(self, data):
        for name in _SETTINGS:
            require_whole_number(name, getattr(self, name))
        if self.micro_batches == 1:
            return super().train_step(data)
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        rows = tf.shape(keras.tree.flatten(inputs)[0])[0]
        parts = [_part(data, rows, i, self.micro_batches) for i in range(self.micro_batches)]
        shares = _shares([_weight(self.loss, labels, weights) for _, labels, weights in parts])

        variables = self.trainable_variables
        # The sums of gradients before any part, and after each: parts wait for an earlier sum.
        sums, loss = [[None] * len(variables)] * self.parallel_micro_batches, 0.0
        for part, share in zip(parts, shares, strict=True):
            inputs, labels, weights = _after(sums[-self.parallel_micro_batches], part)
            with tf.GradientTape() as tape:
                logits = self(inputs, training=True)
                part_loss = share * self.compute_loss(inputs, labels, logits, weights)
                scaled_loss = self.optimizer.scale_loss(part_loss)
            sums.append(_added(sums[-1], tape.gradient(scaled_loss, variables)))
            loss += tf.stop_gradient(part_loss)
            self.compute_metrics(inputs, labels, logits, weights)
        self._loss_tracker.update_state(_unscaled(loss), sample_weight=rows)
        self.optimizer.apply_gradients(zip(sums[-1], variables, strict=True))
        return self.get_metrics_result()


def _part(data, rows, index, count):
    """Returns (inputs, labels, weights) of one part; parts differ by a row at most."""
    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
    begin, end = rows * index // count, rows * (index + 1) // count
    return keras.tree.map_structure(
        lambda tensor: tensor[begin:end], (inputs, labels, weights), none_is_leaf=False
    )


def _weight(loss, labels, weights):
    """Returns by what `loss` divides the sum over this part: scalar float32."""
    if hasattr(loss, "batch_weight"):
        return loss.batch_weight(labels, weights)
    return tf.cast(tf.shape(labels)[0], tf.float32)  # Keras's losses are means over elements


def _shares(weights):
    """Returns each part's share of the global batch, float32 [parts]."""
    weights = tf.stack(weights)
    replica = tf.distribute.get_replica_context()
    if replica is not None and replica.num_replicas_in_sync > 1:
        weights = replica.all_reduce(tf.distribute.ReduceOp.SUM, weights)
    return tf.unstack(tf.math.divide_no_nan(weights, tf.reduce_sum(weights)))


def _after(gradients, part):
    """Returns part as tensors that wait for gradients, so that not all parts are in memory."""
    with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
        return keras.tree.map_structure(tf.identity, part, none_is_leaf=False)


def _added(sums, gradients):
    """Adds up two lists of gradients, any of which may be None."""
    pairs = zip(sums, gradients, strict=True)
    return [
        total if new is None else tf.convert_to_tensor(new) if total is None else total + new
        for total, new in pairs
    ]


def _unscaled(loss):
    """Undoes a loss's division by the number of replicas, as Keras's own step does."""
    return loss * tf.distribute.get_strategy().num_replicas_in_sync
