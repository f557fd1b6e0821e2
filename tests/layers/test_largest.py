"""The largest value of a row against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.largest import block_size, largest_place


@pytest.mark.parametrize("width", [1, 7, 128, 331, 10_000, 36 * 37])
def test_it_stands_where_numpy_finds_it(width):
    values = np.random.default_rng(0).normal(size=(50, width)).astype("float32")
    np.testing.assert_array_equal(largest_place(values), values.argmax(axis=1))
    ties = np.round(values)  # the largest stands in several places
    np.testing.assert_array_equal(largest_place(ties), ties.argmax(axis=1))


def test_rows_may_be_none_or_hold_nothing_but_minus_infinity():
    assert largest_place(tf.zeros([0, 10_000])).shape == [0]
    np.testing.assert_array_equal(largest_place(tf.fill([2, 10_000], -np.inf)), [0, 0])


def test_blocks_divide_the_row_and_are_few_enough_to_spare_work():
    assert block_size(10_000, 1) == 125
    assert block_size(10_000, 20) == 125
    assert block_size(10_000, 21) == 100
    assert block_size(10_007, 1) is None  # a prime
    assert block_size(100, 1) is None
