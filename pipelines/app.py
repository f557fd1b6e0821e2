"""Shared code of the binaries: flags, errors in one line, exit codes, lines of text.

Start with `run`, which every binary calls with its `main`.
"""

import collections
import contextlib
import dataclasses
import errno
import functools
import io
import os
import re
import signal
import sys

from absl import app, flags, logging

from pipelines import help, library
from pipelines.fields import ALWAYS, FIELDS
from t2t_keras.data import files
from t2t_keras.errors import InputError
from t2t_keras.settings import (
    COUNT,
    ENSEMBLE_MEANS,
    Choice,
    Range,
    Setting,
    Switch,
    Text,
)
from t2t_keras.tasks.document_lines import join_lines

_ADVICE = dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), ": make room on the disk and start again."
) | dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), ": give a folder that you may write to."
)
"""{errno: what to do}"""

flags.disclaim_key_flags()  # --help of a command lists the flags that it defines by this module


def given(holders):
    """Returns {name: value} for the given flags, out of {name: `FlagHolder`}."""
    return {name: holder.value for name, holder in holders.items() if holder.value is not None}


def define_decoding(without=(), ensembles=True):
    """Defines --checkpoint, and flags of all settings of searches and of kNN-MT.

    They are all fields of config.decode and config.knn except `without`, and `max_source_length`.
    Returns {name: `FlagHolder`}; the names are arguments of `load_predictor`.
    """
    fields = {name: x for parts in FIELDS.values() for name, x in parts["decode"].items()}
    fields |= {f"knn_{name}": field for name, field in FIELDS["translation"]["knn"].items()}
    fields["max_source_length"] = Setting(
        None,
        COUNT,
        "Maximum number of source tokens, the end token counted; longer sources are truncated, "
        "with a warning; learned positions may lower it.",
    )
    models = {"checkpoint": define_checkpoint(ensembles)}
    if ensembles:
        text = "Values of the models that an ensemble averages; default: probabilities."
        mean = flags.DEFINE_enum("ensemble_mean", None, ENSEMBLE_MEANS, text)
        models["ensemble_mean"] = mean
    return models | {
        name: define_setting(name, field._replace(default=None), "; default: the config's")
        for name, field in fields.items()
        if name not in without
    }


class _Path(flags.ArgumentParser):
    """Parses the path of a file, "input" or "output", or of a "folder"."""

    def __init__(self, kind):
        self.kind = kind

    def parse(self, argument):
        path = files.local_path(argument)
        is_folder = os.path.isdir(path)
        if self.kind == "folder" and os.path.exists(path) and not is_folder:
            raise InputError("it is a file: give a folder")
        if self.kind != "folder" and is_folder:
            raise InputError("it is a folder: give a file")
        if self.kind == "input" and not os.path.exists(path):
            raise InputError("there is no such file")
        if self.kind == "output":
            _check_output(path)
        return path


def _check_output(path):
    if path.endswith(".gz"):
        raise InputError("the output is plain text; leave .gz out")
    target = files.output_path(path)
    folder = os.path.dirname(target)
    if files.is_stream(target):
        if not os.access(target, os.W_OK):
            raise InputError("it can't be written to: give another file")
    elif not os.path.isdir(folder):
        raise InputError(f"there is no folder {folder}; make it first")
    elif not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} can't be written to")


class _Paths(flags.ListParser):
    def parse(self, argument):
        return [files.local_path(path) for path in super().parse(argument) or [""]]


def define_path(name, text, kind="input", several=False, **options):
    """Defines the flag of a path without a default, see `files.local_path`.

    `kind` is "input", a file that exists; "output", a file that may be made; or "folder". A flag
    that may be given `several` times has a list as value.
    """
    if several:
        return flags.DEFINE_multi(
            _Path(kind), flags.ArgumentSerializer(), name, None, text, **options
        )
    return flags.DEFINE(_Path(kind), name, None, text, **options)


