"""Keras callbacks that keep a run safe; they count optimizer steps, not batches of an epoch."""

import math
import sys
import time

import keras

from t2t_keras.errors import InputError


class StepCallback(keras.callbacks.Callback):
    """A callback that knows the optimizer's step, which goes on over epochs and resumed runs.

    Subclasses define `on_step`, and may define `on_train_end` and others as usual.

    Attributes:
        step: the number of updates made.
    """

    step = 0

    def on_step(self, step, logs):
        """Called after each update.

        Args:
            step: the number of updates made, this one included.
            logs: dict of floats, what Keras reports since its metrics were last reset.
        """
        raise NotImplementedError

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_start = self.step = int(self.model.optimizer.iterations.numpy())

    def on_train_batch_end(self, batch, logs=None):
        # Counted here: to ask the optimizer each time would wait for the accelerator.
        self._before, self.step = self.step, self._epoch_start + batch + 1
        self.on_step(self.step, logs or {})

    def crossed(self, every):
        """Whether the latest updates reached a multiple of `every` steps.

        Under `steps_per_execution` Keras reports several updates at once, so that no step may be
        such a multiple itself.
        """
        return bool(every) and self.step // every > self._before // every


class CheckpointEvery(StepCallback):
    """Saves a checkpoint every so many steps or minutes, and when training ends.

    Args:
        checkpoints: `Checkpoints`.
        steps: steps between two checkpoints; None: no matter.
        minutes: minutes between two checkpoints; None: no matter.
    """

    def __init__(self, checkpoints, steps=None, minutes=None):
        super().__init__()
        self._checkpoints = checkpoints
        self._steps = steps
        self._minutes = minutes

    def on_train_begin(self, logs=None):
        self._saved_step = int(self.model.optimizer.iterations.numpy())
        self._saved_at = time.monotonic()

    def on_step(self, step, logs):
        minutes = (time.monotonic() - self._saved_at) / 60
        if self.crossed(self._steps) or (self._minutes and minutes >= self._minutes):
            self._save()

    def on_train_end(self, logs=None):
        if self.step != self._saved_step:
            self._save()

    def _save(self):
        self._checkpoints.save()
        self._saved_step = self.step
        self._saved_at = time.monotonic()


class StopOnDivergence(StepCallback):
    """Ends training with an error when the loss is no finite number or the gradient explodes.

    Args:
        checkpoints: `Checkpoints` whose last one the error names; None: no matter.
        largest_gradient_norm: the greatest norm of a gradient that is still healthy; None: any
            finite one. It needs an optimizer that knows the norm, as `NormedAdam` does.

    Raises:
        InputError: naming the step and the last checkpoint.
    """

    def __init__(self, checkpoints=None, largest_gradient_norm=None):
        super().__init__()
        self._checkpoints = checkpoints
        self._largest = math.inf if largest_gradient_norm is None else largest_gradient_norm

    def on_step(self, step, logs):
        loss = logs.get("loss", 0.0)
        if not math.isfinite(loss):
            self._stop(f"The loss became {loss} at step {step}")
        norm = gradient_norm(self.model)
        if norm is not None and not norm <= min(self._largest, sys.float_info.max):
            self._stop(
                f"The gradient's norm became {norm:.4g} at step {step}, where "
                f"{self._largest:.4g} is the most"
            )

    def _stop(self, what):
        paths = self._checkpoints.paths() if self._checkpoints else []
        raise InputError(
            f"{what}; the last good checkpoint is {paths[-1] if paths else 'none'}: lower the "
            "learning rate or lengthen its warm-up."
        )


def gradient_norm(model):
    """Returns the norm of the latest gradient, or None where the optimizer does not know it."""
    variable = getattr(model.optimizer, "gradient_norm", None)
    return None if variable is None else float(variable.numpy())
