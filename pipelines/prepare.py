"""Learns the vocabulary and writes token shards; `pipelines.train` does it if they are missing.

python -m pipelines.prepare --config=grammar_en_de --workdir=runs/grammar

After a kill the same command resumes after the pairs that are written. For a large corpus,
--apache_beam writes the same shards on the workers of Apache Beam (extra `beam`); workdir and
corpus must then be on a file system that all workers share.
"""

from absl import logging

from pipelines import app
from pipelines.config_flag import define_config

CONFIG = define_config()
WORKDIR = app.define_workdir()
ACCEPT_CORPUS_CHANGES = app.define("accept_corpus_changes")
APACHE_BEAM = app.define("apache_beam")


def main():
    from pipelines import experiment
    from pipelines.workdir import Workdir

    task = experiment.check(CONFIG.value)
    workdir = Workdir(WORKDIR.value)
    write = experiment.write_part
    if APACHE_BEAM.value is not None:
        from pipelines import apache_beam

        write = apache_beam.split_writer(APACHE_BEAM.value)
    with workdir.lock():
        workdir.save_run(task, ACCEPT_CORPUS_CHANGES.value)
        experiment.prepare(task, workdir, write)
    logging.info("Ready: %s and %s", workdir.vocabulary, workdir.tokens)


if __name__ == "__main__":
    app.require("config", "workdir")
    app.run(main, gpu=False)
