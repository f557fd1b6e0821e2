"""What a checkpoint is on disk: a folder, there whole or not at all, of named tensors.

The folder is named by the optimizer's step, `step_00001200`, or for an average of checkpoints and
a moving average by the last step, `average_00001200` and `ema_00001200`. The tensors inside are in
TensorFlow's own format, `tf.train.load_checkpoint` reads them, and every one carries a checksum.
"""

import contextlib
import os
import pathlib
import re
import shutil

import tensorflow as tf

from t2t_keras.errors import InputError

_NAME = re.compile(r"(step|average|ema)_(\d{8,})")


class DamagedCheckpointError(InputError):
    """A checkpoint that lies there and can't be read: cut short, or with flipped bytes."""


def step_path(directory, step):
    """Returns where the checkpoint of a step of training lies."""
    return pathlib.Path(directory) / f"step_{step:08d}"


def average_path(directory, step):
    """Returns where the average of the checkpoints up to a step lies."""
    return pathlib.Path(directory) / f"average_{step:08d}"


def ema_path(directory, step):
    """Returns where the moving average of the updates up to a step lies."""
    return pathlib.Path(directory) / f"ema_{step:08d}"


def step_of(path):
    """Returns the step in the name of a checkpoint."""
    return int(_NAME.fullmatch(pathlib.Path(path).name)[2])


def checkpoint_paths(directory, kind="step"):
    """Returns the paths of a folder's checkpoints, oldest first.

    Args:
        directory: folder of checkpoints; may be missing.
        kind: "step", "average" or "ema".
    """
    directory = pathlib.Path(directory)
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    matches = [match for match in map(_NAME.fullmatch, names) if match and match[1] == kind]
    return [directory / match[0] for match in sorted(matches, key=lambda match: int(match[2]))]


def newest_weights(directory):
    """Returns the path of the newest weights.

    Of one step the moving average comes before the average of checkpoints, and that before the
    step's own checkpoint.

    Raises:
        InputError: if the folder holds none.
    """
    found = [
        path for kind in ("step", "average", "ema") for path in checkpoint_paths(directory, kind)
    ]
    if not found:
        raise InputError(f"{directory} holds no checkpoint: train first, or name another folder.")
    return max(reversed(found), key=step_of)


def write_checkpoint(path, tensors):
    """Writes a checkpoint under another name and gives it its own when it is complete.

    Args:
        path: the checkpoint's folder; one that exists is replaced.
        tensors: {name: tensor}.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".{path.name}.unfinished")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=os.fspath(temporary / "variables"),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=list(tensors.values()),
            )
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(directory):
    """Removes what a training session that was killed while saving left behind."""
    for path in pathlib.Path(directory).glob(".step_*.unfinished"):
        shutil.rmtree(path)


def remove_checkpoint(path):
    """Removes a checkpoint, under another name first, so that none is ever seen half removed."""
    condemned = path.with_name(f".{path.name}.unfinished")
    path.rename(condemned)
    shutil.rmtree(condemned)


class CheckpointReader:
    """The tensors of a checkpoint, read one by one.

    Args:
        path: the checkpoint's folder.

    Attributes:
        shapes: {name: list of int}.

    Raises:
        InputError: if there is no checkpoint.
        DamagedCheckpointError: if it can't be read, at once or when a tensor is.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        prefix = self.path / "variables"
        if not self.path.is_dir():
            raise InputError(
                f"There is no checkpoint {self.path}: look for its name in its folder."
            )
        with self._damage_named():
            self._reader = tf.train.load_checkpoint(os.fspath(prefix))
            self.shapes = self._reader.get_variable_to_shape_map()

    def read(self, name):
        """Returns a tensor as a NumPy array."""
        with self._damage_named():
            return self._reader.get_tensor(name)

    @contextlib.contextmanager
    def _damage_named(self):
        try:
            yield
        except (tf.errors.OpError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise DamagedCheckpointError(
                f"The checkpoint {self.path} is damaged ({reason}): use an earlier one."
            ) from error
