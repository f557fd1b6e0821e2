"""Numbered versions in a served model's folder: the next number, and atomic creation."""

import contextlib
import glob
import os
import shutil

from absl import logging

from t2t_keras.errors import InputError


def is_version(directory):
    """Returns whether a folder's name makes it a version for a model server."""
    name = os.path.basename(directory)
    return name.isascii() and name.isdigit()


def next_version(base):
    """Returns the path of the next version: one above the largest number in folder `base`."""
    entries = os.listdir(base) if os.path.isdir(base) else []
    versions = [int(entry) for entry in entries if is_version(entry)]
    return os.path.join(base, str(max(versions, default=0) + 1))


@contextlib.contextmanager
def new_version(directory):
    """Yields a temporary folder that is renamed to the version when the block succeeds.

    The temporary folder is in the same parent folder. Its name is no number, so that a model
    server ignores it, even if the process is killed and leaves it there.

    Args:
        directory: the version's folder; a folder that is not empty is never replaced, even if it
            appeared during the block.

    Yields:
        The temporary folder's path. It is removed when the block raises.

    Raises:
        InputError: if the folder exists and is not empty.
    """
    _check_free(directory)
    for leftover in glob.glob(f"{glob.escape(os.path.dirname(directory))}/*.export.tmp"):
        logging.warning(
            "%s belongs to an export that is running, or that was killed: then delete it.", leftover
        )
    temporary = f"{directory}.{os.getpid()}.export.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        yield temporary
        try:
            os.rename(temporary, directory)  # fails unless the target is missing or an empty folder
        except OSError:
            _check_free(directory)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_free(directory):
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        base = os.path.dirname(directory) if is_version(directory) else directory
        raise InputError(f"{directory} exists already: export to {next_version(base)} instead.")
