"""One of two workers that restore from one folder; `test_processes.py` runs it.

python -m tests.training.restoring_worker FOLDER

It writes what came of each case, a step or an error, to FOLDER/results.INDEX.json.
"""

import json
import pathlib
import shutil
import sys
import time

from t2t_keras.training.distribution import barrier, default_strategy, is_chief

STRATEGY = default_strategy()

import tensorflow as tf  # noqa: E402

from t2t_keras.errors import InputError  # noqa: E402
from t2t_keras.training.checkpoints import CheckpointManager  # noqa: E402
from tests.training import tiny  # noqa: E402


def refused(*_, **__):
    raise AssertionError("a worker that is not the chief changes the folder")


def stale(path):
    raise tf.errors.UnavailableError(None, None, "Stale file handle")


def main(folder):
    folder, results = pathlib.Path(folder), {}
    chief = is_chief()
    with STRATEGY.scope():
        model = tiny.compiled_model()
        model.optimizer.build(model.trainable_variables)
    checkpoints = CheckpointManager(folder / "checkpoints", model)

    def save(step, directory="checkpoints"):
        model.optimizer.iterations.assign(step)
        CheckpointManager(folder / directory, model).save()

    def attempt(name, chosen=checkpoints):
        barrier()
        try:
            results[name] = [chosen.restore_latest(), int(model.optimizer.iterations.numpy())]
        except InputError as error:
            results[name] = str(error)
        barrier()

    save(1)
    save(2)
    save(7, directory="other")
    time.sleep = lambda seconds: None
    if chief:
        (folder / "other" / "step_00000007").rename(folder / "other" / "step_00000001")
        (folder / "checkpoints" / ".step_00000003.unfinished").mkdir()
        (folder / "checkpoints" / "step_00000002" / "variables.index").unlink()
    else:
        shutil.rmtree = pathlib.Path.rename = refused
    attempt("the newest is damaged")

    load = tf.train.load_checkpoint
    if not chief:
        tf.train.load_checkpoint = stale
    attempt("a worker cannot read")

    tf.train.load_checkpoint = stale if chief else load
    attempt("the chief cannot read")

    tf.train.load_checkpoint = load
    attempt("folders differ", checkpoints if chief else CheckpointManager(folder / "other", model))

    attempt("all is well")
    index = 0 if chief else 1
    (folder / f"results.{index}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
