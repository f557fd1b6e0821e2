"""Batch inference: the output of a model for each line of a file, and a file that can be resumed.

`LinePredictor` runs a trained model or an exported SavedModel over lines; `ResumableOutput` is the
output file of `pipelines.translate`. Both are here and not in `translate.py`, which defines flags,
because the workers of Apache Beam import them (`apache_beam.py`).
"""

import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import uuid
import zlib

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of an exported tokenizer
from absl import logging

from pipelines.directions import check_languages
from pipelines.modes import Mode
from pipelines.workdir import Workdir
from t2t_keras.data.files import (
    check_checksums,
    crc32_of,
    lock_open_file,
    output_path,
    read_json,
    replace,
    sha256_of,
    tensorflow_path,
    write_json,
)
from t2t_keras.errors import InputError, TextError
from t2t_keras.serving.language_inputs import language_inputs, unknown_languages_refused
from t2t_keras.serving.signatures import signature_of
from t2t_keras.tasks.terms import ask
from t2t_keras.tasks.text_io import LINES_OF_A_BATCH, language_codes, map_by_length

_BATCHES_PER_WINDOW = 64
_LANGUAGES = {"source_language": None, "target_language": None}


@dataclasses.dataclass(frozen=True)
class LinePredictor:
    """Describes a model and its output; small enough to be sent to other processes."""

    workdir: str | None  # a trained run; None: saved_model
    saved_model: str | None  # an export
    n_best: int  # results of each line
    scores: bool  # whether each result is preceded by its score
    batch_size: int | None  # lines; None: as `map_by_length` decides
    decoding: dict  # arguments of `Workdir.load_predictor`
    unique: bool = False  # without results that repeat the text of a better one
    errors: str = "strict"  # how invalid UTF-8 is read; see `files.split_lines`
    mode: Mode = dataclasses.field(default_factory=Mode)
    languages: dict = dataclasses.field(default_factory=dict)  # {"source_language": code, …}

    @property
    def line_end(self):
        return "" if self.mode.kind.is_long else "\n"  # documents keep their own

    @property
    def window(self):
        """The number of lines that are sorted by length together."""
        return (self.batch_size or LINES_OF_A_BATCH) * _BATCHES_PER_WINDOW

    def check(self):
        """Raises InputError, before anything is loaded, unless there is exactly one model and the
        settings fit together."""
        if bool(self.workdir) == bool(self.saved_model):
            raise InputError("give one of --workdir, --model and --saved_model.")
        self.mode.check(self)
        if self.unique and self.n_best == 1:
            raise InputError("--unique is for several results of a line: also give --n_best.")

    def load(self, parallel_batches=1, line_buffered=False):
        """Loads the model, which answers batches, or each line before the next one is read.

        Returns a function of an iterable of lines, bytes, and of the number of the first line
        (from 1). For each line it yields the lines of output, a list of str.
        """
        self.check()
        results = self._of_workdir() if self.workdir else self._of_saved_model()
        batches = (1, 1, 1)
        if not line_buffered:
            batches = (self.batch_size, _BATCHES_PER_WINDOW, parallel_batches)

        def answer(numbered):
            return results(*map(list, zip(*numbered, strict=True)))

        def outputs(lines, first=1):
            numbered = zip(lines, itertools.count(first))
            rows = map_by_length(answer, numbered, *batches, length=lambda pair: len(pair[0]))
            try:
                for number, row in enumerate(rows, start=first):
                    yield self.mode.lines(row, number, self)
            except TextError as error:
                raise InputError(f"line {first + error.index} {error.reason}") from error

        return outputs

    def fingerprint(self, path):
        """Returns a JSON-able dict on which the output of a file depends; path "": standard input.

        It has checksums of the input, the terms and the files of the model. An input that is not a
        regular file can't be read again to compare it: no two such fingerprints are equal.
        """
        if self.saved_model:
            paths = [self.saved_model]
        else:
            paths = Workdir(self.workdir).predictor_files(self.decoding.get("checkpoint"))
        paths = [os.path.abspath(found) for found in (*paths, self.mode.terms, path) if found]
        return {
            **dataclasses.asdict(self),
            "files": {found: _checksums(found) for found in paths},
            "stream": None if os.path.isfile(path) else uuid.uuid4().hex,
        }

    def _of_workdir(self):
        predictor = Workdir(self.workdir).load_predictor(**self.decoding)
        check_languages(predictor, self.languages)
        self.mode.check_predictor(predictor, self.n_best)
        template, given = getattr(predictor, "languages", None), _LANGUAGES | self.languages
        name = self.mode.name(self.n_best)

        def answer(**columns):
            codes = language_codes(template, len(columns["text"]), **given)
            languages = dict(zip(_LANGUAGES, codes, strict=False))  # none of a bilingual model
            return ask(predictor.run, name, **columns, **languages)

        return self.mode.results(answer, predictor.requests[name], self.n_best)

    def _of_saved_model(self):
        for name, value in self.decoding.items():
            value = ",".join(value) if isinstance(value, list) else value  # noqa: PLW2901
            raise InputError(
                f"--{name}={value} is for --workdir: an export searches as it was exported; "
                f"export it again with --{name}, or leave it out."
            )
        check_checksums(self.saved_model)
        try:
            with tensorflow_path(self.saved_model) as path:
                signatures = tf.saved_model.load(path).signatures
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise InputError(
                f"--saved_model={self.saved_model}: {error}: give the numbered folder that "
                "pipelines.export printed."
            ) from error
        name = self.mode.name(self.n_best)
        if name not in signatures:
            raise InputError(
                f"--saved_model={self.saved_model} has no signature {name}: export it again with "
                "it among --signatures."
            )
        signature = signatures[name]
        languages = language_inputs(signature, **_LANGUAGES | self.languages)

        def answer(**columns):
            count = len(columns["text"])
            codes = {name: tf.fill([count], code) for name, code in languages.items()}
            with unknown_languages_refused():
                return ask(signature, **columns, **codes)

        outputs = signature.structured_outputs
        kind = signature_of(name, outputs)
        if kind is None:
            raise InputError(
                f"the export has the outputs {', '.join(sorted(outputs))}, which no task of this "
                "library gives: export the model with pipelines.export."
            )
        results = self.mode.results(answer, kind, self.n_best)
        results([b""], [1])  # refuses what an input without lines would not
        return results


