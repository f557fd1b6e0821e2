"""Measures time and memory of a layer, and how they grow with a size."""

import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function


class Traced(NamedTuple):
    """A layer as a `ConcreteFunction`, with its weights and input."""

    function: object
    arguments: tuple


def trace_layer(layer, shape):
    """Returns the `Traced` forward pass of a Keras layer on standard normal input of a shape."""
    if not layer.built:
        layer.build(shape)
    trainable, others = (
        [tf.convert_to_tensor(variable) for variable in variables]
        for variables in (layer.trainable_variables, layer.non_trainable_variables)
    )
    arguments = (trainable, others, tf.random.stateless_normal(shape, [0, 0]))

    def forward(trainable, others, x):
        return layer.stateless_call(trainable, others, x)[0]

    function = graph_function(forward).get_concrete_function(*arguments)
    return Traced(function, arguments)


def fastest_time(traced, seconds=0.2):
    """Returns the seconds of the fastest of several runs: other load only adds time.

    After an unmeasured run there are at least 3 runs, which take at least `seconds` together.
    """
    function, arguments = traced
    function(*arguments)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory(traced):
    """Returns the peak memory of a run in bytes, without weights and input.

    In a fully traced run TensorFlow's allocator records every allocation and release by a kernel,
    loops included (`RunMetadata.step_stats`). The peak is the maximum of their cumulative sum over
    time. One thread runs the operations: with several, the peak of a loop depends on the load of
    the machine.
    """
    function, arguments = traced
    values = [value.numpy() for value in tf.nest.flatten(arguments)]
    feed = {x.name: value for x, value in zip(function.inputs, values, strict=True)}
    fetch = [tensor.name for tensor in function.outputs]
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    in_this_thread = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=-1)
    with tf.compat.v1.Session(graph=function.graph, config=in_this_thread) as session:
        session.run(fetch, feed, options=options, run_metadata=metadata)
    records = [
        (record.alloc_micros, record.alloc_bytes)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for allocator in node.memory
        for record in allocator.allocation_records
    ]
    return int(np.cumsum([size for _, size in sorted(records)]).max(initial=0))


def fitted_exponent(sizes, values):
    """Returns the exponent e of values ≈ c · size^e, fitted to the larger half of the sizes.

    The constant cost of a call hides the growth at small sizes. Sizes increase, values are above 0.
    """
    if len(sizes) < 2:
        raise InputError(f"{len(sizes)} sizes show no growth: give at least 2.")
    half = max(2, (len(sizes) + 1) // 2)
    return float(np.polyfit(np.log(sizes[-half:]), np.log(values[-half:]), 1)[0])
