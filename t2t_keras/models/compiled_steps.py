"""Training steps that XLA compiles: on a GPU by default, for the first shapes of batches.

XLA compiles a step once for each shape of a batch, in seconds or a minute.
"""

import functools
import inspect
import re

import tensorflow as tf
from absl import logging

from t2t_keras import ops
from t2t_keras.errors import InputError

MOST_SHAPES = 16
"""Shapes of batches that are compiled by default."""

_OTHER_SHAPES = ""  # key in the table of shapes
# Not a bare "XLA": messages contain stack traces, with the names of the user's files.
_OF_XLA = re.compile(
    "XLA_.PU_JIT|XLA compilation|tf2xla conversion|registered compiler|libdevice|ptxas"
    "|PTX (?:compilation|assembly|version)|HLO (?:module|instruction|passes)|Autotuning failed"
    "|function for While"  # upstream: tensorflow issue 122886
)
_OF_TRACING = (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError)


def is_of_xla(error):
    """Returns whether a TensorFlow error is that of XLA's compiler; a lack of memory is not."""
    lacks_memory = isinstance(error, tf.errors.ResourceExhaustedError)
    return not lacks_memory and _OF_XLA.search(error.message) is not None


def is_default(replicas):
    """Whether steps are compiled by default: on one GPU, not on several replicas.

    On several devices the training of a classifier hung.
    """
    if ops.visible_device() == "cpu":
        return False
    if replicas > 1:
        text = "Training on several GPUs is without XLA, unless it is asked for."
        logging.log_first_n(logging.INFO, text, 1)
    return replicas == 1


class CompiledSteps:
    """Lets XLA compile the parts of a model's training step."""

    def compiled(self, differentiate, update):
        """Returns `TrainStep._differentiate` and `TrainStep._update`, compiled."""
        # Keras cannot compile the sum over several devices.
        replicated = tf.distribute.has_strategy()
        return self._differentiate(differentiate), update if replicated else _compiled(update)

    def guarded(self, model, train_function):
        """Returns a function of a dataset's iterator that trains a model like `train_function`."""
        del model
        return train_function

    def _differentiate(self, function):
        def as_nest(micro_batch):  # a function returns nests of tensors
            loss, tokens, gradients, outputs = function(micro_batch)
            if isinstance(outputs, ops.LossTerms):
                argmax = outputs.argmax if outputs.argmax is None else tf.cast(outputs.argmax, kind)
                outputs = {"terms": vars(outputs) | {"argmax": argmax}}
            return loss, tokens, gradients, outputs

        def in_xla(micro_batch):
            with ops.made_for("xla"):
                return as_nest(micro_batch)

        kind, compute = ops.index_dtype(), self._chosen(_compiled(in_xla), as_nest)

        def call(micro_batch):
            *results, outputs = compute(micro_batch)
            terms = outputs.get("terms") if isinstance(outputs, dict) else None
            return *results, ops.LossTerms(**terms) if terms else outputs

        return call

    def _chosen(self, compiled, plain):
        """Returns a function of a micro-batch that calls one of two functions of the same nest."""
        del plain
        return compiled


class DefaultSteps(CompiledSteps):
    """Compiled steps of a user who did not ask for XLA, on one device.

    Only the first shapes of batches are compiled, and a model that XLA cannot compile trains
    without it.
    """

    def __init__(self):
        self._warned = False
        # {shapes: 1}, on the host as shapes are.
        self._shapes = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)

    def _chosen(self, compiled, plain):
        def call(micro_batch):
            tensors = [x for x in tf.nest.flatten(micro_batch) if x is not None]
            if all(x.shape.is_fully_defined() for x in tensors):
                return compiled(micro_batch)
            is_first = self._is_among_the_first(tensors)
            return tf.cond(is_first, lambda: compiled(micro_batch), lambda: plain(micro_batch))

        return call

    def _is_among_the_first(self, tensors):
        """Returns whether the tensors' shapes are among the first `MOST_SHAPES`, bool scalar."""
        with ops.on_host():
            sizes = tf.concat([tf.shape(x) for x in tensors], axis=0)
            key = tf.strings.reduce_join(tf.strings.as_string(sizes), separator=",")
            is_first = (self._shapes.size() < MOST_SHAPES) | (self._shapes.lookup(key) > 0)
            self._shapes.insert(tf.where(is_first, key, _OTHER_SHAPES), tf.constant(1, tf.int64))
        return is_first

    def guarded(self, model, train_function):
        """Returns a training function that drops XLA if it fails, and warns of many shapes.

        If XLA fails only when the step runs, because it lacks an operation, that batch is skipped,
        and the log says so.
        """

        @functools.wraps(train_function)
        def call(iterator):
            batches = list(iterator) if inspect.isgenerator(iterator) else None  # `train_on_batch`
            try:
                logs = train_function(iterator if batches is None else iter(batches))
            except InputError:
                raise
            except (*_OF_TRACING, tf.errors.OpError) as error:
                if isinstance(error, tf.errors.OpError) and not is_of_xla(error):
                    raise
                self._switch(model, None)
                try:
                    logs = model.train_function(iterator if batches is None else iter(batches))
                except _OF_TRACING:  # not XLA's fault
                    self._switch(model, self)
                    raise
                reason = str(error).strip().partition("\n")[0]
                is_lost = batches is None and isinstance(error, tf.errors.OpError)
                lost = "; one batch was not trained on" * is_lost
                logging.info(
                    "Training continues without XLA, which cannot compile it%s: %s", lost, reason
                )
                return logs
            self._warn_of_shapes()
            return logs

        return call

    @staticmethod
    def _switch(model, xla):
        model.xla = xla
        model.make_train_function(force=True)

    def _warn_of_shapes(self):
        if self._warned or not self._shapes.lookup(tf.constant(_OTHER_SHAPES)):
            return
        self._warned = True
        logging.warning(
            "Batches have more than %d shapes: XLA has compiled the first, the others run without "
            "it, which is slower. Give batches of few shapes, by LengthBuckets with bucket_lengths "
            "or by Packing.",
            MOST_SHAPES,
        )


def _compiled(function):
    return tf.function(function, autograph=False, jit_compile=True)
