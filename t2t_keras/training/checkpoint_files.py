"""A checkpoint on disk: a folder of named tensors, which is written atomically.

The folder is named by the optimizer's step, `step_00001200`; an average of checkpoints and an
exponential moving average (EMA) of weights by the last step in it, `average_00001200` and
`ema_00001200`. `initial_00000000` contains the weights that a training begins with. The tensors are
in TensorFlow's own format, which `tf.train.load_checkpoint` reads, each with a checksum.
`write_checkpoint` writes and `CheckpointReader` reads; checkpoints.py decides which tensors a run
saves and from which checkpoint it resumes.
"""

import itertools
import os
import pathlib
import re
import shutil
import time

import tensorflow as tf
from absl import logging

from t2t_keras.data.files import (
    local_path,
    make_folder,
    replace,
    sync_tree,
    tensorflow_path,
    visible_names,
)
from t2t_keras.errors import InputError, reason_of

_KINDS = ("initial", "step", "average", "ema")
_NAME = re.compile(rf"({'|'.join(_KINDS)})_(\d{{8,}})")
_UNFINISHED = re.compile(rf"\.({_NAME.pattern}(\.replaced|\.removed)?)\.unfinished")
_MEMBERS = ("variables.index", "variables.data-00000-of-00001")
_REPLACED = ".replaced"  # ending of a checkpoint while another one takes its name
_RETRY_SECONDS = (0.2, 1.0, 5.0)  # between the attempts to read


class DamagedCheckpointError(InputError):
    """A checkpoint whose files are incomplete: missing, cut short, or with flipped bytes."""


# Names -------------------------------------------------------------------------------------------


def initial_path(directory):
    """Returns the path of a pretrained model's weights, with which a training begins."""
    return _path("initial", directory, 0)


def step_path(directory, step):
    """Returns the path of the checkpoint of a training step."""
    return _path("step", directory, step)


def average_path(directory, step):
    """Returns the path of the average of the checkpoints up to a step."""
    return _path("average", directory, step)


def ema_path(directory, step):
    """Returns the path of the exponential moving average of the weights up to a step."""
    return _path("ema", directory, step)


def _path(kind, directory, step):
    return pathlib.Path(directory) / f"{kind}_{step:08d}"


def step_of(path):
    """Returns the step in the name of a checkpoint."""
    return int(_NAME.fullmatch(pathlib.Path(path).name)[2])


def checkpoint_paths(directory, kind="step"):
    """Returns the paths of a folder's checkpoints of a kind, oldest first; it may be missing."""
    directory = pathlib.Path(local_path(directory))
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    matches = [match for match in map(_NAME.fullmatch, names) if match and match[1] == kind]
    return [directory / match[0] for match in sorted(matches, key=lambda match: int(match[2]))]


def averages_from(directory, step):
    """Returns the paths of the averages of a step or later ones, EMA or of checkpoints."""
    paths = [path for kind in ("ema", "average") for path in checkpoint_paths(directory, kind)]
    return [path for path in paths if step_of(path) >= step]


def newest_weights(directory):
    """Returns the path of the newest weights.

    If a step has several, the EMA comes first, then the average of checkpoints, then the step.

    Raises:
        InputError: if the folder contains none.
    """
    paths = [path for kind in _KINDS for path in checkpoint_paths(directory, kind)]
    if not paths:
        raise InputError(f"{directory} holds no checkpoint: train first, or name another folder.")
    return max(reversed(paths), key=step_of)


# Changes of the folder ---------------------------------------------------------------------------


