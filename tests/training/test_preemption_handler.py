"""A process told to end saves, ends with its own code, and resumes later."""

import os
import signal

import keras
import pytest

from t2t_keras.errors import InputError
from t2t_keras.training import preemption
from t2t_keras.training.callbacks import CheckpointEvery, StepCallback
from t2t_keras.training.checkpointing import Checkpoints
from t2t_keras.training.preemption import PreemptionHandler
from tests.training import tiny


class SignalAt(StepCallback):
    """Sends SIGTERM to this process when a step is reached."""

    def __init__(self, signal_step):
        super().__init__()
        self.signal_step = signal_step

    def on_step(self, step, logs):
        if step >= self.signal_step:
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_saves_after_the_step_and_exits_with_75(tmp_path):
    model = tiny.compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    with PreemptionHandler(checkpoints) as handler, pytest.raises(SystemExit) as end:
        callbacks = [SignalAt(3), handler, CheckpointEvery(checkpoints, steps=100)]
        tiny.fit(model, tiny.dataset(6), 6, callbacks)
    assert end.value.code == 75
    assert checkpoints.steps() == [3]


def test_several_workers_see_the_signal_whatever_steps_keras_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(preemption, "worker_count", lambda: 2)
    model = tiny.compiled_model()
    tiny.fit(model, tiny.dataset(5), 5)
    model.compile(model.optimizer, model.loss, steps_per_execution=10)
    checkpoints = Checkpoints(tmp_path, model)
    handler = PreemptionHandler(checkpoints, sync_every_steps=10)
    with handler, pytest.raises(SystemExit):
        tiny.fit(model, tiny.dataset(60), 60, [SignalAt(25), handler])
    assert checkpoints.steps() == [25]  # reported are 15, 25, 35 …


class Failure(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise RuntimeError("a failure in training")


def test_the_earlier_handler_comes_back_even_when_training_fails(tmp_path):
    model = tiny.compiled_model()
    earlier = signal.getsignal(signal.SIGTERM)
    with PreemptionHandler(Checkpoints(tmp_path, model)) as handler:
        tiny.fit(model, tiny.dataset(2), 2, [handler])
    assert signal.getsignal(signal.SIGTERM) is earlier
    with pytest.raises(RuntimeError), PreemptionHandler(Checkpoints(tmp_path, model)) as handler:
        tiny.fit(model, tiny.dataset(2), 2, [handler, Failure()])
    assert signal.getsignal(signal.SIGTERM) is earlier


def test_a_handler_that_is_not_active_is_refused(tmp_path):
    model = tiny.compiled_model()
    with pytest.raises(InputError, match="PreemptionHandler is not active"):
        tiny.fit(model, tiny.dataset(1), 1, [PreemptionHandler(Checkpoints(tmp_path, model))])
