"""Data-parallel training on several devices and hosts (the paper: eight GPUs, section 5.2).

`default_strategy` chooses the `tf.distribute` strategy. The other functions are for several
workers, processes on several hosts, which exchange small numbers at the same points of the program.
One of them is the chief; only the chief writes files. With one worker these functions do nothing.
"""

import functools
import json
import os

import numpy as np
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function

_FAILED = -1  # what `call_on_chief` gives the other workers when the chief raised an error


def default_strategy() -> tf.distribute.Strategy:
    """Returns the strategy for the available devices and hosts.

    If the environment variable TF_CONFIG describes a cluster of several workers, it is
    `MultiWorkerMirroredStrategy`; call this function before any other use of TensorFlow. Otherwise
    it is `MirroredStrategy` over all devices if there are several, else TensorFlow's default
    strategy. Devices are the GPUs or, if there are none, the logical CPU devices.

    The replicas' gradients are added up in packs of 32 MiB, so that the sum of one pack overlaps
    with the backward pass (not with XLA or loss scaling, which need all gradients first). Each
    replica then makes the whole update.

    A batch is always the global batch: the strategy splits it by rows among the replicas. Their
    parts may be unequal, even empty. Loss and gradient are computed over the global batch, also for
    Keras's losses. A loss without reduction, or one that returns a single number, is refused.
    Model, optimizer and metrics must be made within `strategy.scope()`.

    Example:
        >>> with default_strategy().scope():
        ...     model = make_and_compile_model()
        >>> model.fit(dataset)
    """
    if worker_count() > 1:
        return _multi_worker_strategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) > 1:
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()


def worker_count() -> int:
    """Returns the number of processes that train together, from TF_CONFIG; 1 without it."""
    cluster = _tf_config().get("cluster", {})
    return max(1, len(cluster.get("chief", [])) + len(cluster.get("worker", [])))


def is_chief() -> bool:
    """Whether this process writes files: the only one, the chief, or worker 0 without a chief."""
    return _worker_index() == 0


def gather_from_workers(value):
    """Returns the ints of all workers, int64 array [workers], the chief's first.

    All workers must call it, in the same order.
    """
    if worker_count() == 1:
        return np.array([value], np.int64)
    mine = np.zeros([worker_count()], np.int64)
    mine[_worker_index()] = value
    strategy = default_strategy()
    total = _sum_function(strategy)(tf.constant(mine))
    replicas_per_worker = strategy.num_replicas_in_sync // worker_count()  # each adds its share
    return strategy.experimental_local_results(total)[0].numpy() // replicas_per_worker


def all_reduce_any(flag):
    """Returns whether a flag is true in any worker. All workers must call it, in the same order."""
    return bool(np.any(gather_from_workers(int(bool(flag)))))


def barrier():
    """Returns when all workers have called it."""
    gather_from_workers(0)


def call_on_chief(function):
    """Calls a function in the chief while the other workers wait; returns its result in all.

    The function has no arguments and returns an int of at least 0, or None for 0.

    Raises:
        InputError: in the other workers, if the function raised an error in the chief.
    """
    try:
        mine = (function() or 0) if is_chief() else 0
    except Exception:
        gather_from_workers(_FAILED)
        raise
    result = int(gather_from_workers(mine)[0])
    if result == _FAILED:
        raise InputError("The chief worker stopped: its own message says why.")
    return result


@functools.cache
def _multi_worker_strategy():
    return keras_compat.multi_worker_strategy()  # a process can make only one


@functools.lru_cache(1)
def _sum_function(strategy):
    """Returns a function that adds up a tensor of every replica, traced once."""

    def add_up(mine):
        mine = tf.identity(mine)  # on the replica's own device, as `all_reduce` requires
        return keras_compat.sum_over_replicas([mine])[0]

    return graph_function(lambda mine: strategy.run(add_up, args=(mine,)))


def _worker_index():
    """Returns this worker's index among all of them: 0 is the chief's."""
    task = _tf_config().get("task", {})
    if worker_count() == 1 or task.get("type") == "chief":
        return 0
    return int(task.get("index", 0)) + len(_tf_config()["cluster"].get("chief", []))


def _tf_config():
    return json.loads(os.environ.get("TF_CONFIG") or "{}")
