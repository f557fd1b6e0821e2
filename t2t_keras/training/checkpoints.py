"""Checkpoints of a training run: their contents, resuming, and averages of weights.

Start with `CheckpointManager`, which saves a run and restores it. `restore_weights` loads only
weights, `average_checkpoints` (paper, section 6.1) and `write_ema` write averages. The files
themselves are in checkpoint_files.py.

A checkpoint names a variable by the attributes that lead to it, so that the name is the same in
every process: `model/encoder/layers/0/attention/kernel`, `optimizer/_momentums/3`, and
`random/…` for the random states of dropout.
"""

import functools
import pathlib
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.files import local_path
from t2t_keras.errors import InputError
from t2t_keras.training import checkpoint_files as files
from t2t_keras.training import distribution, keras_compat
from t2t_keras.types import StrPath

# Names of variables ------------------------------------------------------------------------------


def model_variables(model):
    """Returns {name: `keras.Variable`}: `model/…`, and `random/…` for dropout's random states."""
    variables = {}
    kinds = (keras.layers.Layer, keras.random.SeedGenerator)
    for path, owner, variable in _walk(model, (), kinds, set()):
        is_random = isinstance(owner, keras.random.SeedGenerator)
        variables["/".join(("random" if is_random else "model", *path))] = variable
    return variables


def optimizer_variables(model):
    """Returns the variables of a model's built optimizer, {`optimizer/…`: `keras.Variable`}."""
    weights = {id(variable) for variable in model.variables}  # it keeps them, too
    walk = _walk(model.optimizer, ("optimizer",), (keras.optimizers.Optimizer,), weights)
    return {"/".join(path): variable for path, _, variable in walk}


def _walk(owner, path, kinds, seen):
    """Yields (path, owner, variable) for all variables below `owner`, each once."""
    for name, value in _children(owner):
        if id(value) in seen:
            continue
        here = (*path, str(name))
        if isinstance(value, keras.Variable):
            seen.add(id(value))
            yield here, owner, value
        elif isinstance(value, (*kinds, list, tuple, dict)):
            seen.add(id(value))
            yield from _walk(value, here, kinds, seen)


def _children(owner):
    if isinstance(owner, dict):
        return owner.items()
    if isinstance(owner, (list, tuple)):
        return enumerate(owner)
    return keras_compat.attributes(owner)


# Saving and resuming a run -----------------------------------------------------------------------


