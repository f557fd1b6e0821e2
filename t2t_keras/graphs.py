"""How this library makes graphs and tf.data pipelines: no AutoGraph, deterministic order.

AutoGraph rewrites each function that is called while a graph is made, so that `if`, `while` and
`for` over tensors become operations. This library writes such operations itself (`tf.while_loop`),
and rewriting took a third of the time in which graphs are made.
"""

import functools

import tensorflow as tf

graph_function = functools.partial(tf.function, autograph=False)
"""`tf.function` without AutoGraph."""


def model_function(input_signature):
    """Decorator like `graph_function`, for a method of an object with a `model`.

    The method is traced anew when the model has got other weights, as LoRA adds them, or when the
    object's attribute `traced_for` has changed. It must be hashable; None if it is missing.

    Args:
        input_signature: list of `tf.TensorSpec`, of which a call may leave out the last ones.
    """

    def decorate(method):
        @functools.cache
        def make(weights, count, traced_for):
            del weights, traced_for
            return graph_function(method, input_signature=input_signature[:count])

        @functools.wraps(method)
        def call(self, *inputs):
            weights = len(getattr(self.model, "variables", ()))
            function = make(weights, len(inputs), getattr(self, "traced_for", None))
            return function.__get__(self, type(self))(*inputs)

        return call

    return decorate


no_autograph = tf.autograph.experimental.do_not_convert
"""Decorator for functions that make datasets, or are mapped over one."""

PARALLEL_CALLS = 4
"""Parallel calls of a function that is mapped over a dataset."""


def deterministic(dataset):
    """Returns the dataset with elements in deterministic order and without autotuning.

    tf.data tunes parallelism in a thread that sleeps 10 ms, 20 ms, 40 ms … up to a minute between
    two rounds. In TensorFlow 2.21 the end of an iterator waits until that thread wakes, so that the
    end of a `fit` takes up to as long again as the `fit` itself.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return dataset.with_options(options)
