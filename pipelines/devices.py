"""GPUs, CPU cores and other workers of a command."""

import os

import tensorflow as tf
from absl import logging

from t2t_keras.training.callbacks import PREEMPTED
from t2t_keras.training.distribution import worker_count

LOST_WORKER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
"""Errors that the remaining workers get when one of several is lost."""


def lost_worker(error):
    """Returns the message and exit code for one of `LOST_WORKER`; raises it with one worker."""
    if worker_count() == 1:
        raise error
    return (
        f"training with {worker_count()} workers broke off ({str(error).splitlines()[0]}): start "
        "all of them again with the same command, and they resume from the last checkpoint."
    ), PREEMPTED


_NVIDIA = ("/proc/driver/nvidia/gpus", "/dev/nvidia0")


def choose_devices(gpu=True):
    """Logs the devices of this process, and warns of a GPU that TensorFlow cannot use.

    Call it before TensorFlow's first operation. GPU memory is allocated as needed; gpu=False hides
    all GPUs, so that this process does not take their memory.
    """
    try:
        if not gpu:
            tf.config.set_visible_devices([], "GPU")
        gpus = tf.config.get_visible_devices("GPU")
        for device in gpus:
            tf.config.experimental.set_memory_growth(device, True)
    except (RuntimeError, ValueError) as error:
        logging.warning("The use of GPUs stays as it was: %s", error)
        return
    if not gpu:
        return
    details = map(tf.config.experimental.get_device_details, gpus)
    names = [detail.get("device_name", "GPU") for detail in details]
    logging.info("Devices: %s", ", ".join(names) or f"CPU, {_count_cores()} cores")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not gpus and not hidden and any(os.path.exists(path) for path in _NVIDIA):
        logging.warning(
            "This machine has an NVIDIA GPU that TensorFlow cannot use: pip install "
            "'t2t_keras[gpu]' brings CUDA's libraries; the driver must be recent enough for them."
        )


_MAX_BATCHES = 8  # each takes memory of its own


def limit_threads(parallel):
    """Gives each operation 1/`parallel` of the cores; with 1, all of them as before."""
    if parallel <= 1:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(_count_cores() // parallel, 1))
    except RuntimeError:  # possible only before TensorFlow's first operation
        logging.warning("TensorFlow is initialized: operations take as many threads as before")


def limit_threads_per_batch(wanted=None):
    """Divides the cores among batches of text that are computed in parallel; returns their number.

    None wanted: one per core, at most 8, and a single one with a GPU.
    """
    if wanted is None:
        has_gpu = tf.config.get_visible_devices("GPU")
        wanted = 1 if has_gpu else min(_count_cores(), _MAX_BATCHES)
    limit_threads(wanted)
    return wanted


def _count_cores():
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
