"""The rows of the paper's Table 3 by name: base, A1 … A4, B1, B2, C1 … C7, D1 … D4, E, big.

--config=table3:C2

The rows are in the paper's order; A1 is the first row of (A). Each is the base model of WMT14
English–German with the changes of the table below, and without checkpoint averaging (section 6.2:
"but no checkpoint averaging"), measured on newstest2013, the validation split. In (A), and if
(C) changes d_model, d_k and d_v are d_model / h. Two further rows vary the positions as row (E)
does, as later papers proposed: E-rotary and E-relative.
"""

from pipelines.configs import wmt14_en_de_base
from pipelines.configs.variations import changed

ROWS = {
    "base": {},
    "A1": {"model.num_heads": 1},
    "A2": {"model.num_heads": 4},
    "A3": {"model.num_heads": 16},
    "A4": {"model.num_heads": 32},
    "B1": {"model.key_dim": 16, "model.value_dim": 64},
    "B2": {"model.key_dim": 32, "model.value_dim": 64},
    "C1": {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2},
    "C2": {"model.num_encoder_layers": 4, "model.num_decoder_layers": 4},
    "C3": {"model.num_encoder_layers": 8, "model.num_decoder_layers": 8},
    "C4": {"model.model_dim": 256},
    "C5": {"model.model_dim": 1024},
    "C6": {"model.feed_forward_dim": 1024},
    "C7": {"model.feed_forward_dim": 4096},
    "D1": {"model.dropout": 0.0},
    "D2": {"model.dropout": 0.2},
    "D3": {"train.label_smoothing": 0.0},
    "D4": {"train.label_smoothing": 0.2},
    "E": {"model.position_embedding": "learned"},
    "big": {
        "model.model_dim": 1024,
        "model.feed_forward_dim": 4096,
        "model.num_heads": 16,
        "model.dropout": 0.3,
        "train.steps": 300_000,
    },
}
"""{row: {part.field: value}}, what each row changes."""

FURTHER_ROWS = {
    "E-rotary": {"model.position_embedding": "rotary"},  # Su et al. 2021
    "E-relative": {"model.position_embedding": "relative"},  # Shaw et al. 2018
}
"""Rows that the paper does not have."""

ALL_ROWS = ROWS | FURTHER_ROWS


def get_config(row="base"):
    config = wmt14_en_de_base.get_config()
    config.train.average_checkpoints = 0
    return changed(config, ALL_ROWS, row)
