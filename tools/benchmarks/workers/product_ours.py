"""The matmul rate of the machine: a product of two square matrices, by TensorFlow."""

import tensorflow as tf
from common import answer, median_time


def measure(dtype, rows, repeats, threads):
    factors = [tf.cast(tf.random.stateless_normal([rows, rows], [0, i]), dtype) for i in (0, 1)]
    product = tf.function(lambda a, b: tf.reduce_sum(tf.matmul(a, b)))
    seconds = median_time(lambda: product(*factors).numpy(), repeats, warm_up=2)
    return {"GFLOP/s": 2 * rows**3 / seconds / 1e9}


answer(measure)
