"""Names of earlier versions: config fields, flags and saved models, and what they are today.

A flag, or a field of a config, that was renamed or removed is refused with a sentence that names
the new one. What an earlier version saved (a model, a bundle, a run's config.json) is translated.
"""

import re

from absl import logging

from t2t_keras.errors import InputError

RENAMED_FLAGS = {
    # Version 0.1
    "extra_length": "max_extra_tokens",
    "neighbours": "knn_k",
    "neighbour_temperature": "knn_temperature",
    "neighbour_share": "knn_interpolation",
    # Before version 0.2
    "knn_lambda": "knn_interpolation",
    "batches_at_once": "parallel_batches",
    "beam": "apache_beam",
}
"""{old name: new name}, without the flags of config fields"""

_MODEL = {
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "heads": "num_heads",
    "positions": "position_embedding",
    "residual": "norm",
    "scoring": "attention_score",
    "selection": "attention_weights",
    "inverse_temperature": "attention_temperature",
    "window": "attention_window",
    "projections": "fused_qkv",
}
_CHANGED = {
    "residual": lambda value: value.removesuffix("_norm"),
    "selection": lambda value: {"soft": "softmax"}.get(value, value),
    "inverse_temperature": lambda value: 1.0 / value,
    "projections": lambda value: value == "stacked",
}
"""{old name of a model's field: function (old value) → new value}, where that changed too"""

RENAMED = {f"model.{old}": f"model.{new}" for old, new in _MODEL.items()} | {
    # Version 0.1
    "decode.extra_length": "decode.max_extra_tokens",
    "neighbours.count": "knn.k",
    "neighbours.temperature": "knn.temperature",
    "neighbours.share": "knn.interpolation",
    "neighbours.entries": "knn.subset_size",
    "train.cooldown_share": "train.decay_fraction",
    "train.clip_norm": "train.global_clipnorm",
    "train.largest_gradient_norm": "train.stop_above_grad_norm",
    "train.average_last": "train.average_checkpoints",
    "train.parts_at_once": "train.parallel_micro_batches",
    # Before version 0.2
    "train.max_grad_norm": "train.stop_above_grad_norm",
    "data.class_weight": "data.word_dropout_alpha",
}
"""{old name: new name} of config fields"""

_REMOVED_MODEL = {"source_word_dropout": 0.0, "target_word_dropout": 0.0, "init_scale": 1.0}
"""Removed fields, with the value that changes nothing."""

REMOVED = (
    *(f"model.{name}" for name in _REMOVED_MODEL),
    "train.r_drop",
    "train.r_drop_from",
    "train.both_directions_until",
)


def check_config(config):
    """Raises InputError if a config, {part: {field: value}}, has a field of an earlier version."""
    for name in (*RENAMED, *REMOVED):
        part, field = name.split(".")
        if field in config.get(part, {}):
            _refuse(name)


def check_flags(arguments):
    """Raises InputError if an argument of a command line is a flag of an earlier version."""
    for argument in arguments:
        if not (match := re.match(r"--?(?:config\.([\w.]+)|(\w+))", argument)):
            continue
        field, flag = match.groups()
        if field in RENAMED or field in REMOVED:
            _refuse(field)
        if flag in RENAMED_FLAGS:
            raise InputError(f"--{flag} is now --{RENAMED_FLAGS[flag]}.")


def _refuse(name):
    if name in RENAMED:
        raise InputError(f"config.{name} is named config.{RENAMED[name]} now: rename it.")
    raise InputError(f"config.{name} was removed: leave it out.")


def upgrade_model(fields):
    """Returns the fields of a `TransformerConfig` under today's names.

    Args:
        fields: dict of fields, as any version saved them; today's are returned unchanged.

    Raises:
        InputError: if a removed field had an effect.
    """
    upgraded = {}
    for name, value in fields.items():
        if name not in _REMOVED_MODEL:
            upgraded[_MODEL.get(name, name)] = _CHANGED.get(name, lambda value: value)(value)
        elif value != _REMOVED_MODEL[name]:
            raise InputError(
                f"model.{name} is {value}, and was removed after version 0.1: train and export "
                f"such a model with that version, or set it to {_REMOVED_MODEL[name]}."
            )
    return upgraded


def upgrade_config(config):
    """Returns a run's config under today's names.

    Args:
        config: {part: {field: value}} as any version saved it; today's is returned unchanged.

    Raises:
        InputError: if the model has a removed field that had an effect.
    """
    upgraded = {}
    for part, fields in config.items():
        if not isinstance(fields, dict):
            upgraded[part] = fields
            continue
        if part != "neighbours":
            upgraded.setdefault(part, {})
        for field, value in (upgrade_model(fields) if part == "model" else fields).items():
            name = f"{part}.{field}"
            if name not in REMOVED:
                new_part, new_field = RENAMED.get(name, name).split(".")
                upgraded.setdefault(new_part, {})[new_field] = value
            elif value:
                logging.warning(
                    "The run had %s = %r, which was removed: it resumes without", name, value
                )
    mixed = upgraded.get("train", {}).get("mixed_precision")
    if isinstance(mixed, bool):
        upgraded["train"]["mixed_precision"] = "bfloat16" if mixed else ""
    return upgraded