def define_checkpoint(several=False):
    """Defines --checkpoint, a list if it takes `several`, which form an ensemble."""
    text = (
        "Checkpoint whose weights to use, such as runs/grammar/checkpoints/step_00003000; default: "
        "the newest; if a step has several, the moving average (ema_), else the average of "
        "checkpoints (average_), else the step itself (step_). "
    )
    if several:
        text += (
            "Several, separated by commas, form an ensemble; a folder of another run with the "
            "same vocabulary means its newest weights."
        )
    return flags.DEFINE(_Paths() if several else _Path("folder"), "checkpoint", None, text)


class _Number(flags.ArgumentParser):
    def __init__(self, allowed):
        self._allowed = allowed

    def parse(self, argument):
        try:
            return self._allowed.check("", (int if self._allowed.whole else float)(argument))
        except ValueError as error:
            raise ValueError(f"give {self._allowed}") from error


def define_setting(name, setting, more="", **options):
    """Defines the flag of a `Setting`, whose help is its text; `more` ends the last sentence."""
    allowed, text = setting.allowed, f"{setting.text[:-1]}{more}"
    if isinstance(allowed, Range):
        allowed = dataclasses.replace(allowed, optional=False)  # None: not given
        text = f"{text}; allowed: {allowed}."
        return flags.DEFINE(_Number(allowed), name, setting.default, text, **options)
    if isinstance(allowed, Choice):
        return flags.DEFINE_enum(name, setting.default, allowed.names, f"{text}.", **options)
    define_flag = flags.DEFINE_bool if isinstance(allowed, Switch) else flags.DEFINE_string
    return define_flag(name, setting.default, f"{text}.", **options)


_SHARED = {
    "accept_corpus_changes": Setting(
        False,
        Switch(),
        "Keep the workdir's vocabulary and tokens if the text of the corpus has changed, which is "
        "an error otherwise. The corpus may be moved without this flag.",
    ),
    "apache_beam": Setting(
        None,
        Text(),
        "Run as an Apache Beam pipeline with these options, for example '--runner=FlinkRunner "
        "--flink_master=host:8081'; empty: Beam's local runner; default: no Beam, only this "
        "process.",
    ),
    "batch_size": Setting(
        None, COUNT, "Lines of a batch; default: 64, on GPUs as many as have 32,768 characters."
    ),
    "errors": Setting(
        "strict",
        Choice(("strict", "replace")),
        "For text that is not UTF-8: strict stops with an error, replace reads invalid bytes as "
        "U+FFFD.",
    ),
    "parallel_batches": Setting(
        None,
        Range(1, 2**31 - 1, whole=True),
        "Batches of lines that are computed in parallel, each with an equal part of the cores; "
        "default: one per core, at most 8, and a single one with a GPU.",
    ),
    "source_language": Setting(
        None, Text(), "Code of the texts' language, which some models of many languages read."
    ),
    "target_language": Setting(
        None, Text(), "Code of the language to translate into; models of many languages need it."
    ),
}
"""Flags of several commands."""


def define(name, more=""):
    """Defines a flag of `_SHARED`, whose help `more` ends. Several modules may define it."""
    return define_setting(name, _SHARED[name], more, allow_override=True)


def define_languages(default="none"):
    """Defines --source_language and --target_language; returns {name: `FlagHolder`}."""
    more = f"; default: {default}"
    return {name: define(name, more) for name in ("source_language", "target_language")}


def define_data_fields():
    """Defines --config.data.FIELD for the fields that say where a run's corpus is.

    Returns a function that sets the given fields in a config.
    """
    default = "Default: the run's value."
    holders = {
        name: flags.DEFINE_string(f"config.data.{name}", None, f"{field.text} {default}")
        for name, field in FIELDS["translation"]["data"].items()
        if field.may_change == ALWAYS
    }

    def override(config):
        for field, value in given(holders).items():
            if field not in config.data:
                raise InputError(
                    f"--config.data.{field}: a run of this task has no such field: leave it out."
                )
            config.data[field] = value

    return override


