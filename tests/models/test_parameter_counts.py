"""Weights counted matrix by matrix, and Table 3's column of parameters."""

import pytest

from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer

VOCABULARY_OF_TABLE_3 = 41_200


def matrices(c):
    """Elements of the paper's matrices: W^Q, W^K, W^V, W^O, W_1, W_2 and the shared embedding."""
    attention = c.num_heads * (2 * c.model_dim * c.key_dim + 2 * c.model_dim * c.value_dim)
    feed_forward = 2 * c.model_dim * c.feed_forward_dim
    encoder = c.num_encoder_layers * (attention + feed_forward)
    decoder = c.num_decoder_layers * (2 * attention + feed_forward)
    return c.vocab_size * c.model_dim + encoder + decoder


def vectors(c):
    """Elements of b_1, b_2 and of the gain and bias of each layer norm."""
    biases = (c.num_encoder_layers + c.num_decoder_layers) * (c.feed_forward_dim + c.model_dim)
    norms = (2 * c.num_encoder_layers + 3 * c.num_decoder_layers) * 2 * c.model_dim
    return biases + norms


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig.tiny(10_000),
        TransformerConfig.tiny(500, key_dim=7, value_dim=5, num_decoder_layers=2),
        TransformerConfig.base(300),
    ],
)
def test_a_model_has_exactly_these_weights(config):
    assert Transformer(config).count_params() == matrices(config) + vectors(config)


def test_learned_positions_add_two_tables_and_pre_norm_two_norms():
    config = TransformerConfig.tiny(500, position_embedding="learned", max_positions=50)
    assert Transformer(config).count_params() == matrices(config) + vectors(config) + 2 * 50 * 128
    config = TransformerConfig.tiny(500, norm="pre")
    assert Transformer(config).count_params() == matrices(config) + vectors(config) + 2 * 2 * 128


def test_base_has_63_and_big_214_million_weights_at_37_000_ids():
    assert round(matrices(TransformerConfig.base(37_000)) / 1e6) == 63
    assert round(matrices(TransformerConfig.big(37_000)) / 1e6) == 214


@pytest.mark.parametrize(
    ("millions", "changes"),
    [
        (65, {}),
        (36, {"num_encoder_layers": 2, "num_decoder_layers": 2}),
        (50, {"num_encoder_layers": 4, "num_decoder_layers": 4}),
        (80, {"num_encoder_layers": 8, "num_decoder_layers": 8}),
        (28, {"model_dim": 256, "key_dim": 32}),
        (168, {"model_dim": 1024, "key_dim": 128}),
        (53, {"feed_forward_dim": 1024}),
        (90, {"feed_forward_dim": 4096}),
    ],
)
def test_table_3_base_and_c_rows(millions, changes):
    config = TransformerConfig.base(VOCABULARY_OF_TABLE_3, **changes)
    assert round(matrices(config) / 1e6) == millions
