"""Which devices train together (the paper: eight of them, section 5.2)."""

import functools
import json
import os

import tensorflow as tf

from t2t_keras.graphs import graph_function


def default_strategy():
    """Returns the strategy for the devices and hosts at hand.

    With a cluster of several workers in the environment variable TF_CONFIG it is
    `MultiWorkerMirroredStrategy`: then this must be called before anything else of TensorFlow.
    Else it is `MirroredStrategy` over all devices if there are several, else the plain one.
    Devices are the GPUs, or without any the logical CPU devices. A batch is always the global one:
    the strategy cuts it by rows into one share a replica, and the loss and its gradient are those
    of the whole. Model, optimizer and metrics must be made within `strategy.scope()`.

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


def worker_count():
    """Returns how many processes train together, by TF_CONFIG; 1 without it."""
    cluster = _tf_config().get("cluster", {})
    return max(1, len(cluster.get("chief", [])) + len(cluster.get("worker", [])))


def is_chief():
    """Whether this process is the one that writes: the only one, the chief or worker 0."""
    task = _tf_config().get("task", {})
    cluster = _tf_config().get("cluster", {})
    if worker_count() == 1 or task.get("type") == "chief":
        return True
    return "chief" not in cluster and task.get("index") == 0


def any_worker(flag):
    """Whether flag is true on any of the workers, which must all ask at the same time."""
    if worker_count() == 1:
        return bool(flag)
    strategy = default_strategy()
    counts = _count_of(strategy)(tf.constant(float(flag)))
    return float(strategy.experimental_local_results(counts)[0]) > 0


def wait_for_all():
    """Returns when all workers have come here."""
    any_worker(False)


@functools.cache
def _multi_worker_strategy():
    return tf.distribute.MultiWorkerMirroredStrategy()  # a process may make but one


@functools.cache
def _count_of(strategy):
    """Returns a function that adds up a float32 scalar of every replica, traced once."""

    def add_up(mine):
        mine = tf.identity(mine)  # on the replica's own device, which `all_reduce` asks for
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)

    return graph_function(lambda mine: strategy.run(add_up, args=(mine,)))


def _tf_config():
    return json.loads(os.environ.get("TF_CONFIG") or "{}")
