"""Keras callbacks of a long training: checkpoints, preemption, divergence, progress, evaluation.

All derive from `StepCallback`, which counts the optimizer's steps over epochs and resumed runs. A
run puts them in this order, so that a step's row in `metrics.csv` is written before its checkpoint:
`StopOnDivergence`, `ProgressLogger`, `PreemptionHandler`, `CheckpointCallback`,
`EvaluationCallback`. The last one calls `PlateauMonitor`s, which are not callbacks. In a
`StepCallbackList` only the steps whose values are reported wait for the accelerator.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
import signal
import sys
import time
from collections.abc import Callable, Sequence

import keras
import psutil
import tensorflow as tf
from absl import logging

from t2t_keras.errors import InputError
from t2t_keras.training import keras_compat
from t2t_keras.training.checkpoints import CheckpointManager
from t2t_keras.training.distribution import all_reduce_any, barrier, is_chief, worker_count
from t2t_keras.training.metrics import TokenMean
from t2t_keras.training.metrics_log import MetricsLog

PREEMPTED = 75
"""Exit code of a preempted run: EX_TEMPFAIL of sysexits.h, nothing is wrong, start it again."""

_REFRESH_SECONDS = 0.5


class StepCallback(keras.callbacks.Callback):
    """A callback that knows the optimizer's step, over epochs and resumed runs.

    Subclasses define `on_step`, and may define `on_train_end` and others as usual. A batch without
    an update does not count: `gradient_accumulation_steps` may keep its gradient for a later batch,
    and Keras's loss scaling may skip it.

    Attributes:
        step: the number of updates made.
    """

    step = 0

    def on_step(self, step: int, logs: dict) -> None:
        """Called after each update, or after several with `steps_per_execution`.

        Args:
            step: the number of updates made, this one included.
            logs: Keras's metrics since their last reset: floats, or in a `StepCallbackList`
                tensors, whose conversion waits for the accelerator.
        """
        raise NotImplementedError

    def __post_init__(self):  # of subclasses that are dataclasses
        super().__init__()

    def on_epoch_begin(self, epoch, logs=None):
        self.step = _updates(self.model)
        self._batches_before = int(keras_compat.batches_taken(self.model.optimizer).numpy())

    def on_train_batch_end(self, batch, logs=None):
        self._before = self.step
        # Of the last execution of an epoch Keras reports a step beyond its end, where
        # `steps_per_execution` does not divide the steps, whose number may be unknown.
        steps = self.params.get("steps")
        is_known = steps or self.model.steps_per_execution == 1
        if keras_compat.skips_steps(self.model.optimizer) or not is_known:
            self.step = _updates(self.model)
        else:  # without waiting for the accelerator
            batches = min(batch + 1, steps or batch + 1)
            self.step = (self._batches_before + batches) // _batches_per_update(self.model)
        if self.step > self._before:
            self.on_step(self.step, logs or {})

    def crossed(self, every: int | None) -> bool:
        """Whether the latest updates reached a multiple of `every` steps.

        Under `steps_per_execution` Keras reports several updates together, so that the reported
        step need not be a multiple itself.
        """
        return _crossed(every, self._before, self.step)


class StepCallbackList(keras.callbacks.CallbackList):
    """The callbacks of `fit`, whose logs are tensors instead of floats.

    Keras converts the logs to floats after each step, which waits for the accelerator. Give `fit`
    one of these in place of a list; a callback that needs floats converts them when it uses them.
    `steps` is the `steps_per_epoch` of that call.

    Example:
        >>> callbacks = StepCallbackList([ProgressLogger(…)], model, steps=1000)
        >>> model.fit(dataset, steps_per_epoch=1000, callbacks=callbacks)
    """

    def __init__(
        self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model, steps: int
    ):
        super().__init__(callbacks, add_history=True, model=model, epochs=1, steps=steps)

    def on_train_batch_begin(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


def gradient_norm(model):
    """Returns the norm of the latest gradient, or None if the optimizer does not compute it."""
    variable = getattr(keras_compat.unwrapped(model.optimizer), "gradient_norm", None)
    return None if variable is None else float(variable.numpy())


def _updates(model):
    return int(model.optimizer.iterations.numpy())


def _batches_per_update(model):
    return keras_compat.unwrapped(model.optimizer).gradient_accumulation_steps or 1


def _crossed(every, before, step):
    """Whether a multiple of `every` is above `before` and at most `step`; False for 0 and None."""
    return bool(every) and step // every > before // every


# Checkpoints, divergence, preemption -------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class CheckpointCallback(StepCallback):
    """Saves a checkpoint every `steps` or `minutes`, and when training ends.

    A `guard` checks before each one that training has not diverged.
    """

    checkpoints: CheckpointManager
    steps: int | None = None
    minutes: float | None = None
    guard: StopOnDivergence | None = None

    def on_train_begin(self, logs=None):
        self._saved_step = _updates(self.model)
        self._saved_at = time.monotonic()

    def on_step(self, step, logs):
        minutes = (time.monotonic() - self._saved_at) / 60
        if self.crossed(self.steps) or (self.minutes and minutes >= self.minutes):
            self._save()

    def on_train_end(self, logs=None):
        if self.step != self._saved_step:
            self._save()

    def _save(self):
        if self.guard:
            self.guard.check()
        self.checkpoints.save()
        self._saved_step = self.step
        self._saved_at = time.monotonic()


@dataclasses.dataclass(eq=False)
class StopOnDivergence(StepCallback):
    """Ends training with an error when the loss is not finite or the gradient explodes.

    The optimizer keeps the largest norm of a gradient, so that it need not be read at each step.

    Args:
        checkpoints: of the run; the error names the last one.
        stop_above_grad_norm: norm of a gradient, before clipping, above which training ends; None:
            only if it is not finite. It needs an optimizer that knows the norm, such as `Adam` or
            `Muon` of t2t_keras.
        every: steps after which the norms and the loss are read.

    Raises:
        InputError: naming the step and the last checkpoint.
    """

    checkpoints: CheckpointManager | None = None
    stop_above_grad_norm: float | None = None
    every: int = 1
    _loss = 0.0

    def on_step(self, step, logs):
        self._loss = logs.get("loss", 0.0)
        if self.crossed(self.every):
            self.check()

    def on_train_end(self, logs=None):
        self.check()

    def check(self):
        """Raises the error if one of the steps since the last check diverged."""
        optimizer = keras_compat.unwrapped(self.model.optimizer)
        if hasattr(optimizer, "take_largest_gradient_norm"):
            norm, step = optimizer.take_largest_gradient_norm()
            limit = math.inf if self.stop_above_grad_norm is None else self.stop_above_grad_norm
            if not norm <= min(limit, sys.float_info.max):
                above = f", above stop_above_grad_norm = {limit:.4g}" * math.isfinite(limit)
                self._stop(f"The gradient's norm became {norm:.4g} at step {step}{above}")
        loss = float(self._loss)
        if not math.isfinite(loss):
            self._stop(f"The loss became {loss} at step {self.step} or shortly before")

    def _stop(self, what):
        paths = self.checkpoints.paths() if self.checkpoints else []
        raise InputError(
            f"{what}; the last good checkpoint is {paths[-1] if paths else 'none'}: lower the "
            "learning rate or lengthen its warm-up."
        )


@dataclasses.dataclass(eq=False)
class PreemptionHandler(StepCallback):
    """On SIGTERM saves a checkpoint after the current step and ends the process.

    The exit code is 75 (`PREEMPTED`), neither success nor failure: started again with the same
    flags, the run resumes. If one of several workers gets the signal, all end at the same step, and
    the chief saves.

    It handles the signal inside a `with` statement and then restores the earlier handler. Only a
    process that is ending with code 75 ignores further signals.

    Args:
        sync_every_steps: steps after which several workers ask one another for the signal.
        guard: checks before the checkpoint that training has not diverged.

    Raises:
        SystemExit: with code 75, when the checkpoint is written.
        InputError: by `fit` outside of the `with` statement.

    Example:
        >>> with PreemptionHandler(checkpoints) as preemption:
        ...     model.fit(dataset, callbacks=[preemption])
    """

    checkpoints: CheckpointManager
    sync_every_steps: int = 10
    guard: StopOnDivergence | None = None
    _received = _entered = False

    def __enter__(self):
        self._previous = signal.signal(signal.SIGTERM, self._receive)
        self._entered = True
        return self

    def __exit__(self, kind, *_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN if kind is SystemExit else self._previous)
        self._entered = False

    def on_train_begin(self, logs=None):
        if not self._entered:
            raise InputError(
                "PreemptionHandler is not active: call fit inside `with PreemptionHandler(…) as "
                "handler:`, with callbacks=[handler]."
            )

    def on_step(self, step, logs):
        every = self.sync_every_steps if worker_count() > 1 else 1
        if self.crossed(every) and all_reduce_any(self._received):
            if self.guard:
                self.guard.check()
            path = self.checkpoints.save()
            barrier()  # otherwise the end of the other workers would break off the chief's saving
            logging.info("Told to end: saved %s; the same command resumes from there", path)
            raise SystemExit(PREEMPTED)

    def _receive(self, number, frame):
        self._received = True


# Progress ----------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class ProgressLogger(StepCallback):
    """Reports metrics, speed and time left every `log_every` steps.

    It resets the model's metrics after each report, so that a value covers the steps since the last
    report, or since the epoch began, where Keras resets them. Tokens per second count the time of
    training and of waiting for input, but not of evaluation and saving; the time left is estimated
    from the wall clock. Tokens per second and the padding fraction need `TokenAccuracy` or
    `Perplexity` among the model's metrics.

    Args:
        log_every: steps between two reports.
        total_steps: the step at which training ends.
        log: gets a row for each report.
        composition: function (first step, last step) → {corpus: fraction of the batches between
            them}, which is also reported.
    """

    log_every: int
    total_steps: int
    log: MetricsLog
    composition: Callable | None = None

    def on_train_begin(self, logs=None):
        self._on_terminal = sys.stderr.isatty()
        self._reported = False
        self._last_report = _updates(self.model)
        self._training_seconds = 0.0
        self._first_report = None  # (step, time), from which on the seconds of a step are measured
        self._began_at = None  # when the first batch of the step began
        self._shown_at = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self._training_seconds, self._reported, self._began_at = 0.0, False, None

    def on_train_batch_begin(self, batch, logs=None):
        if self._reported:  # not before, so that Keras ends its epoch with the last full window
            self.model.reset_metrics()
            self._training_seconds = 0.0
            self._reported = False
        self._began_at = self._began_at or time.monotonic()

    def on_step(self, step, logs):
        reports = self.crossed(self.log_every) or step == self.total_steps
        if reports:
            float(logs.get("loss", 0.0))  # waits for the accelerator, whose work is to be timed
        now = time.monotonic()
        self._training_seconds += now - self._began_at
        self._began_at = None
        if not reports:
            if self._on_terminal and now > self._shown_at + _REFRESH_SECONDS:
                self._shown_at = now
                loss = float(logs.get("loss", 0.0))
                self._show(f"step {step}/{self.total_steps}  loss {loss:.3f}")
            return
        model = self.model
        scalars = {name: float(value) for name, value in model.get_metrics_result().items()}
        scalars["learning_rate"] = keras_compat.latest_learning_rate(model.optimizer)
        counter = _token_counter(model)
        if counter is not None:
            tokens, positions = float(counter.counted.numpy()), float(counter.positions.numpy())
            scalars["tokens_per_second"] = tokens / self._training_seconds
            scalars["padding_share"] = 1 - tokens / max(positions, 1)
        norm = gradient_norm(model)
        if norm is not None:
            scalars["gradient_norm"] = norm  # of the last step
        if hasattr(model.optimizer, "dynamic_scale"):  # of float16
            scalars["loss_scale"] = float(model.optimizer.dynamic_scale.numpy())
        scalars["memory_mib"] = psutil.Process().memory_info().rss / 2**20
        if self.composition:
            scalars |= self.composition(self._last_report, step)
        self._last_report = step
        self.log.write(step, scalars)
        self._show("")
        text = f"step {step}/{self.total_steps}  {_as_text(scalars)}{self._time_left(step)}"
        logging.info("%s", text)
        # The steps before the first report include making the graph.
        self._first_report = self._first_report or (step, now)
        self._reported = True

    def on_train_end(self, logs=None):
        self._show("")

    def _time_left(self, step):
        if not self._first_report:
            return ""
        first_step, time_then = self._first_report
        seconds_per_step = (time.monotonic() - time_then) / (step - first_step)
        minutes, seconds = divmod(round(seconds_per_step * (self.total_steps - step)), 60)
        return f"  left {minutes // 60}:{minutes % 60:02d}:{seconds:02d}"

    def _show(self, line):
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()


def _token_counter(model):
    """Returns a metric of the model that counts target tokens, or None."""
    metrics = [inner for outer in model.metrics for inner in getattr(outer, "metrics", [outer])]
    return next((metric for metric in metrics if isinstance(metric, TokenMean)), None)


def _as_text(scalars):
    return "  ".join(f"{name} {value:.4g}" for name, value in scalars.items())


# Evaluation during training ----------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class EvaluationCallback(StepCallback):
    """Evaluates the model at an interval of steps and when training ends, and logs the results.

    The metrics of training keep their values, although `model.evaluate` resets them.

    Args:
        every: steps between two evaluations; None: only at the end.
        function: (model, step) → {name: float}.
        monitor: name of the scalar that decides which step is best.
        mode: "max" or "min", whether high or low values are better.
        plateau_monitors: their messages are logged as warnings.

    Attributes:
        best: (step, value) of the best evaluation, also of earlier sessions, or None.

    Example:
        >>> EvaluationCallback(1000, evaluate_on(dataset), log, "validation_perplexity", "min")
    """

    every: int | None
    function: Callable
    log: MetricsLog
    monitor: str
    mode: str = "max"
    plateau_monitors: Sequence[PlateauMonitor] = ()
    _evaluated_step = None

    def __post_init__(self):
        super().__post_init__()
        self._best_of = _BEST_OF[self.mode]

    @property
    def best(self):
        return self._best_of(self.log.values(self.monitor), key=_VALUE, default=None)

    def evaluate_if_missing(self, ended=False):
        """Evaluates the restored step if a kill after its checkpoint prevented that.

        Args:
            ended: whether training ended with that step, so that an evaluation was due.
        """
        step = _updates(self.model)
        batches = int(keras_compat.batches_taken(self.model.optimizer).numpy())
        before = max(batches - self.model.steps_per_execution, 0) // _batches_per_update(self.model)
        due = ended or _crossed(self.every, before, step)
        missing = step not in dict(self.log.values(self.monitor))
        if step and due and all_reduce_any(is_chief() and missing):  # only the chief has the log
            self._evaluate(step)

    def on_step(self, step, logs):
        if self.crossed(self.every):
            self._evaluate(step)

    def on_train_end(self, logs=None):
        if self._evaluated_step != self.step:
            self._evaluate(self.step)

    def _evaluate(self, step):
        with _metrics_kept(self.model):
            scalars = {name: float(x) for name, x in self.function(self.model, step).items()}
        self.log.write(step, scalars)
        self._evaluated_step = step
        logging.info("step %d  %s", step, _as_text(scalars))
        for message in filter(None, [monitor.message() for monitor in self.plateau_monitors]):
            logging.warning("%s", message)


def evaluate_on(dataset: tf.data.Dataset) -> Callable:
    """Returns a function for `EvaluationCallback`: loss and metrics on batches as `fit` takes."""

    def evaluate(model, step):
        del step
        results = model.evaluate(dataset, return_dict=True, verbose=0)
        return {f"validation_{name}": value for name, value in results.items()}

    return evaluate


@contextlib.contextmanager
def _metrics_kept(model):
    variables = model.metrics_variables
    values = [variable.numpy() for variable in variables]
    yield
    with model.distribute_strategy.scope():
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


_BEST_OF = {"max": max, "min": min}
_VALUE = operator.itemgetter(1)  # of (step, value)


@dataclasses.dataclass(eq=False)
class PlateauMonitor:
    """Warns if evaluations have not improved for a while; there is no early stopping.

    Args:
        log: `MetricsLog`, whose evaluations of earlier sessions count, too.
        name: name of an evaluation's scalar in the log.
        mode: "max" or "min", whether high or low values are better.
        training: name of the same scalar in training, where less is better: if it fell while the
            evaluation's rose, the run overfits. None: no comparison.
        patience: number of evaluations without improvement between two messages.

    Example:
        >>> monitor = PlateauMonitor(log, "validation_perplexity", "min", training="perplexity")
        >>> EvaluationCallback(
        ...     1000, evaluate, log, "validation_perplexity", "min", plateau_monitors=[monitor]
        ... )
    """

    log: MetricsLog
    name: str
    mode: str
    training: str | None = None
    patience: int = 4

    def __post_init__(self):
        self._best_of = _BEST_OF[self.mode]

    def message(self) -> str | None:
        """Returns the message that is due after the latest evaluation, or None."""
        results = self.log.values(self.name)
        if not results:
            return None
        step, best = self._best_of(results, key=_VALUE)
        since = sum(later > step for later, _ in results)
        if not since or since % self.patience:
            return None
        last_step, last = results[-1]
        course = f"{self.name} has not been better for {since} evaluations than at step {step:,}"
        before, after = self._in_training(step), self._in_training(last_step)
        if last > best and before is not None and after < before:
            return (
                f"Overfitting: {course}; it rose from {best:.4g} to {last:.4g} while "
                f"{self.training} in training fell from {before:.4g} to {after:.4g}."
            )
        return f"Plateau: {course}, {best:.4g}; it is {last:.4g} now."

    def _in_training(self, step):
        """Returns the latest value that training reported up to a step, or None."""
        values = self.log.values(self.training) if self.training else []
        return next((value for at, value in reversed(values) if at <= step), None)
