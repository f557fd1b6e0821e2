"""Averages of weights: of a run's last checkpoints (paper, section 6.1), and of all its updates."""

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import CheckpointReader, write_checkpoint
from t2t_keras.training.variables import model_variables


def average_checkpoints(paths, output_path):
    """Writes the arithmetic mean of the weights of several checkpoints.

    The sum is in float64. One weight is in memory for each checkpoint only while it is added, so
    the memory needed is that of one model, whatever the number of checkpoints.

    Args:
        paths: checkpoints of one model, steps or averages.
        output_path: the checkpoint to write, which `restore_weights` reads.

    Returns:
        output_path.

    Raises:
        InputError: if there are none, or if they do not hold the same weights.

    Example:
        >>> average_checkpoints(checkpoints.paths()[-5:], average_path(directory, step=100_000))
    """
    readers = [CheckpointReader(path) for path in paths]
    if not readers:
        raise InputError("There are no checkpoints to average: train first.")
    first = _weight_shapes(readers[0])
    for reader in readers[1:]:
        if _weight_shapes(reader) != first:
            raise InputError(
                f"The checkpoints {readers[0].path} and {reader.path} hold other weights: "
                "average checkpoints of one run."
            )
    write_checkpoint(output_path, {name: _mean(name, readers) for name in sorted(first)})
    return output_path


def write_moving_average(model, output_path):
    """Writes the moving average of a model's weights that its optimizer keeps.

    Args:
        model: `keras.Model` compiled with an `AveragingAdam` that has made an update.
        output_path: the checkpoint to write, which `restore_weights` reads.

    Returns:
        output_path.

    Example:
        >>> write_moving_average(model, ema_path(directory, step=100_000))
    """
    averages = {
        name: model.optimizer.average_of(variable).value
        for name, variable in model_variables(model).items()
        if name.startswith("model/")
    }
    write_checkpoint(output_path, averages)
    return output_path


def _weight_shapes(reader):
    return {name: shape for name, shape in reader.shapes.items() if name.startswith("model/")}


def _mean(name, readers):
    newest = readers[-1].read(name)
    if not np.issubdtype(newest.dtype, np.floating):
        return newest  # a count or an id: its mean would be neither
    total = np.zeros(newest.shape, np.float64)
    for reader in readers:
        total += reader.read(name)
    return (total / len(readers)).astype(newest.dtype)
