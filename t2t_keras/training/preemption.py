"""Ending a training when the machine is wanted back, so that it can go on later."""

import signal

from absl import logging

from t2t_keras.errors import InputError
from t2t_keras.training.callbacks import StepCallback
from t2t_keras.training.distribution import all_reduce_any, barrier, worker_count

# EX_TEMPFAIL of sysexits.h: nothing is wrong, start it again.
PREEMPTED = 75


class PreemptionHandler(StepCallback):
    """On SIGTERM saves a checkpoint after the step in progress, and ends the process.

    The exit code is 75 (`PREEMPTED`), by which a scheduler can tell it from success and from
    failure: started again with the same flags, the run resumes. Several workers all end at the
    same step, whichever of them got the signal, and the chief saves.

    It handles the signal inside a `with` statement, and leaves the earlier handler behind however
    `fit` ends.

    Args:
        checkpoints: `Checkpoints`.
        sync_every_steps: number of steps after which several workers exchange whether one of them
            got the signal.

    Raises:
        SystemExit: with code 75, when the checkpoint is written.
        InputError: by `fit` outside of the `with` statement.

    Example:
        >>> with PreemptionHandler(checkpoints) as preemption:
        ...     model.fit(dataset, callbacks=[preemption])
    """

    def __init__(self, checkpoints, sync_every_steps=10):
        super().__init__()
        self._checkpoints = checkpoints
        self._sync_every_steps = sync_every_steps if worker_count() > 1 else 1
        self._received = self._entered = False

    def __enter__(self):
        self._previous = signal.signal(signal.SIGTERM, self._receive)
        self._entered = True
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGTERM, self._previous)
        self._entered = False

    def on_train_begin(self, logs=None):
        if not self._entered:
            raise InputError(
                "PreemptionHandler is not active: call fit inside `with PreemptionHandler(…) as "
                "handler:`, with callbacks=[handler]."
            )

    def on_step(self, step, logs):
        if self.crossed(self._sync_every_steps) and all_reduce_any(self._received):
            path = self._checkpoints.save()
            barrier()  # otherwise the end of the other workers would break off the chief's saving
            logging.info("Told to end: saved %s; the same command resumes from there", path)
            raise SystemExit(PREEMPTED)

    def _receive(self, number, frame):
        self._received = True
