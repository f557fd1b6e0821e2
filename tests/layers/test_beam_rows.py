"""Rows of decoding as heads, beside NumPy's transpose."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.beam_rows import BeamRows


@pytest.mark.parametrize(("batch", "beams", "heads", "width"), [(2, 3, 4, 5), (3, 1, 2, 2)])
def test_heads_stand_where_transpose_puts_them(batch, beams, heads, width):
    x = np.arange(batch * beams * heads * width).reshape(batch * beams, -1)
    rows = BeamRows(batch, beams)
    split = rows.split(tf.constant(x), heads)
    expected = x.reshape(batch, beams, heads, width).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(split, expected)
    np.testing.assert_array_equal(rows.join(split), x)


def test_as_many_heads_as_beams_and_sizes_not_known_before_the_call():
    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([], tf.int32)])
    def there_and_back(x, beams):
        rows = BeamRows(tf.shape(x)[0] // beams, beams)
        split = rows.split(x, 2)
        return split, rows.join(split)

    x = np.random.default_rng(0).normal(size=(6, 8)).astype("float32")
    split, back = there_and_back(x, 2)
    np.testing.assert_array_equal(split, x.reshape(3, 2, 2, 4).transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(back, x)
