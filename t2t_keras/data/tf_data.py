"""How tf.data runs in this library: deterministic order, fixed parallelism, no AutoGraph.

tf.data tunes its parallelism in a thread that sleeps 10 ms, 20 ms, 40 ms … up to a minute between
two rounds. In TensorFlow 2.21 the end of an iterator waits until that thread wakes, so that the end
of a `fit` takes up to as long again as the `fit` itself. Parallelism is small and fixed here.
"""

import tensorflow as tf

PARALLEL_CALLS = 4

no_autograph = tf.autograph.experimental.do_not_convert
"""Decorator for functions that make datasets or are mapped over one.

They contain no Python control flow over tensors, and AutoGraph's rewriting of them took a third of
the time in which a dataset is built.
"""


def deterministic(dataset):
    """Returns the dataset with elements in deterministic order and without autotuning."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return dataset.with_options(options)
