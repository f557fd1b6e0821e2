"""Weights and FLOPs of a model: in closed form from its config, and counted in its graph.

`count_parameters`, `count_forward_flops` and `count_training_flops` need only a config;
`count_graph_flops` counts the matrix products of a traced function; tests check that both agree.
Only matrix products count, with two FLOPs (multiply and add) for each pair of elements. As usual,
element-wise operations (softmax, norms, dropout, the optimizer) do not count, nor do row sums that
are computed as products with ones.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function
from t2t_keras.layers.variants import POSITION_EMBEDDINGS
from t2t_keras.layers.variants.local_attention import NEIGHBORS, Blocks
from t2t_keras.models.config import TransformerConfig
from t2t_keras.ops.dense import SUM_NAME

SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""The paper's estimates of sustained FLOPs per second (section 6.1, footnote)."""


class ParameterCounts(NamedTuple):
    """Weights of all layers by part; layer norms and biases belong to the part they follow."""

    embedding: int  # of source, target and output projection
    positions: int  # learned ones of source and target
    encoder_attention: int
    encoder_feed_forward: int
    decoder_self_attention: int
    decoder_cross_attention: int
    decoder_feed_forward: int
    final_norms: int  # those after the stacks of pre-norm models

    @property
    def total(self):
        return sum(self)


_COUNTED = {
    "norm": ("post", "pre"),
    "attention_score": ("scaled_dot_product", "dot_product", "additive"),
    "feed_forward": ("dense", "convolution"),
}
"""{field: the variants whose weights are counted}; those of positions state theirs."""


def _require_counted(config, what, exact, **counted):
    for field, known in (_COUNTED | counted).items():
        value = getattr(config, field)
        if value not in known:
            raise InputError(
                f"{field} is {value!r}, whose {what} are not counted: call {exact} a model, or add "
                "the variant to t2t_keras/analysis/counts.py."
            )


def count_parameters(config: TransformerConfig) -> ParameterCounts:
    """Counts the weights of a model.

    Raises:
        InputError: for a variant whose weights are not known here.
    """
    _require_counted(config, "weights", "count_params() of")
    model_dim, heads = config.model_dim, config.num_heads
    norm = 2 * model_dim
    attention = heads * 2 * model_dim * (config.key_dim + config.value_dim) + norm
    if config.attention_score == "additive":
        attention += heads * config.key_dim  # v
    if config.attention_bias:
        attention += heads * (2 * config.key_dim + config.value_dim) + model_dim
    positions = POSITION_EMBEDDINGS[config.position_embedding]
    of_positions = positions.count_weights(config)
    self_attention = attention + positions.in_attention * of_positions
    inner = config.feed_forward_dim
    feed_forward = 2 * model_dim * inner + inner + model_dim + norm
    embedded = {
        "all": config.vocab_size,
        "target": config.vocab_size + config.encoder_vocab_size,
        "none": 2 * config.vocab_size + config.encoder_vocab_size,
    }
    return ParameterCounts(
        embedding=embedded[config.embedding_sharing] * model_dim
        + config.output_bias * config.vocab_size,
        positions=(not positions.in_attention) * 2 * of_positions,
        encoder_attention=config.num_encoder_layers * self_attention,
        encoder_feed_forward=config.num_encoder_layers * feed_forward,
        decoder_self_attention=config.num_decoder_layers * self_attention,
        decoder_cross_attention=config.num_decoder_layers * attention,
        decoder_feed_forward=config.num_decoder_layers * feed_forward,
        final_norms=(config.norm == "pre") * 2 * norm,
    )


class FlopCounts(NamedTuple):
    """FLOPs of a forward pass by part."""

    projections: int  # W^Q, W^K, W^V and W^O of all attention
    encoder_attention: int  # scores and weighted values, as of the next two
    decoder_self_attention: int
    decoder_cross_attention: int
    feed_forward: int
    softmax: int  # the output projection

    @property
    def total(self):
        return sum(self)


def count_forward_flops(
    config: TransformerConfig, batch: int, source: int, target: int
) -> FlopCounts:
    """Counts the FLOPs of a forward pass in training, padding included.

    `batch` is the number of sentence pairs, `source` and `target` their lengths in tokens.

    Raises:
        InputError: for a variant whose products are not known here.
    """
    exact = "count_graph_flops(trace_forward(…)) with"
    stated = {name: vars(kind).get("multiplies") for name, kind in POSITION_EMBEDDINGS.items()}
    if stated[config.position_embedding] is None:
        raise InputError(
            f"the class of position_embedding {config.position_embedding!r} does not state "
            f"`multiplies`, whether it has matrix products: state it, or call {exact} a model."
        )
    without = [name for name, multiplies in stated.items() if not multiplies]
    _require_counted(config, "FLOPs", exact, position_embedding=without)
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    # W^Q and W^O apply to query positions, W^K and W^V to key positions. A score takes key_dim
    # multiplications, in vᵀ tanh(q + k) as in q · k.
    over_each = config.num_heads * (config.key_dim + config.value_dim)
    layer_positions = encoder * source + decoder * target
    positions = 2 * layer_positions + decoder * (source + target)
    a_pair, window = 2 * batch * over_each, config.attention_window
    return FlopCounts(
        projections=2 * batch * positions * config.model_dim * over_each,
        encoder_attention=a_pair * encoder * _self_pairs(window, False, source),
        decoder_self_attention=a_pair * decoder * _self_pairs(window, True, target),
        decoder_cross_attention=a_pair * decoder * target * source,
        feed_forward=4 * batch * layer_positions * config.model_dim * config.feed_forward_dim,
        softmax=2 * batch * target * config.model_dim * config.vocab_size,
    )


