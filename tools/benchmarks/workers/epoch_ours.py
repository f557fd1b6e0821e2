"""Real batches through `model.fit` as `pipelines.train` does it, or the bare step beside it."""

import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from common import answer

from pipelines import app, experiment
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.data.streams import batches_per_epoch, padding_fraction, training_batches
from t2t_keras.training.callbacks import ProgressLogger, StopOnDivergence
from t2t_keras.training.checkpoints import CheckpointManager
from t2t_keras.training.metrics_log import MetricsLog


class Clock(keras.callbacks.Callback):
    """The time from the end of the last step of the warm-up on."""

    def __init__(self, warm_up):
        super().__init__()
        self.warm_up = warm_up

    def on_train_batch_end(self, batch, logs=None):
        self.end = time.perf_counter()
        if batch == self.warm_up - 1:
            self.start = self.end


def measure(workdir, warm_up, steps, bare, threads):
    config = Workdir(workdir).load_config()
    app.limit_threads(config.train.parallel_micro_batches)
    experiment.set_numerics(config)
    task = make_task(config)
    model = task.make_model()
    experiment.compile_model(task, model)
    split = Workdir(workdir).tokens, config.data.train_split, task.make_batcher(replicas=1)
    batches = training_batches(*split, seed=1)
    if warm_up is None:
        warm_up = batches_per_epoch(*split)
    real = batches.skip(warm_up).take(steps)
    weights = [weights.numpy() for _, _, weights in real]
    tokens = sum(np.count_nonzero(w) for w in weights)
    clock = Clock(warm_up)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [clock]
        if bare:
            batches = _full_batch(model.config.vocab_size, weights)
            tokens = steps * int(next(iter(batches))[2].shape.num_elements())
            optimizer = experiment.make_optimizer(config.train, model.config)
            model.compile(optimizer, model.loss)
        else:
            checkpoints = CheckpointManager(folder, model, 1)
            callbacks += [
                StopOnDivergence(checkpoints, config.train.stop_above_grad_norm),
                ProgressLogger(config.train.log_every, steps, MetricsLog(folder)),
            ]
        model.fit(
            batches, steps_per_epoch=warm_up + steps, callbacks=callbacks, shuffle=False, verbose=0
        )
    padding = max(padding_fraction(real))
    return {
        "target tokens/s": tokens / (clock.end - clock.start),
        "padding": 0.0 if bare else padding,
    }


def _full_batch(vocab_size, weights):
    """Returns one batch without padding forever, of the mean size and length of real ones."""
    tokens = np.mean([np.count_nonzero(w) for w in weights])
    length = round(tokens / np.mean([len(w) for w in weights]))
    shape = round(tokens / length), length
    rng = np.random.default_rng(0)
    ids = [rng.integers(4, vocab_size, shape).astype("int32") for _ in range(3)]
    inputs = {"source_ids": ids[0], "target_ids": ids[1]}
    return tf.data.Dataset.from_tensors((inputs, ids[2], np.ones(shape, "float32"))).repeat()


answer(measure)
