"""Which devices train together (the paper: eight of them, section 5.2)."""

import tensorflow as tf


def default_strategy():
    """Returns `MirroredStrategy` over all devices if there are several, else the plain strategy.

    Devices are the GPUs, or without any the logical CPU devices. A batch is always the global one:
    the strategy cuts it by rows into one share a replica, and the loss and its gradient are those
    of the whole. Model, optimizer and metrics must be made within `strategy.scope()`.

    Example:
        >>> with default_strategy().scope():
        ...     model = make_and_compile_model()
        >>> model.fit(dataset)
    """
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) > 1:
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()
