"""How every binary starts and ends: flags in, errors in one readable line, an honest exit code."""

import importlib
import sys
from typing import NamedTuple

import tensorflow as tf
from absl import app, flags, logging
from ml_collections import config_flags

from pipelines import old_fields
from t2t_keras.errors import InputError
from t2t_keras.training.callbacks import PREEMPTED
from t2t_keras.training.distribution import worker_count

# What the other workers see when one of several is gone; other errors are their own.
_LOST_WORKER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)

_RENAMED_FLAGS = {
    "neighbours": "knn_k",
    "neighbour_temperature": "knn_temperature",
    "neighbour_share": "knn_lambda",
}
"""{name in the first edition: name}"""


def define_config():
    """Defines --config, any field of which --config.part.field=value overrides."""
    return config_flags.DEFINE_config_file(
        "config",
        None,
        "Config file of the experiment, for example pipelines/configs/grammar_en_de.py; "
        "--config.train.steps=500 overrides a field.",
        lock_config=True,
    )


class Decoding(NamedTuple):
    """The flags that choose weights and search; `values` are arguments of `load_predictor`."""

    checkpoint: flags.FlagHolder
    beam_size: flags.FlagHolder
    length_penalty: flags.FlagHolder
    max_source_length: flags.FlagHolder
    max_extra_tokens: flags.FlagHolder
    constrained: flags.FlagHolder
    knn_k: flags.FlagHolder
    knn_temperature: flags.FlagHolder
    knn_lambda: flags.FlagHolder

    def values(self):
        """Returns {name: value}; None where the config decides."""
        return {name: holder.value for name, holder in self._asdict().items()}


def define_decoding():
    """Defines --checkpoint, the flags of the search, and those of kNN-MT."""
    return Decoding(
        flags.DEFINE_string("checkpoint", None, "Weights to use instead of the newest."),
        flags.DEFINE_integer("beam_size", None, "Beam size instead of the config's."),
        flags.DEFINE_float("length_penalty", None, "α instead of the config's."),
        flags.DEFINE_integer(
            "max_source_length", None, "Tokens of a source, its end included; the rest is cut off."
        ),
        flags.DEFINE_integer(
            "max_extra_tokens", None, "Tokens by which a translation may exceed its source."
        ),
        flags.DEFINE_bool(
            "constrained", None, "For parsing; false: anything may come, what is no tree is empty."
        ),
        flags.DEFINE_integer(
            "knn_k",
            None,
            "kNN-MT: nearest neighbours out of the training text that predict each token, instead "
            "of the config's; 0: the model alone.",
        ),
        flags.DEFINE_float(
            "knn_temperature", None, "kNN-MT: lower values favour the nearest neighbours."
        ),
        flags.DEFINE_float(
            "knn_lambda", None, "kNN-MT: weight λ of the neighbours' predictions, 0 to below 1."
        ),
    )


def require(*names):
    """Makes the flags of these names required."""
    flags.mark_flags_as_required(names)


def define_workdir():
    """Defines --workdir; several modules of a process may."""
    return flags.DEFINE_string(
        "workdir",
        None,
        "Folder of the run: config, vocabulary, tokens, checkpoints, logs.",
        allow_override=True,
    )


def define_batches_at_once():
    """Defines --batches_at_once, for `cores.share_between_batches`."""
    return flags.DEFINE_integer(
        "batches_at_once",
        None,
        "Batches of lines that are worked on side by side, each with its share of the cores; by "
        "default one for each core, at most 8, and one alone with a GPU.",
        lower_bound=1,
    )


def define_beam():
    """Defines --beam."""
    return flags.DEFINE_string(
        "beam",
        None,
        "Do the work by an Apache Beam pipeline with these options, for example "
        "'--runner=FlinkRunner --flink_master=host:8081'; empty: within this process.",
    )


def beam_routes():
    """Returns the module `beam_routes`, which needs a package that few have.

    Raises:
        InputError: if Apache Beam is not installed.
    """
    try:
        return importlib.import_module("pipelines.beam_routes")
    except ModuleNotFoundError as error:
        raise InputError(
            f"--beam needs Apache Beam ({error}): pip install 't2t_keras[beam]'."
        ) from error


def run(main):
    """Runs `main()` under absl; a user's mistake is printed as one line and ends with code 1."""

    def guarded(arguments):
        if arguments[1:]:
            _fail(f"unexpected argument {arguments[1]!r}: flags look like --name=value.")
        try:
            main()
        except (InputError, OSError) as error:
            _fail(error)
        except _LOST_WORKER as error:
            if worker_count() == 1:
                raise
            reason = str(error).splitlines()[0]
            _fail(
                f"training with {worker_count()} workers broke off ({reason}): start all of them "
                "again with the same command, and they resume from the last checkpoint.",
                code=PREEMPTED,
            )

    logging.set_verbosity(logging.INFO)
    try:
        app.run(guarded, flags_parser=_parse)
    except KeyboardInterrupt:
        _fail("interrupted.")


def _parse(arguments):
    for argument in arguments[1:]:
        name = argument.lstrip("-").partition("=")[0]
        if argument.startswith("-") and name in _RENAMED_FLAGS:
            _fail(f"--{name} is now --{_RENAMED_FLAGS[name]}.")
    try:
        old_fields.check_flags(arguments)
        return flags.FLAGS(arguments)
    except InputError as error:
        _fail(error)
    except flags.Error as error:
        # A config file that fails to load brings its whole traceback: the last line is the reason.
        _fail(f"{str(error).strip().splitlines()[-1]} (--help lists all flags)")
    except (AttributeError, KeyError, TypeError) as error:
        _fail(f"in --config: {error}")


def _fail(message, code=1):
    print("error:", *str(message).split(), file=sys.stderr)
    sys.exit(code)