def count_training_flops(config: TransformerConfig, batch: int, source: int, target: int) -> int:
    """Returns the FLOPs of a training step: three times the FLOPs of the forward pass.

    The gradient of each product needs two more of the same size, one for each factor.
    """
    return 3 * count_forward_flops(config, batch, source, target).total


def training_flops_by_time(seconds, devices, sustained_flops=SUSTAINED_FLOPS["P100"]):
    """Returns the FLOPs of a training as the paper estimates them in Table 2.

    "By multiplying the training time, the number of GPUs used, and an estimate of the sustained
    single-precision floating-point capacity of each GPU" (section 6.1), FLOPs per second.
    """
    return seconds * devices * sustained_flops


def _self_pairs(window, causal, length):
    """Returns the number of (query, key) pairs of one layer's self-attention in one sentence."""
    if window is None:
        return length * length  # a causal mask hides scores but does not save them
    blocks = Blocks.of(length, window)
    return int(blocks.count) * int(blocks.size) ** 2 * len(NEIGHBORS[causal])


def count_graph_flops(function):
    """Returns the FLOPs of all products of a concrete function and of those that it calls.

    Raises:
        InputError: if a product has an unknown shape, is inside a loop, or comes from `tf.einsum`.
    """
    return _count(function.graph)


def trace_forward(model, batch, source, target):
    """Returns the concrete function of a `Transformer`'s forward pass in training."""
    inputs = _inputs(batch, source, target)
    return graph_function(lambda: model(inputs, training=True)).get_concrete_function()


def trace_training(model, loss, batch, source, target):
    """Returns the concrete function of a loss and its gradients, with each product only once.

    The logits are computed before the loss; a fused loss would compute the same products in a
    loop, which `count_graph_flops` refuses.
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


def _count(graph):
    flops = 0
    for operation in graph.get_operations():
        if operation.type == "Einsum":
            raise InputError(f"{operation.name} is an einsum, which is not counted: use tf.matmul.")
        is_row_sum = operation.name.rpartition("/")[2].startswith(SUM_NAME)
        if operation.type in _PRODUCTS and not is_row_sum:
            shapes = [x.shape for x in (*operation.inputs, *operation.outputs)]
            if any(not shape.is_fully_defined() for shape in shapes):
                raise InputError(
                    f"{operation.name} has shapes {shapes}: trace the function with static shapes."
                )
            flops += 2 * _PRODUCTS[operation.type](operation)
        for called in _called_graphs(operation):
            inner = _count(called)
            if inner and operation.type in _LOOPS:
                raise InputError(
                    f"{operation.name} is a loop with products, and its number of iterations is "
                    "unknown: count its body."
                )
            flops += inner
    return flops


def _called_graphs(operation):
    for name, attribute in operation.node_def.attr.items():
        if attribute.HasField("func"):
            function = operation.graph._get_function(operation.get_attr(name).name)
            yield function.graph


def _matrix_product(operation):
    """Returns the pairs of elements multiplied in [..., m, k] · [..., k, n]."""
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    inner = operation.inputs[0].shape[-2 if transposed else -1]
    return operation.outputs[0].shape.num_elements() * inner


def _convolution(kernel, axes=-1):
    """Returns a function to the pairs of elements multiplied in a convolution or its gradient.

    Of the operation's tensors, first its inputs, then its outputs, number 2 has the shape of the
    result, and number `kernel` the one of the kernel, whose first `axes` a sum goes over.
    """

    def pairs(operation):
        tensors = *operation.inputs, *operation.outputs
        return tensors[2].shape.num_elements() * math.prod(tensors[kernel].shape[:axes])

    return pairs


_PRODUCTS = {
    "MatMul": _matrix_product,
    "BatchMatMulV2": _matrix_product,
    "BatchMatMulV3": _matrix_product,
    "Conv2D": _convolution(kernel=1),
    "DepthwiseConv2dNative": _convolution(kernel=1, axes=-2),
    "Conv2DBackpropInput": _convolution(kernel=1),
    "Conv2DBackpropFilter": _convolution(kernel=3),
}
_LOOPS = {"While", "StatelessWhile"}
