"""How a graph computes: options that belong to the graph being traced.

Every form of a function computes the same. `made_for` sets the device that a graph is traced for,
`plain` selects the definitions on any device, a search sets the products of its steps, and
`in_int8` the matrices that are multiplied in int8 (`ops.products`).

A graph's options apply to the graphs inside it (branches, loops, replicas, what XLA compiles) and
to no others, so that one thread may trace for a GPU while another one translates. Options set
outside any graph belong to the thread and apply to the graphs that it traces.
"""

import contextlib
import dataclasses
import threading
import weakref

import tensorflow as tf

DEVICES = ("cpu", "gpu", "xla")


@dataclasses.dataclass(frozen=True)
class TraceOptions:
    """How a graph computes."""

    device: str | None = None  # "cpu", "gpu" or "xla"; None: `visible_device()`
    plain: bool = False  # whether all functions take their plain forms
    # `ops.products.Products` of a decoding step, or of int8; None: the plain ones
    products: object = None
    compiled_search: bool = False  # whether XLA compiles the steps of a search, if it can
    fixed_sizes: bool = False  # whether what grows in a search has room already, see `ops.append`


_by_graph = weakref.WeakKeyDictionary()  # {graph: its options, within a block}
_of_thread = threading.local()


def options():
    """Returns the `TraceOptions` of the graph being traced; outside graphs, of this thread."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        if graph in _by_graph:
            return _by_graph[graph]
        graph = getattr(graph, "outer_graph", None)
    return getattr(_of_thread, "options", TraceOptions())


@contextlib.contextmanager
def traced_with(chosen):
    """Context manager that sets `TraceOptions` for everything traced in the block."""
    if tf.executing_eagerly():
        before = options()
        _of_thread.options = chosen
        try:
            yield
        finally:
            _of_thread.options = before
        return
    graph = tf.compat.v1.get_default_graph()
    before = _by_graph.get(graph)
    _by_graph[graph] = chosen
    try:
        yield
    finally:
        if before is None:
            del _by_graph[graph]
        else:
            _by_graph[graph] = before


def made_for(name):
    """Context manager that traces the block for "cpu", "gpu" or "xla"; else ValueError."""
    if name not in DEVICES:
        raise ValueError(f"device is {name!r}: choose one of {', '.join(DEVICES)}.")
    return traced_with(dataclasses.replace(options(), device=name))


def plain():
    """Context manager that traces the block with plain forms."""
    return traced_with(dataclasses.replace(options(), plain=True))


def device():
    """Returns the device that the graph being traced is made for: "cpu", "gpu" or "xla"."""
    return options().device or visible_device()


def visible_device():
    """Returns the device of this process: "gpu" if TensorFlow may use one, else "cpu"."""
    return "gpu" if tf.config.get_visible_devices("GPU") else "cpu"


def fast_forms():
    """Returns whether the graph being traced uses the fast CPU forms."""
    return device() == "cpu" and not options().plain


def xla_forms():
    """Returns whether the graph being traced uses the forms for XLA."""
    return device() == "xla" and not options().plain
