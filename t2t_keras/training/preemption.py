"""Ending a training when the machine is wanted back, so that it can go on later."""

import signal

from absl import logging

from t2t_keras.training.callbacks import StepCallback
from t2t_keras.training.distribution import all_reduce_any, barrier, worker_count

# EX_TEMPFAIL of sysexits.h: nothing is wrong, start it again.
PREEMPTED = 75


class StopOnSignal(StepCallback):
    """On SIGTERM saves a checkpoint after the step in progress, and ends the process.

    The exit code is 75 (`PREEMPTED`), by which a scheduler can tell it from success and from
    failure: started again with the same flags, the run goes on. Of several hosts all end at the
    same step, wherever the signal came, and the chief saves.

    Args:
        checkpoints: `Checkpoints`.
        agree_every: steps after which several hosts ask one another for a signal.

    Raises:
        SystemExit: with code 75, when the checkpoint is written.
    """

    def __init__(self, checkpoints, agree_every=10):
        super().__init__()
        self._checkpoints = checkpoints
        self._agree_every = agree_every
        self._told = False

    def on_train_begin(self, logs=None):
        self._previous = signal.signal(signal.SIGTERM, self._hear)

    def on_train_end(self, logs=None):
        signal.signal(signal.SIGTERM, self._previous)

    def on_step(self, step, logs):
        if self._agreed(step):
            path = self._checkpoints.save()
            barrier()  # else the others' end would break off the chief's saving
            logging.info("Told to end: saved %s; the same command goes on from there", path)
            raise SystemExit(PREEMPTED)

    def _agreed(self, step):
        agree_every = self._agree_every if worker_count() > 1 else 1
        return step % agree_every == 0 and all_reduce_any(self._told)

    def _hear(self, number, frame):
        self._told = True
