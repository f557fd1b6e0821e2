"""Arithmetic of a model, counted from the graph that runs.

Products of matrices and convolutions are counted, a multiplication and an addition for each pair
of numbers, as in `counts.py`. Sums that are made as products with ones are not.
"""

import math

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function
from t2t_keras.ops.dense import SUM_NAME


def count_graph_flops(function):
    """Returns the FLOPs of all products in a graph, those of the functions it calls included.

    Args:
        function: `tf.types.experimental.ConcreteFunction` whose shapes are known.

    Raises:
        InputError: if a product has an unknown shape, or stands in a loop.
    """
    return _count(function.graph)


def trace_forward(model, batch, source, target):
    """Returns the concrete function of a `Transformer`'s forward pass in training."""
    inputs = _inputs(batch, source, target)
    return graph_function(lambda: model(inputs, training=True)).get_concrete_function()


def trace_training(model, loss, batch, source, target):
    """Returns the concrete function of a loss and its gradients, each product once in its graph.

    A loss that multiplies with the vocabulary itself, in parts, makes the same ones in a loop.

    Args:
        model: `Transformer`.
        loss: `keras.losses.Loss`.
        batch: sentence pairs.
        source: positions of each source.
        target: positions of each target.
    """
    inputs = _inputs(batch, source, target)

    def gradients():
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            value = loss(inputs["target_ids"], logits)
        return tape.gradient(value, model.trainable_weights)

    return graph_function(gradients).get_concrete_function()


def _inputs(batch, source, target):
    return {
        "source_ids": tf.ones([batch, source], tf.int32),
        "target_ids": tf.ones([batch, target], tf.int32),
    }


def _is_a_sum(operation):
    return operation.name.rpartition("/")[2].startswith(SUM_NAME)


def _count(graph):
    flops = 0
    for operation in graph.get_operations():
        if operation.type in _PRODUCTS and not _is_a_sum(operation):
            shapes = [x.shape for x in (*operation.inputs, *operation.outputs)]
            if any(not shape.is_fully_defined() for shape in shapes):
                raise InputError(
                    f"{operation.name} has shapes {shapes}: trace it with sizes that are known."
                )
            flops += 2 * _PRODUCTS[operation.type](operation)
        for called in _called_graphs(operation):
            inner = _count(called)
            if inner and operation.type in _LOOPS:
                raise InputError(
                    f"{operation.name} is a loop with products, and how often it runs can't be "
                    "known: count its body."
                )
            flops += inner
    return flops


def _called_graphs(operation):
    for name, attribute in operation.node_def.attr.items():
        if attribute.HasField("func"):
            function = operation.graph._get_function(operation.get_attr(name).name)
            yield function.graph


def _matrix_product(operation):
    """Pairs of numbers in [..., m, k] · [..., k, n]."""
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    inner = operation.inputs[0].shape[-2 if transposed else -1]
    return _size(operation.outputs[0]) * inner


def _convolution(operation):
    """Pairs of numbers in a convolution [..., out] with a kernel [..., in, out]."""
    return _size(operation.outputs[0]) * math.prod(operation.inputs[1].shape[:-1])


def _convolution_back_to_input(operation):
    return _size(operation.inputs[2]) * math.prod(operation.inputs[1].shape[:-1])


def _convolution_back_to_kernel(operation):
    return _size(operation.inputs[2]) * math.prod(operation.outputs[0].shape[:-1])


def _convolution_by_channel(operation):
    """Pairs of numbers in a convolution of each channel with kernels of its own."""
    return _size(operation.outputs[0]) * math.prod(operation.inputs[1].shape[:-2])


def _size(tensor):
    return tensor.shape.num_elements()


_PRODUCTS = {
    "MatMul": _matrix_product,
    "BatchMatMulV2": _matrix_product,
    "BatchMatMulV3": _matrix_product,
    "Conv2D": _convolution,
    "DepthwiseConv2dNative": _convolution_by_channel,
    "Conv2DBackpropInput": _convolution_back_to_input,
    "Conv2DBackpropFilter": _convolution_back_to_kernel,
}
_LOOPS = {"While", "StatelessWhile"}