def language_pair(holders):
    """Returns both codes of `define_languages`, or None; raises InputError if only one is given."""
    codes = tuple(given(holders).values())
    if len(codes) == 1:
        raise InputError("give both --source_language and --target_language, or neither.")
    return codes or None


def require(*names):
    """Makes the flags of these names required and lists them in --help, which says so."""
    take(*names)
    for name in names:
        flags.FLAGS[name].help = f"{help.REQUIRED}{flags.FLAGS[name].help}"


def take(*names):
    """Lists flags that other modules define in the --help of the calling command."""
    for name in names:
        flags.declare_key_flag(name)


def define_workdir(text="Folder of the run: config, vocabulary, tokens, checkpoints, logs."):
    """Defines --workdir. Several modules of one process may call this."""
    return define_path("workdir", text, "folder", allow_override=True)


def define_model(others):
    """Defines --model, in place of which `others` may be given; several modules may call this."""
    return flags.DEFINE_string(
        "model",
        None,
        "Name of a pretrained MarianMT (OPUS-MT), M2M-100, NLLB-200 or SMaLL-100 model on Hugging "
        "Face's hub, such as Helsinki-NLP/opus-mt-en-de, which is downloaded once (extra "
        f"`pretrained`). Give this or {others}; no default.",
        allow_override=True,
    )