class CheckpointManager:
    """The checkpoints of one run: weights, optimizer with its step, random states of dropout.

    Args:
        directory: made by the first save.
        model: compiled, with its weights.
        keep_last: the number of checkpoints to keep; None keeps all.

    Raises:
        InputError: if keep_last is below 1.

    Example:
        >>> checkpoints = CheckpointManager("run/checkpoints", model, keep_last=20)
        >>> done = checkpoints.restore_latest()
        >>> rest = dataset.skip(checkpoints.batches_taken())
        >>> model.fit(rest, callbacks=[CheckpointCallback(checkpoints, steps=1000)])
    """

    def __init__(self, directory: StrPath, model: keras.Model, keep_last: int | None = None):
        if keep_last is not None and keep_last < 1:
            raise InputError(f"keep_last is {keep_last}: keep at least 1 checkpoint.")
        self.directory = pathlib.Path(local_path(directory))
        self.keep_last = keep_last
        self._model = model

    def paths(self) -> list[pathlib.Path]:
        """Returns the paths of the checkpoints, oldest first."""
        return files.checkpoint_paths(self.directory)

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, oldest first."""
        return [files.step_of(path) for path in self.paths()]

    def save(self) -> pathlib.Path:
        """Saves the run as the checkpoint of the optimizer's step and removes the oldest ones.

        Of several workers only the chief writes. Returns the checkpoint's path.

        Raises:
            InputError: if the model has no weights yet, a weight or a variable of the optimizer is
                not finite, or the checkpoint could not be written; then no older one is removed.
        """
        variables = self._variables()
        tensors = {name: variable.value for name, variable in variables.items()}
        step = int(self._model.optimizer.iterations.numpy())
        _require_finite(tensors, step, self.paths())
        path = files.step_path(self.directory, step)
        if not distribution.is_chief():
            return path
        files.write_checkpoint(path, tensors)
        if self.keep_last:
            for old in self.paths()[: -self.keep_last]:
                files.remove_checkpoint(old)
        return path

    def restore_latest(self, start_over: bool = False) -> int:
        """Loads the newest undamaged checkpoint; returns its step, or 0 if there is none.

        A warning names newer checkpoints that are damaged; they are renamed `….damaged`, and
        averages of later steps `….superseded`. If there are several workers, all must call this
        method, and the chief chooses the checkpoint. With `start_over` a run whose checkpoints are
        all damaged begins at step 0.

        Raises:
            InputError: if the checkpoint belongs to another model or cannot be read, or if all are
                damaged, now or at an earlier start, and `start_over` is False; then none is
                renamed. Also if a worker cannot restore the chief's step.
        """
        variables, values = self._variables(), {}  # made by all workers together
        read = functools.partial(self._read_newest, variables, values, start_over)
        step = distribution.call_on_chief(read) - 1
        if step < 0:
            return 0
        self._read_on_other_workers(step, variables, values)
        with self._model.distribute_strategy.scope():
            for name, variable in variables.items():
                variable.assign(values.pop(name))  # each array is freed when it is assigned
        steps = distribution.gather_from_workers(int(self._model.optimizer.iterations.numpy()))
        if len(set(steps)) > 1:
            raise InputError(
                f"The workers restored different steps: {', '.join(map(str, steps))}. Give all of "
                f"them the same folder, here {self.directory}."
            )
        return step

    def batches_taken(self) -> int:
        """Returns how many batches the model's optimizer used; a resumed run skips them.

        With `gradient_accumulation_steps` these are more than its steps.
        """
        return int(keras_compat.batches_taken(self._model.optimizer).numpy())

    def _read_newest(self, variables, values, start_over):
        """Fills `values` from the newest checkpoint; returns its step + 1, or 0 if there is none.

        Only the chief calls it, since it changes the folder.
        """
        files.remove_unfinished(self.directory)
        damaged, result = [], 0
        for path in reversed(self.paths()):
            try:
                values.update(_read(path, variables))
            except files.DamagedCheckpointError as error:
                logging.warning("%s", error)
                damaged.append(path)
            else:
                result = files.step_of(path) + 1
                break
        if not result and not start_over and (damaged or files.damaged_paths(self.directory)):
            raise InputError(
                f"All checkpoints in {self.directory} are damaged: put a good copy of one there, "
                "or train from step 0 with --start_over (start_over=True)."
            )
        for path in damaged:
            files.set_aside(path, "damaged")
        for path in files.averages_from(self.directory, max(result, 1)):
            aside = files.set_aside(path, "superseded")
            logging.warning(
                "%s is of a later step than the restored one: it is now %s", path, aside
            )
        return result

    def _read_on_other_workers(self, step, variables, values):
        failure = None
        if not distribution.is_chief():
            try:
                values.update(_read(files.step_path(self.directory, step), variables))
            except InputError as error:
                failure = error
        if distribution.all_reduce_any(failure):
            raise failure or InputError(
                f"A worker could not restore step {step} from {self.directory}: its own message "
                "says why."
            )

    def _variables(self):
        model = self._model
        if not model.variables:
            raise InputError("The model has no weights yet: call it on a batch first.")
        if not model.optimizer.built:
            with model.distribute_strategy.scope():
                model.optimizer.build(model.trainable_variables)
        return model_variables(model) | optimizer_variables(model)


def restore_weights(model: keras.Model, path: StrPath) -> None:
    """Loads only the weights of any checkpoint into a model, which needs no optimizer.

    One weight is read at a time, so that a large model needs little more than its own memory.

    Raises:
        InputError: if there is no checkpoint, if its weights are not exactly the model's, or if it
            is damaged or cannot be read; some weights may then be replaced already.
    """
    weights = weight_variables(model)
    reader = files.CheckpointReader(path)
    _require_fit(reader, weights)
    with model.distribute_strategy.scope():
        for name, variable in weights.items():
            variable.assign(reader.read_tensor(name))


def weight_variables(model):
    """Returns the variables of `model_variables` that are weights, not random states."""
    variables = model_variables(model)
    return {name: variables[name] for name in variables if name.startswith("model/")}


def _read(path, variables):
    """Returns the values of variables from a checkpoint, {name: array}."""
    reader = files.CheckpointReader(path)
    _require_fit(reader, variables)
    return {name: reader.read(name) for name in variables}


def _require_fit(reader, variables):
    parts = {name.partition("/")[0] for name in variables}
    for name, variable in variables.items():
        stored, wanted = reader.shapes.get(name), list(variable.shape)
        if stored is None:
            raise InputError(
                f"The checkpoint {reader.path} holds no {name} {wanted}: "
                "build the model as it was when trained."
            )
        if stored != wanted:
            raise InputError(
                f"The checkpoint {reader.path} holds {name} as {stored} and the model wants "
                f"{wanted}: build the model with the sizes it was trained with."
            )
    for name in sorted(reader.shapes.keys() - variables.keys()):
        if name.partition("/")[0] in parts:
            raise InputError(
                f"The checkpoint {reader.path} holds {name} {reader.shapes[name]}, which the "
                "model lacks: build the model as it was when trained."
            )


def _require_finite(tensors, step, earlier):
    for name, tensor in tensors.items():
        if tensor.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(tensor)):
            raise InputError(
                f"At step {step} {name} is not finite, so nothing was saved; the last checkpoint "
                f"is {earlier[-1] if earlier else 'none'}: lower the learning rate or lengthen its "
                "warm-up."
            )


# Averages of weights -----------------------------------------------------------------------------


def average_checkpoints(paths: Sequence[StrPath], output_path: StrPath) -> StrPath:
    """Checkpoint averaging: writes the mean of the weights of several checkpoints (section 6.1).

    The sum is in float64. Each weight of a checkpoint is in memory only while it is added, so that
    any number of checkpoints, of one model, needs the memory of one. Returns output_path.

    Raises:
        InputError: if there are none, or if they contain different weights.

    Example:
        >>> average_checkpoints(checkpoints.paths()[-5:], average_path(directory, step=100_000))
    """
    readers = [files.CheckpointReader(path) for path in paths]
    if not readers:
        raise InputError("There are no checkpoints to average: train first.")
    first = _weight_shapes(readers[0])
    for reader in readers[1:]:
        if _weight_shapes(reader) != first:
            raise InputError(
                f"The checkpoints {readers[0].path} and {reader.path} have different weights: "
                "average checkpoints of one run."
            )
    files.write_checkpoint(output_path, {name: _mean(name, readers) for name in sorted(first)})
    return output_path


def write_ema(model: keras.Model, output_path: StrPath) -> StrPath:
    """Writes the exponential moving average of the weights; returns output_path.

    The model's optimizer must have an `ema_decay` and have made an update.

    Example:
        >>> write_ema(model, ema_path(directory, step=100_000))
    """
    optimizer = keras_compat.unwrapped(model.optimizer)
    weights = weight_variables(model)
    averages = {
        name: tf.cast(optimizer.average_of(weight), weight.dtype)
        for name, weight in weights.items()
    }
    files.write_checkpoint(output_path, averages)
    return output_path


def _weight_shapes(reader):
    return {name: shape for name, shape in reader.shapes.items() if name.startswith("model/")}


def _mean(name, readers):
    newest = readers[-1].read(name)
    if not tf.as_dtype(newest.dtype).is_floating:
        return newest  # a count or an id, whose mean would be neither
    total = np.zeros(newest.shape, np.float64)
    for reader in readers:
        total += reader.read(name).astype(np.float64)
    return (total / len(readers)).astype(newest.dtype)
