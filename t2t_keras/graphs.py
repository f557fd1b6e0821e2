"""Graphs of functions as they are written.

AutoGraph rewrites each function that is called while a graph is made, so that `if`, `while` and
`for` over tensors become operations. This library writes such operations itself (`tf.while_loop`),
and rewriting took a third of the time of whatever makes graphs and little else.
"""

import functools

import tensorflow as tf

graph_function = functools.partial(tf.function, autograph=False)
"""`tf.function` without AutoGraph."""

as_written = tf.autograph.experimental.do_not_convert
"""For what makes datasets, or is given to one: no function of theirs is rewritten."""