def write_checkpoint(path, tensors):
    """Writes tensors, {name: tensor}, as a checkpoint; one that exists is replaced.

    It has a temporary name until it is complete on disk.

    Raises:
        InputError: if it cannot be written; an existing one is then kept.
    """
    # Where it is a link, its target is replaced.
    path = pathlib.Path(os.path.realpath(local_path(path)))
    if path.exists() and not (path.is_dir() and set(visible_names(path)) <= set(_MEMBERS)):
        raise InputError(f"{path} exists and is not only a checkpoint: give another name.")
    temporary, replaced = _unfinished(path), _unfinished(path.with_name(f"{path.name}{_REPLACED}"))
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        make_folder(temporary)
        with tf.device("CPU:0"), tensorflow_path(temporary) as folder:
            tf.raw_ops.SaveV2(
                prefix=_prefix(folder),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=list(tensors.values()),
            )
        sync_tree(temporary)
        shutil.rmtree(replaced, ignore_errors=True)
        if path.exists():
            path.rename(replaced)  # `remove_unfinished` renames it back after a kill here
        replace(temporary, path)
        shutil.rmtree(replaced, ignore_errors=True)
    except (tf.errors.OpError, OSError) as error:
        last = (checkpoint_paths(path.parent) or ["none"])[-1]
        raise InputError(
            f"The checkpoint {path} could not be written ({reason_of(error)}); the last good one "
            f"is {last}: correct this, for example by making room on the disk, and start again."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_checkpoint(path):
    """Renames a checkpoint, then removes it, so that no incomplete folder looks like one."""
    condemned = _unfinished(path.with_name(f"{path.name}.removed"))
    replace(path, condemned)
    _remove(condemned)


def remove_unfinished(directory):
    """Removes the unfinished files of a process that was killed while saving.

    No other process may write checkpoints into the folder at the same time.
    """
    for path in pathlib.Path(directory).glob(".*.unfinished"):
        if (match := _UNFINISHED.fullmatch(path.name)) and path.is_dir():
            original = path.with_name(match[1].removesuffix(_REPLACED))
            if match[1].endswith(_REPLACED) and not original.exists():
                replace(path, original)
            else:
                _remove(path)


def set_aside(path, reason):
    """Renames a checkpoint `….REASON`, or `….REASON2` and so on; returns the new path."""
    numbers = itertools.chain([""], itertools.count(2))
    paths = (path.with_suffix(f".{reason}{number}") for number in numbers)
    target = next(target for target in paths if not target.exists())
    replace(path, target)
    return target


def damaged_paths(directory):
    """Returns the paths of the damaged checkpoints that `set_aside` renamed."""
    return sorted(pathlib.Path(directory).glob("step_*.damaged*"))


def _remove(path):
    """Removes a folder, or a symbolic link but not the folder that it points to."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def _unfinished(path):
    return path.with_name(f".{path.name}.unfinished")


# Reading -----------------------------------------------------------------------------------------


class CheckpointReader:
    """The tensors of a checkpoint, read one by one.

    A checkpoint is damaged if a checksum does not match, or a file is truncated or missing. A read
    that fails for any other reason (a network file system, too little memory) is repeated a few
    times before it is an error.

    Attributes:
        shapes: {name: list of int}.

    Raises:
        InputError: here or by `read`, if there is no checkpoint or it cannot be read.
        DamagedCheckpointError: here or by `read`, if it is damaged.
    """

    def __init__(self, path):
        self.path = pathlib.Path(local_path(path))
        if not self.path.is_dir():
            names = sorted(path.name for path in self.path.parent.glob("*_*"))
            there = (
                f"one of {self.path.parent}: {', '.join(names)}" if names else "the folder of one"
            )
            raise InputError(f"There is no checkpoint {self.path}: give {there}.")
        reader = self._repeated(self._open)
        self.shapes = reader.get_variable_to_shape_map()
        self._dtypes = reader.get_variable_to_dtype_map()

    def read(self, name):
        """Returns a tensor as a NumPy array."""
        return self.read_tensor(name).numpy()

    def read_tensor(self, name):
        """Returns a tensor, on the CPU."""
        return self._repeated(lambda: self._restore(name, self._dtypes[name]))

    def _repeated(self, read):
        reason = None
        for seconds in (*_RETRY_SECONDS, None):
            try:
                return read()
            except (tf.errors.OpError, OSError, MemoryError, ValueError, IndexError) as error:
                reason = reason_of(error)
                if self._is_damage(error):
                    raise DamagedCheckpointError(
                        f"The checkpoint {self.path} is damaged ({reason}): use an earlier one, or "
                        "copy it again."
                    ) from error
            if seconds is not None:
                logging.warning("Reading %s failed (%s): trying again", self.path, reason)
                time.sleep(seconds)
        raise InputError(
            f"The checkpoint {self.path} could not be read in {len(_RETRY_SECONDS) + 1} attempts "
            f"({reason}); nothing was changed: check the disk or the network file system, and the "
            "free memory, and start again."
        )

    def _open(self):
        try:
            with tensorflow_path(self.path) as folder:
                return tf.train.load_checkpoint(_prefix(folder))
        except (tf.errors.OpError, ValueError, IndexError) as error:
            # The reader drops the code of the error, which the operation keeps.
            try:
                self._restore("a name that no checkpoint holds", tf.float32)
            except tf.errors.NotFoundError:  # so it can be opened, or its files are missing
                raise error from None
            raise

    def _restore(self, name, dtype):
        with tf.device("CPU:0"), tensorflow_path(self.path) as folder:
            return tf.raw_ops.RestoreV2(
                prefix=_prefix(folder), tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
            )[0]

    def _is_damage(self, error):
        if isinstance(error, tf.errors.NotFoundError):
            return any(not (self.path / name).exists() for name in _MEMBERS)
        return isinstance(error, (tf.errors.DataLossError, tf.errors.OutOfRangeError))


def _prefix(folder):
    """Returns the prefix that TensorFlow gives the names of a checkpoint's files."""
    return os.path.join(folder, "variables")
