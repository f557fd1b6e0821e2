"""Writing token shards as an Apache Beam pipeline, for corpora that one machine is too slow for.

One worker reads the corpus, any number of them encode its blocks, and each shard is written by one
of them: the same bytes as `write_shards` writes. Needs the extra `beam`.
"""

import dataclasses
import functools
import json
import operator
import os
import shutil

import apache_beam as beam
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from t2t_keras.data.files import write_file
from t2t_keras.data.shard_blocks import (
    ENDINGS,
    Block,
    Blocks,
    Tally,
    complete,
    shard_bytes,
    shard_names,
    unfinished_folder,
)
from t2t_keras.graphs import graph_function

_TALLIES = "tallies"
_TALLY = "tally.json"


def pipeline_options(options=()):
    """Returns Beam's options for a list of flags, by default of the runner within this process."""
    chosen = (
        [] if any(flag.startswith("--runner") for flag in options) else ["--runner=FnApiRunner"]
    )
    return PipelineOptions([*chosen, *options])


def write_shards_with_beam(make_examples, make_encoder, directory, split, shards=None, options=()):
    """Tokenizes a split of a corpus on the workers of a Beam runner.

    Args:
        make_examples: picklable function without arguments that gives the split's dataset, as
            `examples(split)` of a corpus does. It is called here and on one worker.
        make_encoder: likewise, for a `BlockEncoder`; called on every worker.
        directory: where the split's folder is made, on a file system that all workers share.
        split: the folder's name; an older one is replaced.
        shards: into how many shards the pairs go; by default as `write_shards` chooses.
        options: list of flags for Beam, such as `["--runner=FlinkRunner"]`; by default the
            pipeline runs in this process.

    Returns:
        A `FilterReport`.

    Raises:
        InputError: if no pair is left.
    """
    names = shard_names(shards or Blocks(make_examples()).default_shards())
    path = os.path.join(directory, split)
    folder = unfinished_folder(path)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with beam.Pipeline(options=pipeline_options(options)) as pipeline:
        encoded = (
            pipeline
            | beam.Create([make_examples])
            | "Read" >> beam.FlatMap(_read)
            | "Spread" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(_Encode(make_encoder, len(names))).with_outputs(_TALLIES, main="pieces")
        )
        _ = (
            encoded.pieces
            | "Pieces of a shard" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write_shard, folder=folder, names=names)
        )
        _ = (
            encoded[_TALLIES]
            | "Add up" >> beam.CombineGlobally(_sum)
            | "Keep the sum" >> beam.Map(_write_tally, path=os.path.join(folder, _TALLY))
        )
    tally = _take_tally(os.path.join(folder, _TALLY))
    return complete(path, names, tally)


def _read(make_examples):
    for number, lines in Blocks(make_examples()).texts():
        yield number, {side: texts.tolist() for side, texts in lines.items()}


class _Encode(beam.DoFn):
    """(number, texts of a block) → (shard, (number, bytes of its piece)), and the block's tally."""

    def __init__(self, make_encoder, shards):
        self._make_encoder, self._shards = make_encoder, shards

    def setup(self):
        self._encode = graph_function(self._make_encoder())

    def process(self, numbered):
        number, lines = numbered
        texts = {side: tf.constant(lines[side], tf.string, [len(lines[side])]) for side in lines}
        block = Block.of(*self._encode(texts))
        yield beam.pvalue.TaggedOutput(_TALLIES, Tally.of(block))
        for shard, piece in block.pieces(number, self._shards):
            yield shard, (number, shard_bytes(piece))


def _write_shard(gathered, folder, names):
    shard, pieces = gathered
    ordered = [piece for _, piece in sorted(pieces)]
    for ending, contents in zip(ENDINGS, zip(*ordered, strict=True), strict=True):
        write_file(os.path.join(folder, names[shard] + ending), b"".join(contents))


def _sum(tallies):
    return functools.reduce(operator.add, tallies, Tally())


def _write_tally(tally, path):
    write_file(path, json.dumps(dataclasses.asdict(tally)).encode())


def _take_tally(path):
    with open(path, encoding="utf-8") as file:
        tally = Tally(**json.load(file))
    os.remove(path)
    return tally
