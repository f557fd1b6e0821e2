"""Configs that no model could have."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_heads", 7, "num_heads is 7, which does not divide model_dim 512"),
        ("model_dim", 0, "model_dim is 0"),
        ("num_encoder_layers", 1.5, "num_encoder_layers is 1.5"),
        ("dropout", 1.0, "dropout is 1.0"),
        ("attention_dropout", -0.1, "attention_dropout is -0.1"),
        ("target_word_dropout", 1.0, "target_word_dropout is 1.0"),
        ("init_scale", 0.0, "init_scale is 0.0"),
        ("positions", "none", "positions is 'none': give one of sinusoidal, learned"),
        ("residual", "rezero", "residual is 'rezero': give one of post_norm, pre_norm"),
        ("norm_epsilon", 0, "norm_epsilon is 0"),
        ("scoring", "cosine", "scoring is 'cosine': give one of scaled_dot_product, dot_product"),
        ("selection", "top_2", "selection is 'top_2': give one of soft, hard"),
        ("inverse_temperature", 0, "inverse_temperature is 0"),
        ("window", 0, "window is 0"),
        ("projections", "joint", "projections is 'joint': give one of stacked, separate"),
        ("feed_forward", "gated", "feed_forward is 'gated': give one of dense, convolution"),
    ],
)
def test_a_bad_config_is_refused_by_name(field, value, message):
    with pytest.raises(InputError, match=message):
        TransformerConfig.base(100, **{field: value})
