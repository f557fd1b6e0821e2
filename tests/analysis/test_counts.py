import pytest
import tensorflow as tf

from t2t_keras import layers
from t2t_keras.analysis.counts import (
    count_forward_flops,
    count_graph_flops,
    count_parameters,
    count_training_flops,
    trace_forward,
    trace_training,
    training_flops_by_time,
)
from t2t_keras.errors import InputError
from t2t_keras.layers import variants
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.losses import LabelSmoothedCrossEntropy

SMALL = {
    "num_encoder_layers": 2, "num_decoder_layers": 1, "model_dim": 16, "feed_forward_dim": 24,
    "num_heads": 2, "key_dim": 5, "value_dim": 7,
}  # fmt: skip
VARIATIONS = [
    {},
    {"attention_window": 4, "fused_qkv": False},
    {"feed_forward": "convolution", "norm": "pre"},
    {"attention_bias": True, "output_bias": True, "activation": "gelu"},
    {"attention_score": "additive", "position_embedding": "learned", "max_positions": 90},
    *(
        {"position_embedding": name, "max_relative_distance": 3, "key_dim": 6}
        for name in variants.POSITION_EMBEDDINGS
    ),
]


def weights(*layers):
    return sum(layer.count_params() for layer in layers)


@pytest.mark.parametrize("changes", VARIATIONS)
def test_every_part_has_as_many_weights_as_counted(changes):
    config = TransformerConfig(50, **(SMALL | changes))
    model, counts = Transformer(config), count_parameters(config)
    encoder, decoder = model.encoder.layers, model.decoder.layers
    assert counts == (
        weights(model.embedding),
        weights(model.source_positions, model.target_positions),
        sum(weights(x.attention, x.attention_residual) for x in encoder),
        sum(weights(x.feed_forward, x.feed_forward_residual) for x in encoder),
        sum(weights(x.self_attention, x.self_residual) for x in decoder),
        sum(weights(x.cross_attention, x.cross_residual) for x in decoder),
        sum(weights(x.feed_forward, x.feed_forward_residual) for x in decoder),
        weights(model.encoder.final_norm, model.decoder.final_norm),
    )
    assert counts.total == model.count_params()


@pytest.mark.parametrize("changes", [VARIATIONS[0], VARIATIONS[2]])
def test_flops_of_the_config_are_those_of_the_graph(changes):
    config = TransformerConfig(50, **SMALL, **changes)
    model, sizes = Transformer(config), (3, 70, 41)
    forward = count_forward_flops(config, *sizes)
    assert count_graph_flops(trace_forward(model, *sizes)) == forward.total
    training = count_graph_flops(trace_training(model, LabelSmoothedCrossEntropy(), *sizes))
    assert training == count_training_flops(config, *sizes)


@pytest.mark.parametrize("name", variants.POSITION_EMBEDDINGS)
def test_position_embeddings_state_whether_they_multiply(name):
    config = TransformerConfig(50, **SMALL | {"key_dim": 6}, position_embedding=name)
    if variants.POSITION_EMBEDDINGS[name].multiplies:
        with pytest.raises(InputError, match="whose FLOPs are not counted"):
            count_forward_flops(config, 3, 7, 5)
    else:
        counted = count_graph_flops(trace_forward(Transformer(config), 3, 7, 5))
        assert count_forward_flops(config, 3, 7, 5).total == counted


def test_a_position_embedding_without_a_statement_is_not_counted(monkeypatch):
    class Multiplying(layers.RotaryPositions):
        """Inherits a statement that does not hold for it."""

        def adjust_scores(self, scores, query, distance):
            return scores + tf.matmul(query, query, transpose_b=True)

    monkeypatch.setitem(variants.POSITION_EMBEDDINGS, "rotary", Multiplying)
    config = TransformerConfig(50, **SMALL | {"key_dim": 6}, position_embedding="rotary")
    with pytest.raises(InputError, match="'rotary' does not state `multiplies`"):
        count_training_flops(config, 3, 7, 5)


