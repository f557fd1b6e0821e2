"""Time and memory of a layer, measured, and how they grow with a size."""

import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function


class Traced(NamedTuple):
    """A layer as a graph, and what to run it on.

    Attributes:
        function: `ConcreteFunction`.
        arguments: what it takes: trainable weights, other weights, input.
    """

    function: object
    arguments: tuple


def trace_layer(layer, shape, seed=0):
    """Returns the `Traced` forward pass of a Keras layer on standard normal numbers.

    Args:
        layer: `keras.layers.Layer`, built or not.
        shape: of its input, float32.
        seed: int, of the input.
    """
    if not layer.built:
        layer.build(shape)
    trainable, others = (
        [tf.convert_to_tensor(variable) for variable in variables]
        for variables in (layer.trainable_variables, layer.non_trainable_variables)
    )
    arguments = (trainable, others, tf.random.stateless_normal(shape, [seed, 0]))

    def forward(trainable, others, x):
        return layer.stateless_call(trainable, others, x)[0]

    function = graph_function(forward).get_concrete_function(*arguments)
    return Traced(function, arguments)


def fastest_time(traced, seconds=0.2, least=3):
    """Returns the seconds of the fastest of several runs: what else a machine does only adds.

    Args:
        traced: `Traced`.
        seconds: for how long to repeat.
        least: how many runs there are at least; one more goes before them, unmeasured.
    """
    function, arguments = traced
    function(*arguments)
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory(traced):
    """Returns the most bytes that a run holds at a time, its weights and its input not counted.

    TensorFlow's allocator keeps a record of every allocation and every release by a kernel in a
    run that is traced fully (`RunMetadata.step_stats`), loops included. The peak is that of their
    running sum in the order of time. One thread runs the operations: with several, the steps of a
    loop that is far ahead hold more the busier the machine is.
    """
    function, arguments = traced
    feed = {
        tensor.name: value.numpy()
        for tensor, value in zip(function.inputs, tf.nest.flatten(arguments), strict=True)
    }
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
    if not records:
        return 0
    return int(np.cumsum([size for _, size in sorted(records)]).max())


def fitted_exponent(sizes, values):
    """Returns the exponent e of values ≈ c · size^e, fitted to the larger half of the sizes.

    What every call costs whatever the size hides the growth of small sizes.

    Args:
        sizes: increasing, at least two.
        values: one for each, above 0.

    Raises:
        InputError: if there are fewer than two.
    """
    if len(sizes) < 2:
        raise InputError(f"{len(sizes)} sizes show no growth: give at least 2.")
    half = max(2, (len(sizes) + 1) // 2)
    return float(np.polyfit(np.log(sizes[-half:]), np.log(values[-half:]), 1)[0])


def crossing(sizes, rising, other):
    """Returns the size at which `rising` comes to exceed `other` for good, between two sizes if so.

    Args:
        sizes: increasing.
        rising: one value for each size, above 0.
        other: likewise.

    Returns:
        float; None if `rising` is not above in the end; the first size if it is above everywhere.
    """
    gaps = np.log(rising) - np.log(other)
    below = np.flatnonzero(gaps <= 0)
    if len(below) == 0:
        return float(sizes[0])
    last = below[-1]
    if last == len(sizes) - 1:
        return None
    share = -gaps[last] / (gaps[last + 1] - gaps[last])
    ends = np.log(sizes[last : last + 2])
    return float(np.exp(ends[0] + share * (ends[1] - ends[0])))
