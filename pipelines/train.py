"""Trains a Transformer. With the same flags, a second start resumes from the last checkpoint.

python -m pipelines.train --config=grammar_en_de --workdir=runs/grammar
"""

from absl import flags

from pipelines import app
from pipelines.config_flag import define_config
from pipelines.fields import config_diff
from t2t_keras.errors import InputError

CONFIG = define_config()
WORKDIR = app.define_workdir(
    "Folder of the run, made if missing: config, vocabulary, tokens, checkpoints, logs. Required, "
    "except with --explain_config."
)
EXPLAIN_CONFIG = flags.DEFINE_bool(
    "explain_config", False, "Print how the config differs from the paper's base model, and exit."
)
DATA_SERVICE = flags.DEFINE_string(
    "data_service",
    "",
    "Address grpc://host:port of a tf.data service that makes the batches (see "
    "pipelines.data_service); empty: this process makes them.",
)
ACCEPT_CORPUS_CHANGES = app.define("accept_corpus_changes")
START_OVER = flags.DEFINE_bool(
    "start_over",
    False,
    "Train from step 0 if all checkpoints of the workdir are damaged, which is an error otherwise; "
    "an undamaged checkpoint is still resumed.",
)


def main():
    from pipelines.training import train
    from pipelines.workdir import Workdir

    if EXPLAIN_CONFIG.value:
        print(*config_diff(CONFIG.value), sep="\n")
    elif WORKDIR.value is None:
        raise InputError("give --workdir, the folder of the run.")
    else:
        train(
            CONFIG.value,
            Workdir(WORKDIR.value),
            DATA_SERVICE.value,
            START_OVER.value,
            ACCEPT_CORPUS_CHANGES.value,
        )


if __name__ == "__main__":
    app.require("config")
    app.run(main)
