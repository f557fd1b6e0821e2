"""The paper's variations, each by its name, on the built-in corpus.

--config=variations:additive

Each is the built-in corpus's config with the paper's dropout and the changes of the table below.
The rows of Table 3 are in `table3.py`.
"""

from pipelines.configs import grammar_en_de
from t2t_keras.errors import InputError

VARIATIONS = {
    "plain": {},
    # The score of a query and a key (section 3.2.1).
    "dot_product": {"model.attention_score": "dot_product"},
    "additive": {"model.attention_score": "additive"},
    # From scores to attention weights.
    "sharp": {"model.attention_temperature": 0.25},
    "hard": {"model.attention_weights": "hard"},
    # How many heads, and how wide (section 3.2.2; Table 3, A and B).
    "one_head": {"model.num_heads": 1},
    "narrow_heads": {"model.num_heads": 6, "model.key_dim": 24, "model.value_dim": 40},
    "separate_projections": {"model.fused_qkv": False},
    # Restricted self-attention (section 4).
    "local": {"model.attention_window": 7},
    # Feed-forward networks as convolutions (section 3.3).
    "convolution": {"model.feed_forward": "convolution"},
    # Positions (section 3.5; Table 3, E).
    "learned_positions": {"model.position_embedding": "learned"},
    "rotary_positions": {"model.position_embedding": "rotary"},
    "relative_positions": {"model.position_embedding": "relative"},
    # Placement of the layer norm (section 3.1).
    "pre_norm": {"model.norm": "pre"},
    # Regularization off (section 5.4; Table 3, D).
    "no_dropout": {"model.dropout": 0.0},
    "no_smoothing": {"train.label_smoothing": 0.0},
}
"""{name: {part.field: value}}, what each variation changes."""


def get_config(name="plain"):
    config = grammar_en_de.get_config()
    config.model.dropout = 0.1
    return changed(config, VARIATIONS, name)


def changed(config, table, name):
    """Returns the config with the changes `table[name]`; InputError if there is no such name."""
    if name not in table:
        raise InputError(f"the config has no variation {name!r}: give one of {', '.join(table)}.")
    config.update_from_flattened_dict(table[name])
    return config
