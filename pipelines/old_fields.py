"""Config fields of earlier versions: the new names of some, and those that were removed.

A config file or a flag that sets one is refused with a sentence. The config.json that an earlier
version left in a workdir is translated.
"""

import re

from absl import logging

from t2t_keras.errors import InputError

RENAMED = {
    "train.cooldown_share": "train.decay_fraction",
    "train.clip_norm": "train.global_clipnorm",
    "train.largest_gradient_norm": "train.max_grad_norm",
    "train.average_last": "train.average_checkpoints",
    "train.parts_at_once": "train.parallel_micro_batches",
}
"""{old name: new name}."""

REMOVED = ("train.r_drop", "train.r_drop_from", "train.both_directions_until")


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
    """Gives the config of an earlier version's workdir, a `ConfigDict`, today's fields."""
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


def _refuse(name):
    if name in RENAMED:
        raise InputError(f"config.{name} is named config.{RENAMED[name]} now: rename it.")
    raise InputError(f"config.{name} was removed: leave it out.")
