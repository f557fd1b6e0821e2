"""The one switch of the forms that the functions in this folder take in a graph.

Every form computes the same. `made_for` states the device that a graph is traced for; `plain` takes
the definitions whatever the device.
"""

import contextlib
import threading

import tensorflow as tf

DEVICES = ("cpu", "gpu", "xla")

_blocks = []  # [(thread, device or "plain")] of the blocks that have been entered, newest last


def device():
    """Returns the device that the graph being traced is made for: "cpu", "gpu" or "xla".

    By default "gpu" if TensorFlow may use a GPU in this process, else "cpu".
    """
    visible = "gpu" if tf.config.get_visible_devices("GPU") else "cpu"
    return next((name for name in _names() if name != "plain"), visible)


def fast_forms():
    """Returns whether the graph being traced takes the fast CPU forms."""
    return "plain" not in _names() and device() == "cpu"


def made_for(name):
    """Traces everything inside the block for a device, "cpu", "gpu" or "xla", a context manager."""
    if name not in DEVICES:
        raise ValueError(f"device is {name!r}: choose one of {', '.join(DEVICES)}.")
    return _block(name)


def plain():
    """Traces everything inside the block with plain forms, few lines of TensorFlow each."""
    return _block("plain")


@contextlib.contextmanager
def _block(name):
    block = (threading.get_ident(), name)
    _blocks.append(block)
    try:
        yield
    finally:
        _blocks.remove(block)  # replicas of a strategy leave their blocks in any order


def _names():
    """Returns the names of the blocks around a call, the innermost first.

    A thread without a block, as a replica of `MirroredStrategy` is traced by, is in all of them.
    """
    blocks, thread = _blocks[::-1], threading.get_ident()
    own = [name for owner, name in blocks if owner == thread]
    return own or [name for _, name in blocks]
