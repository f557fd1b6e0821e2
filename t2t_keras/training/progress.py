"""What a person sees while training: one line a window of steps, and the same in the log files."""

import sys
import time

import psutil
from absl import logging

from t2t_keras.training.callbacks import StepCallback, gradient_norm
from t2t_keras.training.metrics import TokenMean

_REFRESH_SECONDS = 0.5


class ProgressLogger(StepCallback):
    """Reports every `log_every` steps what the steps since the last report gave.

    It resets the model's metrics after each report, so a number is of its window and not of all
    steps since the start. Tokens per second count the time of training alone, the wait for input
    included, without validation and saving; the time left is by the clock on the wall. Both and
    the padding share need `TokenAccuracy` or `Perplexity` among the model's metrics.

    Args:
        log_every: steps of a window.
        total_steps: the step at which training ends.
        log: `MetricsLog`.
    """

    def __init__(self, log_every, total_steps, log):
        super().__init__()
        self._log_every = log_every
        self._total_steps = total_steps
        self._log = log
        self._on_terminal = sys.stderr.isatty()

    def on_train_begin(self, logs=None):
        self._window_full = False
        self._training_seconds = 0.0
        self._pace = None  # (step, time) from which seconds a step are measured
        self._shown_at = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        if self._window_full:  # only now, so that Keras ends its epoch with the last full window
            self.model.reset_metrics()
            self._training_seconds = 0.0
            self._window_full = False
        self._began_at = time.monotonic()

    def on_step(self, step, logs):
        now = time.monotonic()
        self._training_seconds += now - self._began_at
        if self.crossed(self._log_every) or step == self._total_steps:
            self._report(step)
            # The first window holds the making of the graph and would spoil the estimate.
            self._pace = self._pace or (step, now)
            self._window_full = True
        elif self._on_terminal and now > self._shown_at + _REFRESH_SECONDS:
            self._shown_at = now
            self._show(f"step {step}/{self._total_steps}  loss {logs.get('loss', 0):.3f}")

    def on_train_end(self, logs=None):
        self._show("")

    def _report(self, step):
        model = self.model
        scalars = {name: float(value) for name, value in model.get_metrics_result().items()}
        scalars["learning_rate"] = float(model.optimizer.learning_rate)
        counter = _token_counter(model)
        if counter is not None:
            tokens, positions = float(counter.tokens.numpy()), float(counter.positions.numpy())
            scalars["tokens_per_second"] = tokens / self._training_seconds
            scalars["padding_share"] = 1 - tokens / max(positions, 1)
        norm = gradient_norm(model)
        if norm is not None:
            scalars["gradient_norm"] = norm  # of the window's last step
        scalars["memory_mib"] = psutil.Process().memory_info().rss / 2**20
        self._log.write(step, scalars)
        self._show("")
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in scalars.items())
        logging.info("step %d/%d  %s%s", step, self._total_steps, numbers, self._time_left(step))

    def _time_left(self, step):
        if not self._pace:
            return ""
        seconds_a_step = (time.monotonic() - self._pace[1]) / (step - self._pace[0])
        minutes, seconds = divmod(round(seconds_a_step * (self._total_steps - step)), 60)
        return f"  left {minutes // 60}:{minutes % 60:02d}:{seconds:02d}"

    def _show(self, line):
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()


def _token_counter(model):
    """Returns a metric of the model that counts target tokens, or None."""
    metrics = [inner for outer in model.metrics for inner in getattr(outer, "metrics", [outer])]
    return next((metric for metric in metrics if isinstance(metric, TokenMean)), None)
