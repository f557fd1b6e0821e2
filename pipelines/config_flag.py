"""The flag --config: the name or the path of a config, and --config.part.field=value."""

import difflib
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import traceback

import ml_collections
from absl import flags
from ml_collections import config_flags

from pipelines import configs, library
from pipelines.fields import read_config, restored_config
from t2t_keras.errors import InputError

_CONFIGS = pathlib.Path(configs.__file__).parent

flags.disclaim_key_flags()  # --help of a command lists the flag that it defines by this module


class _Config(flags.ArgumentParser):
    """Parses a config's name or path, with or without ":" and an argument, or a config.json."""

    def parse(self, value):
        path, *argument = config_path(value).split(":", 1)
        if path.endswith(".json"):
            config = restored_config(read_config(path))
        else:
            config = _call_get_config(path, argument)
        config.lock()
        _check_names(config, sys.argv[1:])
        return config


def _call_get_config(path, argument):
    """Returns what `get_config` of a Python file returns; InputError names the line that fails."""
    library.complete()  # which the file may import
    loader = importlib.machinery.SourceFileLoader("config", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("config", loader))
    try:
        loader.exec_module(module)
        config = module.get_config(*argument)
    except (InputError, OSError):
        raise
    except Exception as error:
        rows = traceback.extract_tb(error.__traceback__)
        numbers = [1, *(row.lineno for row in rows if row.filename == path)]
        number = error.lineno if isinstance(error, SyntaxError) else numbers[-1]
        raise InputError(f"{path}, line {number}: {error}: fix the config.") from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise InputError(
            f"{path}: get_config() returns a {type(config).__name__}: return a ConfigDict, such as "
            "that of pipelines.configs.wmt14_en_de_base."
        )
    return config


def _check_names(config, arguments):
    """Raises InputError for an argument --config.part.field that names no field of a config."""
    for argument in arguments:
        dashes, is_field, name = argument.partition("=")[0].partition("config.")
        if not is_field or dashes not in ("-", "--"):
            continue
        parts, within = name.split("."), config
        for i, part in enumerate(parts):
            if not isinstance(within, ml_collections.ConfigDict) or part not in within:
                whole = ".".join(["config", *parts[:i]])
                fields = [*within] if isinstance(within, ml_collections.ConfigDict) else []
                advice = difflib.get_close_matches(part, fields, 1) or fields
                raise InputError(
                    f"--config.{name}: {whole} has no field {part!r}: "
                    + (f"give {' or '.join(advice)}." if advice else "leave it out.")
                )
            within = within[part]


def define_config():
    """Defines --config, and --config.part.field=value for every field."""
    holder = config_flags.DEFINE_config_file(
        "config",
        None,
        "Config of the experiment: the name of a packaged config, such as grammar_en_de or "
        "table3:A1, or the path of a file; --config.train.steps=500 overrides a field. "
        "pipelines/configs/README.md explains all fields; python -m pipelines.reference prints it.",
    )
    flags.FLAGS["config"].parser = _Config()
    return holder


def config_path(value):
    """Returns the path of a packaged config's name, or a path unchanged; both may end in ":…"."""
    name, colon, argument = value.partition(":")
    packaged = {path.stem: path for path in _CONFIGS.glob("[!_.]*.py")}
    path = packaged.get(name) or os.path.expanduser(name)
    if not os.path.exists(path) or os.path.isdir(path):  # /dev/stdin and a pipe are files
        raise InputError(
            f"there is no file {path} and no config {name!r}: give the path of a file, or one of "
            f"the names {', '.join(sorted(packaged))}."
        )
    return f"{path}{colon}{argument}"