def run(main, gpu=True, headings=None):
    """Runs `main()` under absl; an InputError is printed as one line, with exit code 1.

    With `gpu=False`, for a binary that does not compute on GPUs, it uses none. `headings` are those
    of `help.text`.
    """

    def guarded(arguments):
        if arguments[1:]:
            _fail(f"unexpected argument {arguments[1]!r}: flags look like --name=value.")
        library.complete()
        from pipelines import devices

        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # until here
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            devices.choose_devices(gpu)
            main()
        except InputError as error:
            _fail(error)
        except BrokenPipeError:
            raise
        except OSError as error:
            _fail(f"{error}{_ADVICE.get(error.errno, '')}")
        except devices.LOST_WORKER as error:
            _fail(*devices.lost_worker(error))

    if library.deferred:
        _prepare_process()
    logging.set_verbosity(logging.INFO)
    if isinstance(sys.stdout, io.TextIOWrapper):  # whatever the locale, and names of any bytes
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        app.run(guarded, flags_parser=functools.partial(_parse, headings=headings))
    except KeyboardInterrupt:
        _fail("interrupted.")
    except BrokenPipeError:  # whoever reads the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_process():
    """Prepares the process of a command, before its imports take seconds.

    File names and arguments are read as UTF-8 in any locale, no file gets the descriptor of a
    closed standard stream, and Ctrl-C ends the process without a traceback.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONUTF8": "1"})
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  None where it is closed
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _parse(arguments, headings=None):
    if help.ASKING & set(arguments[1:]):
        print(help.text(headings), flush=True)
        sys.exit()
    try:
        others = ("--config.data.tfds=", "--config.data.corpora=")
        named = any(argument.startswith(others) for argument in arguments)
        if "--config.data.folder=" in arguments and not named:
            raise InputError("--config.data.folder is empty: give the folder, or leave it out.")
        _refuse_repeated(arguments[1:])
        rest = flags.FLAGS(arguments)
        for name in flags.FLAGS:
            flag = flags.FLAGS[name]
            if flag.value is None and (flag.help or "").startswith(help.REQUIRED):
                text = flag.help.removeprefix(help.REQUIRED)
                raise flags.ValidationError(f"--{name} is missing: {text}")
        _require_other_files()
        return rest
    except (InputError, OSError) as error:
        _fail(error)
    except flags.Error as error:
        if match := re.match(r"flag --config\.(\w+)\.(\w+)=(.*?): ", str(error)):
            part, name, value = match.groups()
            allowed = (f[part][name].allowed for f in FIELDS.values() if name in f[part])
            _fail(f"--config.{part}.{name}={value}: give {next(allowed, 'its type')}.")
        _fail(f"{str(error).removeprefix('flag ')} (--help lists all flags)")
    except (AttributeError, KeyError, TypeError) as error:
        reason = error
        while isinstance(reason, Exception) and reason.args:  # str of a KeyError is a repr
            reason = reason.args[0]
        _fail(f"in --config: {reason}")


_PLACES = {f"config.data.{name}" for name in ("folder", "tfds", "corpora", "parsed_trees")}


def _refuse_repeated(arguments):
    """Raises InputError for a flag that is given twice, since the last value alone would count.

    A later --config.part.field overrides an earlier one, except for the places of a corpus, and
    the command line overrides a --flagfile.
    """
    given = [x.lstrip("-").partition("=")[0] for x in arguments if x.startswith("-")]
    names = [name if name in flags.FLAGS else name.removeprefix("no") for name in given]
    for name in {name for name in names if names.count(name) > 1}:
        more = ""
        if name in flags.FLAGS:
            flag = flags.FLAGS[name]
            if isinstance(flag, flags.MultiFlag):
                continue
            more = ", with commas between values" * isinstance(flag.parser, flags.ListParser)
        elif name not in _PLACES:
            continue
        raise InputError(f"--{name} is given twice: give it once{more}.")


def _require_other_files():
    """Raises InputError if --output is the file of another flag, which it would replace."""
    paths = [
        (name, flag.parser.kind, path)
        for name in flags.FLAGS
        if isinstance((flag := flags.FLAGS[name]).parser, _Path) and flag.value
        for path in (flag.value if isinstance(flag.value, list) else [flag.value])
    ]
    for name, kind, path in paths:
        if kind != "output" or not os.path.isfile(path):
            continue
        for other, kind_of_other, read in paths:
            if kind_of_other == "input" and os.path.samefile(path, read):
                raise InputError(
                    f"--{name}={path} is the file of --{other}, which it would replace: give "
                    "another file."
                )


def _fail(message, code=1):
    print("error:", *str(message).split(), file=sys.stderr)
    sys.exit(code)


# Lines of text ------------------------------------------------------------------------------------


def read_lines(path, errors="strict", keep_ends=False, look_ahead=True):
    """Yields the lines of a file, plain or gzipped, or of standard input if path is empty.

    See `files.read_lines`. Lines with their ends, those of documents, are joined by `join_lines`,
    which reads further lines behind the beginning of a span; without look_ahead they are not.
    """
    if path:
        lines = files.read_lines(path, errors, keep_ends)
    else:
        lines = files.read_stream(sys.stdin.buffer, "standard input", errors, keep_ends)
    return join_lines(lines) if keep_ends and look_ahead else lines


def check_input(path, errors="strict", keep_ends=False):
    """Raises InputError, before any work is done, if a file can't be read to its end as text.

    The content of standard input and pipes, which can be read only once, is not checked.
    """
    if not path and sys.stdin is None:
        raise InputError("standard input is closed: give a file as --input.")
    if path and os.path.isfile(path):
        collections.deque(read_lines(path, errors, keep_ends), maxlen=0)


def check_output(path):
    """Raises InputError, before any work is done, if there is neither --output nor a stdout."""
    if not path and sys.stdout is None:
        raise InputError("standard output is closed: give a file as --output.")


@contextlib.contextmanager
def line_writer(path):
    """Yields a function that writes one line, to a file or to standard output if path is empty.

    Its second argument is the line's end, by default a line feed. The text is UTF-8, whatever the
    encoding of standard output. A file appears under its name when the block succeeds; to a stream
    (see `files.is_stream`) each line is written immediately.
    """
    path = files.output_path(path or "/dev/stdout")
    at_once = files.is_stream(path)

    def write(line, end="\n"):
        file.write(f"{line}{end}".encode())
        if at_once:
            file.flush()

    with files.open_output(path) as file:
        yield write
