"""Learns the vocabulary and writes token shards; `pipelines.train` does it where they are missing.

python -m pipelines.prepare --config=pipelines/configs/grammar_en_de.py --workdir=runs/grammar
"""

from absl import logging

from pipelines import app, experiment
from pipelines.workdir import Workdir

CONFIG = app.define_config()
WORKDIR = app.define_workdir()


def main():
    workdir = Workdir(WORKDIR.value)
    workdir.save_config(CONFIG.value)
    experiment.prepare(CONFIG.value, workdir)
    logging.info("Ready: %s and %s", workdir.vocabulary, workdir.tokens)


if __name__ == "__main__":
    app.require("config", "workdir")
    app.run(main)
