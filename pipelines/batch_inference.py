"""Batch inference: the output of a model for each line of a file, and a file that can be resumed.

`LinePredictor` runs a trained model or an exported SavedModel over lines; `ResumableOutput` is the
output file of `pipelines.translate`, `CatalogOutput` that of a catalog of messages. They are here
and not in `translate.py`, which defines flags, because the workers of Apache Beam import them
(`apache_beam.py`).
"""

import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import shutil
import uuid
import zlib

import numpy as np
import tensorflow as tf
from absl import logging

from pipelines.directions import check_languages
from pipelines.workdir import Workdir
from t2t_keras.data.files import (
    crc32_of,
    output_path,
    read_json,
    replace,
    require_regular,
    sha256_of,
    write_json,
)
from t2t_keras.data.locks import lock_open_file
from t2t_keras.errors import InputError, TextError
from t2t_keras.serving.loaded_export import LoadedExport
from t2t_keras.serving.signatures import signature_of
from t2t_keras.settings import SamplingSettings
from t2t_keras.tasks.bundles import PREDICTORS
from t2t_keras.tasks.catalogs import Catalog
from t2t_keras.tasks.terms import Terms
from t2t_keras.tasks.text_io import (
    LINES_OF_A_BATCH,
    as_str,
    language_codes,
    map_by_length,
    warn_truncated,
    without_repeats,
)

_BATCHES_PER_WINDOW = 64
_LANGUAGES = {"source_language": None, "target_language": None}


@dataclasses.dataclass(frozen=True)
class LinePredictor:
    """Describes a model and how it answers lines; small enough to be sent to other processes.

    The row of the request says what it gives, see `tasks.requests`; a trained model and an export
    are asked in the same way. A line's samples depend only on the seed and its number, not on other
    lines.
    """

    workdir: str | None  # a trained run; None: saved_model
    saved_model: str | None  # an export
    n_best: int  # results of each line
    scores: bool  # whether each result is preceded by its score
    batch_size: int | None  # lines; None: as `map_by_length` decides
    decoding: dict  # arguments of `Workdir.load_predictor`
    unique: bool = False  # without results that repeat the text of a better one
    errors: str = "strict"  # how invalid UTF-8 is read; see `files.split_lines`
    request: str = "serving_default"  # a kind; for several of the best answers "n_best"
    terms: str = ""  # path of a file of terms, see `Terms.read`; "": none
    sampling: SamplingSettings = dataclasses.field(default_factory=SamplingSettings)
    languages: dict = dataclasses.field(default_factory=dict)  # {"source_language": code, …}

    @property
    def kind(self):
        """The `RequestKind` of the request."""
        rows = (predictor.requests.get(self.request) for predictor in PREDICTORS.values())
        return next(row for row in rows if row)

    @property
    def line_end(self):
        return "" if self.kind.is_long else "\n"  # documents keep their own

    @property
    def window(self):
        """The number of lines that are sorted by length together."""
        return (self.batch_size or LINES_OF_A_BATCH) * _BATCHES_PER_WINDOW

    def check(self):
        """Raises InputError, before anything is loaded, unless there is exactly one model and the
        settings fit together."""
        if bool(self.workdir) == bool(self.saved_model):
            raise InputError("give one of --workdir, --model and --saved_model.")
        kind, given = self.kind, {k: v for k, v in self.decoding.items() if v is not None}
        if kind.is_long and (self.n_best > 1 or self.scores or self.unique):
            raise InputError(
                "--document gives one translation without a score: leave out --n_best, --scores "
                "and --unique."
            )
        if "protected_pattern" in given and not kind.is_long:
            raise InputError(
                f"--protected_pattern={given['protected_pattern']} is for --document: give it too, "
                "or leave --protected_pattern out."
            )
        if "beam_size" in given and kind.is_drawn:
            raise InputError(
                f"--beam_size={given['beam_size']} is for a search, not for --sample: leave one of "
                "them out."
            )
        if self.terms:
            require_regular(self.terms, "terms are")
            Terms.read(self.terms)
        if self.terms and self.saved_model and self.n_best > 1:
            raise InputError("--terms and --n_best together need --workdir: leave one of them out.")
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
                    yield self.lines(row, number)
            except TextError as error:
                raise InputError(f"line {first + error.index} {error.reason}") from error

        return outputs

    def lines(self, row, number):
        """Returns the lines of output for the results (text, score) of a line, number from 1."""
        if self.kind.is_long:
            return [text for text, _ in row]
        row = without_repeats(row) if self.unique else row
        row = row[:1] + [result for result in row[1:] if result[1] > -math.inf]  # those found
        prefix = f"{number}\t" if self.n_best > 1 else ""
        return [
            prefix + (f"{score:.4f}\t" if self.scores else "") + " ".join(text.splitlines())
            for text, score in row[: self.n_best]
        ]

    def fingerprint(self, path):
        """Returns a JSON-able dict on which the output of a file depends; path "": standard input.

        It has checksums of the input, the terms and the files of the model. An input that is not a
        regular file can't be read again to compare it: no two such fingerprints are equal.
        """
        if self.saved_model:
            paths = [self.saved_model]
        else:
            paths = Workdir(self.workdir).predictor_files(self.decoding.get("checkpoint"))
        paths = [os.path.abspath(file) for file in (*paths, self.terms, path) if file]
        return {
            **dataclasses.asdict(self),
            "files": {file: _checksums(file) for file in paths},
            "stream": None if os.path.isfile(path) else uuid.uuid4().hex,
        }

    @property
    def _name(self):
        """The name of the request that gives n_best results of each line."""
        return self.request if self.n_best == 1 or self.kind.is_drawn else "n_best"

    def _of_workdir(self):
        predictor = Workdir(self.workdir).load_predictor(**self.decoding)
        check_languages(predictor, self.languages)
        if self.request not in predictor.requests:
            flag = self.request.partition("_")[0]
            raise InputError(f"--{flag} is not for a {type(predictor).__name__}: leave it out.")
        if self.kind.is_long:
            predictor.check_documents()
        if not self.kind.is_drawn:
            predictor.check_n(self.n_best)
        template, given = getattr(predictor, "languages", None), _LANGUAGES | self.languages

        def answer(**columns):
            codes = language_codes(template, len(columns["text"]), **given)
            languages = dict(zip(_LANGUAGES, codes, strict=False))  # none of a bilingual model
            return predictor.run(self._name, **columns, **languages)

        return self._results(answer, predictor.requests[self._name])

    def _of_saved_model(self):
        for name, value in self.decoding.items():
            value = ",".join(value) if isinstance(value, list) else value  # noqa: PLW2901
            raise InputError(
                f"--{name}={value} is for --workdir: an export searches as it was exported; "
                f"export it again with --{name}, or leave it out."
            )
        export = LoadedExport(self.saved_model, **self.languages)
        name, signatures = self._name, export.signatures
        if name not in signatures:
            raise InputError(
                f"--saved_model={self.saved_model} has no signature {name}: export it again with "
                "it among --signatures."
            )
        outputs = signatures[name].structured_outputs
        kind = signature_of(name, outputs)
        if kind is None:
            raise InputError(
                f"the export has the outputs {', '.join(sorted(outputs))}, which no task of this "
                "library gives: export the model with pipelines.export."
            )
        results = self._results(functools.partial(export.ask, name), kind)
        results([b""], [1])  # refuses what an input without lines would not
        return results

    def _results(self, answer, kind):
        """Returns the function of lines and their numbers to n_best (text, score) for each.

        `answer` is a function of columns of inputs, {name: tensor}, to the outputs of a
        `RequestKind`, which names those with texts and scores.
        """
        n, repeats = self.n_best, self.n_best if kind.is_drawn else 1

        def results(lines, numbers):
            outputs = answer(**self._columns(kind, lines, numbers, repeats))
            if "truncated" in outputs:
                _check_truncated(kind, outputs["truncated"][::repeats])
            texts = tf.reshape(outputs[kind.answer], [len(lines), -1])
            scores = tf.zeros_like(texts, tf.float32)
            if kind.score is not None:
                scores = tf.reshape(outputs[kind.score], [len(lines), -1])
            if texts.shape[1] < n:
                raise InputError(
                    f"--n_best={n} is more than the {texts.shape[1]} that the export has for each "
                    "line: give at most that number."
                )
            if n == 1:  # a classifier gives one label and all probabilities
                scores = tf.reduce_max(scores, axis=1, keepdims=True)
            return [
                [(as_str(text), score) for text, score in zip(*row, strict=False)]
                for row in zip(texts.numpy(), scores.numpy(), strict=True)
            ]

        return results

    def _columns(self, kind, lines, numbers, repeats):
        """Returns the inputs of a request for lines, {name: tensor [lines · repeats]}."""
        columns = {"text": tf.repeat(tf.constant(lines, tf.string), repeats)}
        if self.terms:
            rows = Terms.read(self.terms).rows(np.array(lines, object))
            columns["terms"] = tf.constant(rows, tf.string)
        if kind.is_drawn:
            drawn, shape = self.sampling, [len(lines) * repeats]
            columns["seed"] = tf.constant(_seeds(drawn.seed, numbers, repeats), tf.int32)
            columns["temperature"] = tf.fill(shape, drawn.temperature)
            columns["top_k"] = tf.fill(shape, drawn.top_k or 0)
            columns["top_p"] = tf.fill(shape, drawn.top_p or 1.0)
        return columns


