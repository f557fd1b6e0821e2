"""What the binaries do on the workers of an Apache Beam runner. Needs the extra `beam`.

Workers are other processes, on other machines as a rule: everything here is sent to them as paths
and plain values, and read from a file system that they share.
"""

import functools
import json
import os
import pathlib
import shlex
import shutil

import apache_beam as beam
import ml_collections
from absl import logging

from pipelines import experiment
from pipelines.line_outputs import windows
from pipelines.text_files import read_lines
from pipelines.workdir import Workdir
from t2t_keras.data.apache_beam_shards import pipeline_options, write_shards_with_beam
from t2t_keras.data.files import write_file


def split_writer(options):
    """Returns what `experiment.prepare` takes as `write`.

    Args:
        options: Beam's flags, as one str.
    """

    def write(config, workdir, split):
        where = config.to_json(), os.path.abspath(workdir.path)
        write_shards_with_beam(
            functools.partial(_examples, *where, split),
            functools.partial(_encoder, *where, split),
            workdir.tokens,
            split,
            options=shlex.split(options),
        )

    return write


def write_outputs(line_outputs, source, output, options):
    """Writes the file that `pipelines.translate` writes, window by window, by any worker.

    Windows that are done lie in a hidden folder beside the output, from which the same call goes on
    after a kill.

    Args:
        line_outputs: `LineOutputs`.
        source: path of a text file.
        output: path of the file to write.
        options: Beam's flags, as one str.
    """
    source, output = pathlib.Path(source).absolute(), pathlib.Path(output).absolute()
    parts = output.with_name(f".{output.name}.parts")
    done = _open_parts(parts, line_outputs.made_of(str(source)))
    if done:
        logging.info("%s: going on behind %d windows", output, len(done))
    with beam.Pipeline(options=pipeline_options(shlex.split(options))) as pipeline:
        _ = (
            pipeline
            | beam.Create([str(source)])
            | "Read" >> beam.FlatMap(_windows, size=line_outputs.window, done=done)
            | "Spread" >> beam.Reshuffle()
            | "Work" >> beam.ParDo(_WriteWindow(line_outputs, str(parts)))
        )
    temporary = output.with_name(f".{output.name}.tmp")
    with temporary.open("wb") as whole:
        for part in sorted(parts.glob("[0-9]*[0-9]")):
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole)
    os.replace(temporary, output)
    shutil.rmtree(parts)


class _WriteWindow(beam.DoFn):
    """(number of a window, its lines) → a file of their output."""

    def __init__(self, line_outputs, folder):
        self._line_outputs, self._folder = line_outputs, folder

    def setup(self):
        self._outputs = self._line_outputs.load()

    def process(self, numbered):
        number, lines = numbered
        first = number * self._line_outputs.window + 1
        content = "".join(f"{line}\n" for row in self._outputs(lines, first=first) for line in row)
        write_file(os.path.join(self._folder, f"{number:012d}"), content.encode())


def _examples(config, workdir, split):
    return experiment.split_examples(_config(config), Workdir(workdir), split)


def _encoder(config, workdir, split):
    return experiment.split_encoder(_config(config), Workdir(workdir), split)


def _config(text):
    return ml_collections.ConfigDict(json.loads(text))


def _windows(source, size, done):
    for number, lines in windows(read_lines(source), size):
        if number not in done:
            yield number, lines


def _open_parts(parts, made_of):
    """Makes the folder of windows, anew if its origin is another, and says which are in it."""
    origin = parts / "made_of.json"
    made_of = json.dumps(made_of, sort_keys=True)
    if not origin.exists() or origin.read_text() != made_of:
        shutil.rmtree(parts, ignore_errors=True)
        write_file(origin, made_of.encode())
    return {int(path.name) for path in parts.glob("[0-9]*[0-9]")}
