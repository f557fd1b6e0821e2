"""Reshaping with dimensions that are unknown when the graph is traced."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops


def _traced(signature, shape, like_shape):
    """Returns the shape of a result and the operations of its graph."""

    @tf.function(input_signature=[tf.TensorSpec(signature)])
    def split(x):
        return ops.reshape(x, shape(x), like=x)

    x = np.arange(np.prod(like_shape), dtype=np.float32).reshape(like_shape)
    operations = {op.type for op in split.get_concrete_function().graph.get_operations()}
    return x, split(x).numpy(), split.get_concrete_function().structured_outputs.shape, operations


@pytest.mark.parametrize(
    ("signature", "reads_shape"),
    [([2, 3, 8], False), ([None, 3, 8], False), ([2, None, 8], False), ([None, None, 8], True)],
)
def test_the_last_dimension_is_split_whatever_is_unknown(signature, reads_shape):
    x, y, static, operations = _traced(signature, lambda x: [*x.shape[:2], 4, 2], [2, 3, 8])
    np.testing.assert_array_equal(y, x.reshape(2, 3, 4, 2))
    assert static.as_list() == [*signature[:2], 4, 2]
    assert ("Shape" in operations) == reads_shape


def test_an_empty_dimension_beside_an_unknown_one_is_kept():
    _, y, static, _ = _traced([None, 0, 8], lambda x: [*x.shape[:2], 4, 2], [5, 0, 8])
    assert y.shape == (5, 0, 4, 2)
    assert static.as_list() == [None, 0, 4, 2]
