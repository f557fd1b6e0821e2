"""Learns the vocabulary and writes token shards; `pipelines.train` does it where they are missing.

python -m pipelines.prepare --config=pipelines/configs/grammar_en_de.py --workdir=runs/grammar

Stopped, the same command goes on behind the pairs that are written. For a corpus that one machine
is too slow for, --beam writes the shards by Apache Beam (extra `beam`), the same bytes; workdir
and corpus must then lie where all workers can read and write.
"""

from absl import logging

from pipelines import app, experiment
from pipelines.workdir import Workdir

CONFIG = app.define_config()
WORKDIR = app.define_workdir()
BEAM = app.define_beam()


def main():
    experiment.check(CONFIG.value)
    workdir = Workdir(WORKDIR.value)
    workdir.save_config(CONFIG.value)
    write = None
    if BEAM.value is not None:
        write = app.beam_routes().split_writer(BEAM.value)
    experiment.prepare(CONFIG.value, workdir, write)
    logging.info("Ready: %s and %s", workdir.vocabulary, workdir.tokens)


if __name__ == "__main__":
    app.require("config", "workdir")
    app.run(main)
