"""Configs that are refused, and what a config fills in."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig


@pytest.mark.parametrize(("field", "value", "message"), [
    ("num_heads", 7, "num_heads is 7, which does not divide model_dim 512"),
    ("model_dim", 0, "model_dim is 0"),
    ("num_encoder_layers", 1.5, "num_encoder_layers is 1.5"),
    ("dropout", 1.0, "dropout is 1.0"),
    ("norm", "rezero", "norm is 'rezero': give one of post, pre"),
    ("norm_epsilon", 0, "norm_epsilon is 0"),
    ("attention_temperature", "warm", "attention_temperature is 'warm': give a number above 0"),
    ("dropout", None, "dropout is None: give a number of at least 0 and less than 1"),
    ("attention_window", 0, "attention_window is 0"),
])  # fmt: skip
def test_a_bad_config_is_refused_by_name(field, value, message):
    with pytest.raises(InputError, match=message):
        TransformerConfig.base(100, **{field: value})


def test_heads_get_the_width_of_the_model_over_their_number_unless_told():
    config = TransformerConfig(100, model_dim=24, num_heads=4)
    assert (config.key_dim, config.value_dim) == (6, 6)
    config = TransformerConfig(100, model_dim=24, num_heads=4, key_dim=5)
    assert (config.key_dim, config.value_dim) == (5, 5)
    config = TransformerConfig(100, model_dim=24, num_heads=7, key_dim=5, value_dim=3)
    assert (config.key_dim, config.value_dim) == (5, 3)
