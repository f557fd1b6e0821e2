"""Config fields of earlier versions: the new names of some, and those that were removed.

A config file or a flag that sets one is refused with a sentence. The config.json that an earlier
version left in a workdir is translated.
"""

import re

from absl import logging

from pipelines.configs import wmt14_en_de_base
from t2t_keras.errors import InputError
from t2t_keras.models.first_edition import upgrade_fields

RENAMED = {
    "model.encoder_layers": "model.num_encoder_layers",
    "model.decoder_layers": "model.num_decoder_layers",
    "model.heads": "model.num_heads",
    "model.positions": "model.position_embedding",
    "model.residual": "model.norm",
    "model.scoring": "model.attention_score",
    "model.selection": "model.attention_weights",
    "model.inverse_temperature": "model.attention_temperature",
    "model.window": "model.attention_window",
    "model.projections": "model.fused_qkv",
    "decode.extra_length": "decode.max_extra_tokens",
    "neighbours.count": "knn.k",
    "neighbours.temperature": "knn.temperature",
    "neighbours.share": "knn.interpolation",
    "neighbours.entries": "knn.subset_size",
    "train.cooldown_share": "train.decay_fraction",
    "train.clip_norm": "train.global_clipnorm",
    "train.largest_gradient_norm": "train.max_grad_norm",
    "train.average_last": "train.average_checkpoints",
    "train.parts_at_once": "train.parallel_micro_batches",
}
"""{old name: new name}; some model fields have other values, see `models/first_edition.py`."""

REMOVED = (
    "model.source_word_dropout",
    "model.target_word_dropout",
    "model.init_scale",
    "train.r_drop",
    "train.r_drop_from",
    "train.both_directions_until",
)


NEW = ("data.tokens_per_replica", "train.tf32", "train.xla", "train.steps_per_execution")
"""Fields that a workdir of an earlier version lacks; it had the paper's value."""


def check_config(config):
    """Raises InputError if a config has a field of an earlier version."""
    for name in (*RENAMED, *REMOVED):
        part, field = name.split(".")
        if field in config.get(part, {}):
            _refuse(name)


def check_flags(arguments):
    """Raises InputError if a flag of the command line sets a field of an earlier version."""
    for argument in arguments:
        match = re.match(r"--?config\.([\w.]+)", argument)
        if match and (match[1] in RENAMED or match[1] in REMOVED):
            _refuse(match[1])


def translate(config):
    """Gives the config of an earlier version's workdir, a `ConfigDict`, today's fields.

    Raises:
        InputError: if the model has a removed field that had an effect.
    """
    model = config.model.to_dict()
    for field in model:
        del config.model[field]
    config.model.update(upgrade_fields(model))
    for name in (*RENAMED, *REMOVED):
        part, field = name.split(".")
        if field not in config.get(part, {}):
            continue
        value = config[part][field]
        del config[part][field]
        if name in RENAMED:
            part, field = RENAMED[name].split(".")
            config[part][field] = value
        elif value:
            logging.warning(
                "The run had %s = %r, which was removed: it resumes without", name, value
            )
    if "neighbours" in config:
        del config.neighbours
    if isinstance(mixed := config.train.get("mixed_precision"), bool):
        del config.train.mixed_precision
        config.train.mixed_precision = "bfloat16" if mixed else ""
    paper = wmt14_en_de_base.get_config()
    for name in NEW:
        part, field = name.split(".")
        if field not in config[part]:
            config[part][field] = paper[part][field]


def _refuse(name):
    if name in RENAMED:
        raise InputError(f"config.{name} is named config.{RENAMED[name]} now: rename it.")
    raise InputError(f"config.{name} was removed: leave it out.")
