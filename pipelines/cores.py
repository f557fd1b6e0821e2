"""How the cores of this machine are shared out between what is done side by side."""

import os

import tensorflow as tf
from absl import logging

_MOST_BATCHES = 8  # each takes memory of its own


def share(at_once):
    """Gives each of some things its share of the cores, instead of each operation all of them.

    Args:
        at_once: how many things are done side by side; 1 leaves everything as it is.
    """
    if at_once <= 1:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(_count() // at_once, 1))
    except RuntimeError:  # only before TensorFlow has done anything
        logging.warning("TensorFlow is running: operations go on taking as many threads as before")


def share_between_batches(wanted=None):
    """Shares the cores out between batches of text that are worked on side by side.

    Args:
        wanted: number of batches; None: one for each core, at most 8, and one alone with a GPU.

    Returns:
        The number.
    """
    if wanted is None:
        wanted = 1 if tf.config.list_physical_devices("GPU") else min(_count(), _MOST_BATCHES)
    share(wanted)
    return wanted


def _count():
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
