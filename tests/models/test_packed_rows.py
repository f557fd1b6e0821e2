"""Rows that hold several pairs: no pair attends to another, and none to padding."""

import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_transformer import inputs, randomized, small


@pytest.mark.parametrize(
    "segments", [{}, {"source_segments": [[1, 0, 1, 1]], "target_segments": [[1]]}]
)
def test_padding_inside_a_sequence_is_not_attended_to(segments):
    model = randomized(small())
    batch = {"source_ids": [[5, 0, 7, 1]], "target_ids": [[3]]} | segments
    batch = {name: tf.constant(value) for name, value in batch.items()}
    before = model(batch)[..., 1:]  # without the logit of the padding itself
    matrix = model.embedding.matrix
    matrix.assign(tf.concat([matrix[:1] + 9, matrix[1:]], axis=0))
    np.testing.assert_allclose(model(batch)[..., 1:], before, atol=1e-5)


def test_packed_pairs_equal_the_pairs_alone():
    model = randomized(small())
    packed = {
        "source_ids": [[5, 6, 1, 7, 8, 9, 1, 0]],
        "source_segments": [[1, 1, 1, 2, 2, 2, 2, 0]],
        "source_positions": [[0, 1, 2, 0, 1, 2, 3, 0]],
        "target_ids": [[3, 4, 3, 10, 11, 0]],
        "target_segments": [[1, 1, 2, 2, 2, 0]],
        "target_positions": [[0, 1, 0, 1, 2, 0]],
    }
    together = model({key: tf.constant(value) for key, value in packed.items()})[0]
    first = model(inputs([[5, 6, 1]], [[3, 4]]))[0]
    second = model(inputs([[7, 8, 9, 1]], [[3, 10, 11]]))[0]
    np.testing.assert_allclose(together[:2], first, atol=1e-5)
    np.testing.assert_allclose(together[2:5], second, atol=1e-5)
