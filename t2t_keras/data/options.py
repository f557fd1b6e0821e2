"""How the datasets of this library run: the same order every time, and an end without waiting.

tf.data tunes its parallelism in a thread that sleeps 10 ms, 20 ms, 40 ms … up to a minute between
two looks, and in TensorFlow 2.21 an iterator that is let go waits until the thread wakes: the end
of a `fit` takes up to as long again as the `fit` itself. Parallelism is small and fixed here.
"""

import tensorflow as tf

PARALLEL_CALLS = 4


def steady(dataset):
    """Returns the dataset without tuning, in deterministic order."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    return dataset.with_options(options)