def test_variants_that_are_not_counted_are_refused():
    relative = TransformerConfig(50, **SMALL, position_embedding="relative")
    gated = TransformerConfig(50, **SMALL)
    object.__setattr__(gated, "feed_forward", "gated")  # as a new variant
    for function in (lambda: count_forward_flops(gated, 1, 2, 3), lambda: count_parameters(gated)):
        with pytest.raises(InputError, match=r"feed_forward is 'gated', whose .* are not counted"):
            function()
    with pytest.raises(InputError, match="position_embedding is 'relative', whose FLOPs"):
        count_training_flops(relative, 1, 2, 3)
    with pytest.raises(InputError, match="is an einsum"):
        count_graph_flops(trace_forward(Transformer(relative), 1, 2, 3))


def test_additive_scores_are_no_products_of_the_graph_but_counted_as_such():
    config = TransformerConfig(50, **SMALL, attention_score="additive")
    model, sizes = Transformer(config), (3, 6, 5)
    scores = 2 * 3 * 2 * 5 * (2 * 6 * 6 + 5 * 5 + 5 * 6)  # batch, heads, key_dim, pairs
    difference = count_forward_flops(config, *sizes).total - scores
    assert count_graph_flops(trace_forward(model, *sizes)) == difference


def test_restricted_attention_costs_in_proportion_to_the_length():
    config = TransformerConfig(50, **SMALL, attention_window=17)
    short, long = (count_forward_flops(config, 1, n, n) for n in (160, 1600))
    assert long.encoder_attention == 10 * short.encoder_attention
    assert long.decoder_self_attention == 10 * short.decoder_self_attention
    assert long.decoder_cross_attention == 100 * short.decoder_cross_attention


def test_graphs_that_can_not_be_counted_are_refused():
    known = tf.TensorSpec([4, 4])
    inner = tf.function(lambda x: tf.matmul(x, x)).get_concrete_function(known)
    unknown = tf.function(lambda x: tf.matmul(x, x)).get_concrete_function(tf.TensorSpec(None))
    with pytest.raises(InputError, match="trace the function with static shapes"):
        count_graph_flops(unknown)
    calls = tf.function(lambda x: inner(inner(x))).get_concrete_function(known)
    assert count_graph_flops(calls) == 2 * 2 * 4**3
    loop = tf.function(lambda x: tf.while_loop(lambda y: True, lambda y: (inner(y),), (x,)))
    with pytest.raises(InputError, match="a loop with products"):
        count_graph_flops(loop.get_concrete_function(known))


def test_the_papers_own_training_costs():
    """Table 2: 12 hours and 3.5 days on 8 P100."""
    assert f"{training_flops_by_time(12 * 3600, 8):.1e}" == "3.3e+18"
    assert f"{training_flops_by_time(3.5 * 86_400, 8):.1e}" == "2.3e+19"


def test_a_translation_does_not_compute_all_positions_again_for_each_token():
    """Keras's own example did, and took eight times as long as another one (keras-hub 1280)."""
    model, source, target = Transformer(TransformerConfig(50, **SMALL)), 25, 40
    again = target * count_graph_flops(trace_forward(model, 1, source, target))
    source_ids = tf.ones([1, source], tf.int32)
    once = count_graph_flops(tf.function(model.encode).get_concrete_function(source_ids))
    state, ids = model.initial_state(model.encode(source_ids), beams=1), tf.ones([1, 1], tf.int32)
    for _ in range(target - 1):
        _, state = model.step(ids, state)
    last_step = tf.function(lambda: model.step(ids, state)).get_concrete_function()
    assert once + target * count_graph_flops(last_step) < again / 20


@pytest.mark.parametrize(("millions", "changes"), [
    (65, {}),
    (36, {"num_encoder_layers": 2, "num_decoder_layers": 2}),
    (50, {"num_encoder_layers": 4, "num_decoder_layers": 4}),
    (80, {"num_encoder_layers": 8, "num_decoder_layers": 8}),
    (28, {"model_dim": 256, "key_dim": 32}),
    (168, {"model_dim": 1024, "key_dim": 128}),
    (53, {"feed_forward_dim": 1024}),
    (90, {"feed_forward_dim": 4096}),
])  # fmt: skip
def test_parameters_of_table_3(millions, changes):
    config = TransformerConfig.base(41_200, **changes)  # a vocabulary that fits its base row
    assert round(count_parameters(config).total / 1e6) == millions
    assert round(count_parameters(TransformerConfig.big(37_000)).total / 1e6) == 214