def windows(lines, size):
    """Yields (number from 0, list of `size` lines); the last list may be shorter."""
    lines = iter(lines)
    for number in itertools.count():
        if not (window := list(itertools.islice(lines, size))):
            return
        yield number, window


def _checksums(path):
    """Returns [name, SHA-256] of a file, if it exists, or of each file in a folder."""
    path = pathlib.Path(path)
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[file.name, sha256_of(file)] for file in found if file.is_file()]


class ResumableOutput:
    """A text file whose writing can resume; it is hidden next to its path until it is complete.

    A context manager: the file appears under its name when the block succeeds. After an error or a
    kill, the next run resumes after the last `commit`, if it has an equal fingerprint, JSON-able,
    and discards later output. `done` inputs have results that an earlier run has committed.

    Raises:
        InputError: if another process is writing the file, or has just written it.
    """

    def __init__(self, path, fingerprint):
        path = pathlib.Path(output_path(path))
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._journal = path.with_name(f".{path.name}.unfinished.json")
        self._fingerprint = json.loads(json.dumps(fingerprint))
        self._file = self._unfinished.open("ab")
        lock_open_file(self._file, f"writing {path}")
        if not self._unfinished.exists():
            raise InputError(f"another process has just written {path}: start again to replace it.")
        self.done, size, self._checksum = self._read_journal()
        if self.done:
            logging.info("%s: resuming after %d lines", path, self.done)
        elif self._journal.exists():
            logging.warning(
                "%s: model, flags or input have changed since, or files are damaged: starting over",
                path,
            )
            self._journal.unlink()
        self._file.truncate(size)

    def write(self, line, end="\n"):
        line = f"{line}{end}".encode()
        self._file.write(line)
        self._checksum = zlib.crc32(line, self._checksum)

    def _write_through(self):
        self._file.flush()
        os.fsync(self._file.fileno())

    def commit(self, done):
        """Stores durably the output so far, the results of `done` inputs."""
        self._write_through()
        journal = {"done": done, "size": self._file.tell(), "crc32": self._checksum}
        write_json(self._journal, {"fingerprint": self._fingerprint} | journal)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        with self._file:  # locked until the end
            if error is None:
                self._write_through()
                if self._path.exists():
                    shutil.copymode(self._path, self._unfinished)
                replace(self._unfinished, self._path)
                self._journal.unlink(missing_ok=True)
            elif not self._journal.exists():  # nothing was committed
                self._unfinished.unlink()

    def _read_journal(self):
        """Returns the number of lines that are done, and size and CRC-32 of their output."""
        try:
            kept = read_json(self._journal)
            if kept["fingerprint"] == self._fingerprint:
                size, checksum = kept["size"], kept["crc32"]
                exists = self._unfinished.stat().st_size >= size
                if exists and crc32_of(self._unfinished, size) == checksum:
                    return kept["done"], size, checksum
        except (FileNotFoundError, ValueError, KeyError):
            pass
        return 0, 0, 0
