"""Graphs of functions whose Python is already graph code.

AutoGraph rewrites each function that is called while a graph is made, so that `if`, `while` and
`for` over tensors become operations. This library writes such operations itself (`tf.while_loop`),
and rewriting took a third of the time in which graphs are made.
"""

import functools

import tensorflow as tf

graph_function = functools.partial(tf.function, autograph=False)
"""`tf.function` without AutoGraph."""
