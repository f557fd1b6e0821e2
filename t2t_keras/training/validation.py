"""Measuring the model on other data while it trains."""

import contextlib

from absl import logging

from t2t_keras.training.callbacks import StepCallback
from t2t_keras.training.distribution import all_reduce_any, is_chief


class Validate(StepCallback):
    """Calls a function every so many steps, and when training ends, and keeps what it returns.

    The metrics of training are left as they were, although `model.evaluate` resets them.

    Args:
        every: steps between two calls.
        function: (model, step) → {name: float}.
        log: `MetricsLog`.
        monitor: name of the scalar by which a step is best.
        mode: "max" or "min".
        watches: what looks at the log after each call, such as `Watch`; its `message()` is logged
            as a warning.

    Attributes:
        best: (step, value) of the best call so far, those of earlier sessions included, or None.

    Example:
        >>> Validate(1000, evaluate_on(dataset), log, monitor="validation_perplexity", mode="min")
    """

    def __init__(self, every, function, log, monitor, mode="max", watches=()):
        super().__init__()
        self._every = every
        self._function = function
        self._log = log
        self._monitor = monitor
        self._best_of = {"max": max, "min": min}[mode]
        self._watches = watches
        self._last = None

    @property
    def best(self):
        results = self._log.values(self._monitor)
        return self._best_of(results, key=lambda result: result[1]) if results else None

    def catch_up(self, ended=False):
        """Validates the step at which a run is taken up, if a kill behind its saving prevented it.

        Args:
            ended: whether training ended with that step, so that a validation was due.
        """
        step = int(self.model.optimizer.iterations.numpy())
        due = ended or (self._every and step % self._every == 0)
        missing = step not in dict(self._log.values(self._monitor))
        if step and due and all_reduce_any(is_chief() and missing):  # only the chief has the log
            self._validate(step)

    def on_step(self, step, logs):
        if self.crossed(self._every):
            self._validate(step)

    def on_train_end(self, logs=None):
        if self._last != self.step:
            self._validate(self.step)

    def _validate(self, step):
        with _metrics_kept(self.model):
            scalars = {name: float(x) for name, x in self._function(self.model, step).items()}
        self._log.write(step, scalars)
        self._last = step
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in scalars.items())
        logging.info("step %d  %s", step, numbers)
        for message in filter(None, [watch.message() for watch in self._watches]):
            logging.warning("%s", message)


def evaluate_on(dataset):
    """Returns a function for `Validate`: the model's loss and metrics on a dataset.

    Args:
        dataset: batches as `fit` takes them.
    """

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
