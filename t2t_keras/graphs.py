"""How this library makes graphs and tf.data pipelines: no AutoGraph, deterministic order.

AutoGraph rewrites each function that is called while a graph is made, so that `if`, `while` and
`for` over tensors become operations. This library writes such operations itself, and rewriting took
a third of the time in which graphs are made.
"""

import functools
import threading
import weakref

import tensorflow as tf


def graph_function(function=None, **options):
    """`tf.function` without AutoGraph, as a function or a decorator.

    TensorFlow counts traces by the code of a function, and warns of retracing when several objects,
    such as translators, trace the same method. Each function of this kind is counted on its own.
    """
    if function is None:
        return functools.partial(graph_function, **options)
    return tf.function(functools.partial(function), autograph=False, **options)


_MAKING = threading.Lock()


def kept_function(owner, key, method, input_signature):
    """Returns the `tf.function` of method(owner, *inputs), made once and kept in `owner.graphs`.

    It may be called by other graphs, which then share its graph; a SavedModel contains it once.

    Args:
        owner: object with a `model` and a dict `graphs`, which it empties when it changes. The
            method is traced again if the model has different weights, for instance after LoRA added
            some, or if `owner.trace_key` differs. `owner.reading` wraps the `tf.function`.
        key: str that identifies the method and the number of its inputs.
        method: function of the owner and tensors.
        input_signature: list of `tf.TensorSpec`.
    """
    # A str: `tf.Module` sorts the keys of a dict when it looks for variables.
    key = f"{key} {len(getattr(owner.model, 'variables', ()))} {getattr(owner, 'trace_key', '')}"
    graphs = owner.graphs  # another thread may replace it
    with _MAKING:  # threads that call at the same time share one graph
        if key not in graphs:
            its = weakref.ref(owner)  # its graphs do not keep an object alive
            function = graph_function(
                lambda *inputs: method(its(), *inputs), input_signature=input_signature
            )
            graphs[key] = getattr(owner, "reading", lambda function: function)(function)
    return graphs[key]


def model_function(input_signature):
    """Decorator like `graph_function`, for a method of an owner as `kept_function` describes it.

    Of the `tf.TensorSpec` of the input_signature a call may leave out the last ones. A call with
    keyword arguments, which may be anything, becomes part of the graph that calls.
    """

    def decorate(method):
        @functools.wraps(method)
        def call(self, *inputs, **options):
            if options:
                return method(self, *inputs, **options)
            key = f"{id(method)} {len(inputs)}"
            return kept_function(self, key, method, input_signature[: len(inputs)])(*inputs)

        return call

    return decorate


no_autograph = tf.autograph.experimental.do_not_convert
"""Decorator for functions that make datasets, or are mapped over one."""

PARALLEL_CALLS = 4
"""Parallel calls of a function that is mapped over a dataset."""


def deterministic(dataset):
    """Returns the dataset with elements in deterministic order and without autotuning.

    tf.data tunes parallelism in a thread that sleeps 10 ms, 20 ms, 40 ms … up to a minute between
    two rounds. In TensorFlow 2.21 the end of an iterator, and so of a `fit`, waits until that
    thread wakes.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return dataset.with_options(options)


def after(checks, value):
    """Returns a value, a nest of tensors, that is computed only if the checks passed.

    In eager mode a failed check has raised, and a passed one is None.
    """
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.nest.map_structure(tf.identity, value)
