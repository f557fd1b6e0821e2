"""Gradients that are registered once: the same in eager code and graphs, and no graph is kept."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.ops.gradients import define_gradient


@define_gradient("TestCube")
def with_gradient(upstream, x, factor, square):
    del factor
    return [upstream * 7.0 * square, None]  # 7 instead of 3: no other way leads to it


def cube(x):
    return with_gradient(x**3, x, tf.constant(2, tf.int32), x * x)


def taped(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = cube(x)
    return tape.gradient(y, x)


def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, cube(y)), (0, x))[1]


@pytest.mark.parametrize("jit", [False, True])
def test_the_gradient_is_used_by_every_tape(jit):
    x = tf.constant([2.0, -1.0])
    expected = [28.0, 7.0]
    np.testing.assert_allclose(taped(x), expected)
    function = tf.function(taped, autograph=False, jit_compile=jit)
    np.testing.assert_allclose(function(x), expected)
    with tf.GradientTape() as tape:  # a tape around the function
        tape.watch(x)
        y = tf.function(cube, autograph=False, jit_compile=jit)(x)
    np.testing.assert_allclose(tape.gradient(y, x), expected)
    graph = tf.function(lambda x: tf.gradients(cube(x), x), autograph=False, jit_compile=jit)
    np.testing.assert_allclose(graph(x)[0], expected)


def test_the_gradient_is_used_in_loops():
    x = tf.constant(2.0)
    for inside in (in_a_loop, tf.function(in_a_loop, autograph=False)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inside(x)
        np.testing.assert_allclose(tape.gradient(y, x), 7 * 8**2 * 7 * 2**2)


def test_second_derivatives_of_layer_norm_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    x, gamma, beta, direction = (tf.constant(rng.normal(size=s)) for s in ((2, 5), 5, 5, (2, 5)))

    def second(norm):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(norm(x) ** 3)
            first = tf.reduce_sum(inner.gradient(y, x) * direction)
        return outer.gradient(first, x)

    def formula(x):  # `tf.nn.moments` has no gradient of the mean within the variance
        centered = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(centered**2, -1, keepdims=True)
        return centered / tf.sqrt(variance + 1e-3) * gamma + beta

    found = second(lambda x: ops.layer_norm(x, gamma, beta, 1e-3))
    np.testing.assert_allclose(found, second(formula), atol=1e-9)


def graph_outlives_its_function(body):
    """Whether the graph of a function with a tape is kept after the function is gone."""
    graphs = []

    def step(x):
        graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = body(x)
        return tape.gradient(y, x)

    function = tf.function(step, autograph=False)
    function(tf.constant(1.0))
    del function
    gc.collect()
    return graphs[0]() is not None


def test_no_graph_is_kept():
    assert not graph_outlives_its_function(cube)
