"""Preparation and translation by the workers of an Apache Beam runner. Needs the extra `beam`.

Workers are other processes, usually on other machines. They get paths and plain values, and read
and write files of a shared file system.
"""

import contextlib
import functools
import json
import os
import pathlib
import shlex
import shutil

import ml_collections
from absl import logging

from pipelines import experiment
from pipelines.app import read_lines
from pipelines.batch_inference import windows
from pipelines.devices import choose_devices
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.data.files import make_folder, open_output, output_path, write_file
from t2t_keras.data.locks import lock
from t2t_keras.errors import InputError

try:
    import apache_beam as beam

    from t2t_keras.data.apache_beam_shards import pipeline_options, write_shards_with_beam
except ModuleNotFoundError as error:
    raise InputError(
        f"--apache_beam needs Apache Beam ({error}): pip install 't2t_keras[beam]'."
    ) from error


def split_writer(options):
    """Returns the argument `write` of `experiment.prepare`; the options are Beam's, as one str."""

    def write(task, workdir, split):
        where = os.getcwd(), task.config.to_json(), os.path.abspath(workdir.path), split
        write_shards_with_beam(
            functools.partial(_of_split, experiment.split_examples, *where),
            functools.partial(_of_split, experiment.split_encoder, *where),
            workdir.tokens,
            split,
            options=shlex.split(options),
        )

    return write


def write_outputs(predictor, source, output, options):
    """Writes the same file as `pipelines.translate`; workers compute its windows of lines.

    Finished windows are files in a hidden folder next to the output; after a kill the same call
    computes only the missing ones. Source and output are regular files.
    """
    predictor.check()
    source, output = pathlib.Path(source).absolute(), pathlib.Path(output_path(output))
    parts = output.with_name(f".{output.name}.parts")
    locked = output.with_name(f".{output.name}.lock")
    make_folder(output.parent)
    with lock(locked, f"writing {output}"):
        if not locked.exists():  # it was removed between opening and locking
            raise InputError(f"another process has just written {output}: start again.")
        try:
            _write_windows(predictor, source, output, parts, options)
        finally:
            locked.unlink()


def _write_windows(predictor, source, output, parts, options):
    done = _open_parts(parts, predictor.fingerprint(str(source)))
    if done:
        logging.info("%s: resuming after %d windows", output, len(done))
    with beam.Pipeline(options=pipeline_options(shlex.split(options))) as pipeline:
        _ = (
            pipeline
            | beam.Create([str(source)])
            | "Read" >> beam.FlatMap(_windows, predictor=predictor, done=done)
            | "Spread" >> beam.Reshuffle()
            | "Work" >> beam.ParDo(_WriteWindow(predictor, str(parts), os.getcwd()))
        )
    with open_output(output) as whole:
        for part in sorted(parts.glob("[0-9]*[0-9]")):
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole)
    shutil.rmtree(parts)


class _WriteWindow(beam.DoFn):
    """(number of a window, its lines) → a file of their output."""

    def __init__(self, predictor, folder, current):
        self._predictor, self._folder, self._current = predictor, folder, current

    def setup(self):
        _enter(self._current)
        choose_devices(gpu=False)  # each of many workers would take the GPU's memory
        self._outputs = self._predictor.load()

    def process(self, numbered):
        number, lines = numbered
        first = number * self._predictor.window + 1
        rows, end = self._outputs(lines, first=first), self._predictor.line_end
        content = "".join(f"{line}{end}" for row in rows for line in row)
        write_file(os.path.join(self._folder, f"{number:012d}"), content.encode())


def _enter(folder):
    """Makes relative paths those of the command, if this machine has its folder."""
    with contextlib.suppress(OSError):  # else only absolute paths are found
        os.chdir(folder)


def _of_split(make, current, config, workdir, split):
    _enter(current)
    choose_devices(gpu=False)
    task = make_task(ml_collections.ConfigDict(json.loads(config)))
    return make(task, Workdir(workdir), split)


def _windows(source, predictor, done):
    lines = read_lines(source, predictor.errors, keep_ends=predictor.kind.is_long)
    for number, window in windows(lines, predictor.window):
        if number not in done:
            yield number, window


def _open_parts(parts, fingerprint):
    """Makes the folder of windows, empty if its fingerprint differs; returns the finished ones."""
    path = parts / "fingerprint.json"
    fingerprint = json.dumps(fingerprint, sort_keys=True)
    if not path.exists() or path.read_text() != fingerprint:
        shutil.rmtree(parts, ignore_errors=True)
        write_file(path, fingerprint.encode())
    return {int(path.name) for path in parts.glob("[0-9]*[0-9]")}
