"""The nearest of many vectors against distances by NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import nearest as module
from t2t_keras.layers.nearest import in_blocks, nearest


def search(queries, vectors, count):
    """Calls `nearest` with vectors in blocks, the last one filled up."""
    blocks, block = in_blocks(len(vectors))
    missing = blocks * block - len(vectors)
    squares = np.pad((vectors**2).sum(axis=1), (0, missing), constant_values=np.inf)
    keys = np.pad(vectors, [(0, missing), (0, 0)]).reshape(blocks, block, -1)
    squares = squares.reshape(blocks, block)
    return nearest(*(tf.constant(x, tf.float32) for x in (queries, keys, squares)), count)


@pytest.mark.parametrize("block", [8, 100, 2048])
def test_they_are_those_of_the_smallest_distances(monkeypatch, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(0)
    queries, vectors = rng.normal(size=(9, 5)), rng.normal(size=(1_003, 5))
    distances = ((queries[:, np.newaxis] - vectors) ** 2).sum(axis=2)
    expected = np.argsort(distances, axis=1)[:, :7]
    values, places = search(queries, vectors, 7)
    np.testing.assert_array_equal(places, expected)
    squares = (queries**2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        squares - values, np.take_along_axis(distances, expected, axis=1), atol=1e-4
    )


def test_of_equal_distances_the_earlier_comes_first(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 256)
    vectors = np.random.default_rng(0).integers(0, 2, (1_000, 3)).astype(float)
    queries = np.ones([1, 3])
    distances = ((queries - vectors) ** 2).sum(axis=1)
    _, places = search(queries, vectors, 6)
    np.testing.assert_array_equal(places[0], np.argsort(distances, kind="stable")[:6])


def test_no_query_finds_nothing():
    values, places = search(np.zeros([0, 3]), np.ones([4, 3]), 2)
    assert values.shape == (0, 2) and places.shape == (0, 2)
