"""A process told to end saves, ends with its own code, and goes on later."""

import os
import signal

import pytest

from t2t_keras.training.callbacks import CheckpointEvery, StepCallback
from t2t_keras.training.checkpointing import Checkpoints
from t2t_keras.training.preemption import StopOnSignal
from tests.training import tiny


class SignalAt(StepCallback):
    def on_step(self, step, logs):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_saves_after_the_step_and_exits_with_75(tmp_path):
    model = tiny.compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    callbacks = [SignalAt(), StopOnSignal(checkpoints), CheckpointEvery(checkpoints, steps=100)]
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            tiny.fit(model, tiny.dataset(6), 6, callbacks)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert end.value.code == 75
    assert checkpoints.steps() == [3]


def test_without_a_signal_nothing_happens_and_the_handler_comes_back(tmp_path):
    model = tiny.compiled_model()
    handler = signal.getsignal(signal.SIGTERM)
    tiny.fit(model, tiny.dataset(2), 2, [StopOnSignal(Checkpoints(tmp_path, model))])
    assert signal.getsignal(signal.SIGTERM) is handler
