"""Models and configs saved by the first edition (version 0.1): the names of their fields today."""

from t2t_keras.errors import InputError

_RENAMED = {
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "heads": "num_heads",
    "positions": "position_embedding",
    "scoring": "attention_score",
    "window": "attention_window",
}
_CHANGED = {
    "residual": lambda value: {"norm": value.removesuffix("_norm")},
    "selection": lambda value: {"attention_weights": {"soft": "softmax"}.get(value, value)},
    "inverse_temperature": lambda value: {"attention_temperature": 1.0 / value},
    "projections": lambda value: {"fused_qkv": value == "stacked"},
}
_REMOVED = {"source_word_dropout": 0.0, "target_word_dropout": 0.0, "init_scale": 1.0}
"""Removed fields, with the value that changes nothing."""


def upgrade_fields(fields):
    """Returns the fields of a `TransformerConfig` under today's names.

    Args:
        fields: dict of fields, as any edition saved them; today's are returned unchanged.

    Raises:
        InputError: if a removed field had an effect.
    """
    upgraded = {}
    for name, value in fields.items():
        if name in _REMOVED:
            if value != _REMOVED[name]:
                raise InputError(
                    f"model.{name} is {value}, and was removed after version 0.1: train and export "
                    f"such a model with that version, or set it to {_REMOVED[name]}."
                )
        elif name in _CHANGED:
            upgraded |= _CHANGED[name](value)
        else:
            upgraded[_RENAMED.get(name, name)] = value
    return upgraded
