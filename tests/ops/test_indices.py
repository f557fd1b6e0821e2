"""Integers that count and choose are int32 on the host and int64 on the GPU."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "int32"), ("xla", "int32"), ("gpu", "int64")]
)
def test_indices_are_those_of_numpy_in_the_type_of_the_device(device, dtype):
    x = np.array([[3, 1], [2, 0]])
    with ops.made_for(device):
        found = {
            "index": (ops.to_index(tf.constant(x, tf.int32)), x),
            "truth": (ops.to_index(tf.constant(x) > 1), x > 1),
            "arange": (ops.arange(tf.constant(5)), np.arange(5)),
            "none": (ops.arange(0), np.arange(0)),
            "pad_end": (ops.pad_end(ops.to_index(x)), np.pad(x, [[0, 0], [0, 1]])),
            "by two": (ops.pad_end(ops.to_index(x)[0], tf.constant(2)), [3, 1, 0, 0]),
            "empty": (ops.pad_end(tf.zeros([2, 3, 0], ops.index_dtype())), np.zeros([2, 3, 1])),
        }
    for name, (tensor, expected) in found.items():
        assert tensor.dtype == dtype, name
        np.testing.assert_array_equal(tensor, expected, name)
