"""Weights and arithmetic of a model, in closed form from its config alone.

FLOPs here are those of products, a multiplication and an addition for each pair of numbers; what
is computed element by element (softmax, norms, dropout, the optimizer) is not counted, as is
usual. `graph_counts.py` counts the same from the graph that runs.
"""

from typing import NamedTuple

from t2t_keras.layers.variants.local_attention import NEIGHBORS, Blocks

SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""The paper's estimates of what a device does in a second (section 6.1, footnote)."""


class ParameterCounts(NamedTuple):
    """Weights by part; layer norms and biases are counted with the part they follow.

    Attributes:
        embedding: of the matrix of source, target and softmax.
        positions: of learned positions, source's and target's.
        encoder_attention, encoder_feed_forward: of all encoder layers.
        decoder_self_attention, decoder_cross_attention, decoder_feed_forward: of all decoder
            layers.
        final_norms: of the norms behind the stacks of pre-norm models.
    """

    embedding: int
    positions: int
    encoder_attention: int
    encoder_feed_forward: int
    decoder_self_attention: int
    decoder_cross_attention: int
    decoder_feed_forward: int
    final_norms: int

    @property
    def total(self):
        return sum(self)


def count_parameters(config):
    """Returns the `ParameterCounts` of a `TransformerConfig`."""
    model_dim, heads = config.model_dim, config.num_heads
    norm = 2 * model_dim
    attention = heads * 2 * model_dim * (config.key_dim + config.value_dim) + norm
    if config.attention_score == "additive":
        attention += heads * config.key_dim  # v
    inner = config.feed_forward_dim
    feed_forward = 2 * model_dim * inner + inner + model_dim + norm
    return ParameterCounts(
        embedding=config.vocab_size * model_dim,
        positions=(config.position_embedding == "learned") * 2 * config.max_positions * model_dim,
        encoder_attention=config.num_encoder_layers * attention,
        encoder_feed_forward=config.num_encoder_layers * feed_forward,
        decoder_self_attention=config.num_decoder_layers * attention,
        decoder_cross_attention=config.num_decoder_layers * attention,
        decoder_feed_forward=config.num_decoder_layers * feed_forward,
        final_norms=(config.norm == "pre") * 2 * norm,
    )


class FlopCounts(NamedTuple):
    """Floating-point operations of a forward pass by part.

    Attributes:
        projections: W^Q, W^K, W^V and W^O of all attention.
        encoder_attention, decoder_self_attention, decoder_cross_attention: of scores and of
            weighted values.
        feed_forward: of all feed-forward networks.
        softmax: of the product with the embedding matrix.
    """

    projections: int
    encoder_attention: int
    decoder_self_attention: int
    decoder_cross_attention: int
    feed_forward: int
    softmax: int

    @property
    def total(self):
        return sum(self)


def count_forward_flops(config, batch, source, target):
    """Returns the `FlopCounts` of a forward pass in training, in which all is padded alike.

    Args:
        config: `TransformerConfig`.
        batch: sentence pairs.
        source: positions of each source.
        target: positions of each target.
    """
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    queries_and_keys, values = (
        config.num_heads * config.key_dim,
        config.num_heads * config.value_dim,
    )
    # W^Q and W^O run over the queries' positions, W^K and W^V over the keys'.
    over_each = queries_and_keys + values
    positions = 2 * (encoder * source + decoder * target) + decoder * (source + target)
    pairs = {
        "encoder": encoder * _self_pairs(config.attention_window, False, source),
        "self": decoder * _self_pairs(config.attention_window, True, target),
        "cross": decoder * target * source,
    }
    # A score takes key_dim multiplications, in vᵀ tanh(q + k) as in q · k.
    attention = {name: 2 * batch * count * over_each for name, count in pairs.items()}
    layer_positions = encoder * source + decoder * target
    return FlopCounts(
        projections=2 * batch * positions * config.model_dim * over_each,
        encoder_attention=attention["encoder"],
        decoder_self_attention=attention["self"],
        decoder_cross_attention=attention["cross"],
        feed_forward=4 * batch * layer_positions * config.model_dim * config.feed_forward_dim,
        softmax=2 * batch * target * config.model_dim * config.vocab_size,
    )


def count_training_flops(config, batch, source, target):
    """Returns the FLOPs of a training step.

    Backwards, each product of the forward pass takes two of the same size, one for the gradient
    of each of its factors: three times the forward pass in all.
    """
    return 3 * count_forward_flops(config, batch, source, target).total


def training_flops_by_time(seconds, devices, sustained_flops=SUSTAINED_FLOPS["P100"]):
    """Returns the FLOPs of a training as the paper estimates them in Table 2.

    "By multiplying the training time, the number of GPUs used, and an estimate of the sustained
    single-precision floating-point capacity of each GPU" (section 6.1).

    Args:
        seconds: training time.
        devices: number of devices.
        sustained_flops: operations that one device does in a second.
    """
    return seconds * devices * sustained_flops


def _self_pairs(window, causal, length):
    """Returns how many pairs of query and key one layer's self-attention computes in a row."""
    if window is None:
        return length * length  # a causal mask hides scores, it saves none
    blocks = Blocks.of(length, window)
    return int(blocks.count) * int(blocks.size) ** 2 * len(NEIGHBORS[causal])
