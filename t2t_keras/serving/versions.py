"""The numbered versions in a served model's folder: the next number, and a version made whole."""

import contextlib
import glob
import os
import shutil

from absl import logging

from t2t_keras.errors import InputError


def is_version(directory):
    """Says whether a model server takes this folder, by its name, for a version of a model."""
    name = os.path.basename(directory)
    return name.isascii() and name.isdigit()


def next_version(base):
    """Returns the path of the first version number in folder `base` above all that it holds."""
    entries = os.listdir(base) if os.path.isdir(base) else []
    versions = [int(entry) for entry in entries if is_version(entry)]
    return os.path.join(base, str(max(versions, default=0) + 1))


@contextlib.contextmanager
def new_version(directory):
    """Gives a temporary folder that gets the version's name when the block ends well.

    The temporary folder stands beside the versions under a name that is no number, so that a
    model server passes over it, also when the process is killed and leaves it behind.

    Args:
        directory: the version's folder; one that holds something is never replaced, not even one
            that appeared during the block.

    Yields:
        The temporary folder's path. It is removed when the block raises.

    Raises:
        InputError: if the folder exists and holds something.
    """
    _check_free(directory)
    for leftover in glob.glob(f"{glob.escape(os.path.dirname(directory))}/*.export.tmp"):
        logging.warning(
            "%s is of an export under way, or of one that was killed: then delete it.", leftover
        )
    temporary = f"{directory}.{os.getpid()}.export.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        yield temporary
        try:
            os.rename(temporary, directory)  # fails where anything but an empty folder stands
        except OSError:
            _check_free(directory)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_free(directory):
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        base = os.path.dirname(directory) if is_version(directory) else directory
        raise InputError(f"{directory} exists already: export to {next_version(base)} instead.")
