"""Writing token shards as an Apache Beam pipeline, for corpora too large for one machine.

One worker reads the corpus, all workers encode its blocks, and one worker writes each shard. It
writes the same files as `write_shards`. Needs the extra `beam`.
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

from t2t_keras.data.files import crc32_of, make_folder, write_file
from t2t_keras.data.shard_writing import (
    FilterReport,
    publish_split,
    shard_names,
    split_by_shard,
    staging_dir,
    text_blocks,
)
from t2t_keras.data.shards import FILE_ENDINGS
from t2t_keras.graphs import graph_function

_REPORTS = "reports"
_REPORT_FILE = "sum.json"


def pipeline_options(options=()):
    """Returns Beam's options for a list of flags; the default runner is within this process."""
    chosen = (
        [] if any(flag.startswith("--runner") for flag in options) else ["--runner=FnApiRunner"]
    )
    return PipelineOptions([*chosen, *options])


def write_shards_with_beam(make_examples, make_encoder, directory, split, shards=None, options=()):
    """Tokenizes a split of a corpus on the workers of a Beam runner, as `write_shards` does.

    Both functions are picklable. `make_examples` returns the split's dataset, as `examples(split)`
    of a corpus does, here and on one worker, `make_encoder` a `BlockEncoder` on every worker. All
    share the file system of the directory. Options are flags for Beam, such as
    `["--runner=FlinkRunner"]`; by default the pipeline runs in this process.
    """
    names = shard_names(make_examples(), shards)
    path = os.path.realpath(os.path.join(directory, split))
    folder = staging_dir(path)
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    report_path = os.path.join(folder, _REPORT_FILE)
    with beam.Pipeline(options=pipeline_options(options)) as pipeline:
        encoded = (
            pipeline
            | beam.Create([make_examples])
            | "Read" >> beam.FlatMap(_read)
            | "Distribute" >> beam.Reshuffle()
            | "Encode"
            >> beam.ParDo(_Encode(make_encoder, len(names))).with_outputs(_REPORTS, main="parts")
        )
        _ = (
            encoded.parts
            | "Parts of a shard" >> beam.GroupByKey()
            | "Write" >> beam.Map(_write_shard, folder=folder, names=names)
        )
        _ = (
            encoded[_REPORTS]
            | "Add up" >> beam.CombineGlobally(_sum)
            | "Write the sum" >> beam.Map(_write_report, path=report_path)
        )
    with open(report_path, encoding="utf-8") as file:
        report = FilterReport(**json.load(file))
    os.remove(report_path)
    checksums = {
        name + ending: crc32_of(os.path.join(folder, name + ending))
        for name in names
        for ending in FILE_ENDINGS
    }
    return publish_split(path, names, report, checksums)


def _read(make_examples):
    for number, texts in enumerate(text_blocks(make_examples()).as_numpy_iterator()):
        yield number, {side: texts[side].tolist() for side in texts}


class _Encode(beam.DoFn):
    """(number, texts of a block) → (shard, (number, bytes of its files)), and a `FilterReport`."""

    def __init__(self, make_encoder, shards):
        self._make_encoder, self._shards = make_encoder, shards

    def setup(self):
        self._encode = graph_function(self._make_encoder())

    def process(self, numbered):
        number, lists = numbered
        texts = {side: tf.constant(lists[side], tf.string, [len(lists[side])]) for side in lists}
        counts, pairs = tf.nest.map_structure(lambda x: x.numpy(), self._encode(texts))
        yield beam.pvalue.TaggedOutput(_REPORTS, FilterReport.of_block(counts, pairs))
        for shard, contents in split_by_shard(pairs, number, self._shards):
            yield shard, (number, contents)


def _write_shard(gathered, folder, names):
    shard, parts = gathered
    ordered = [contents for _, contents in sorted(parts)]
    for ending, contents in zip(FILE_ENDINGS, zip(*ordered, strict=True), strict=True):
        write_file(os.path.join(folder, names[shard] + ending), b"".join(contents))


def _sum(reports):
    return functools.reduce(operator.add, reports, FilterReport())


def _write_report(report, path):
    write_file(path, json.dumps(dataclasses.asdict(report)).encode())