def _check_truncated(kind, truncated):
    """Warns of truncated texts, bool [batch]; raises TextError if they are prompts."""
    if kind.of_prompts and np.any(truncated):
        reason = "has more tokens than the model reads of a prompt: shorten it."
        raise TextError(reason, int(np.argmax(truncated)))
    warn_truncated(truncated)


def _seeds(seed, numbers, n):
    """Returns a seed for each of n samples of each line, a list of int."""
    return [
        int(np.random.SeedSequence([seed % 2**32, number, i]).generate_state(1)[0] >> 1)
        for number in numbers
        for i in range(n)
    ]


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
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [[file.name, sha256_of(file)] for file in files if file.is_file()]


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


class CatalogOutput(ResumableOutput):
    """A `Catalog` whose writing can resume: until it is complete, its file has the translations."""

    def __init__(self, path: str, fingerprint: dict, catalog: Catalog, fuzzy: bool):
        super().__init__(path, fingerprint | {"texts": catalog.texts})
        self._catalog, self._fuzzy = catalog, fuzzy

    def write(self, line, end="\n"):
        super().write(json.dumps(line))  # a translation may have several lines

    def __exit__(self, error, *rest):
        report = None
        if error is None:
            self._file.flush()
            translations = map(json.loads, self._unfinished.read_bytes().splitlines())
            text, report = self._catalog.fill(list(translations), self._fuzzy)
            self._file.truncate(0)
            self._file.write(text.encode())
        super().__exit__(error, *rest)
        if report:
            logging.info("%s: %s", self._path, report)
