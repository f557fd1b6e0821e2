"""Packing: rows full of whole pairs that can be told apart again."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import Packing
from t2t_keras.errors import InputError


def _examples(count=300):
    chance = np.random.default_rng(0)
    rows = [
        [[*chance.integers(10, 99, chance.integers(0, 12)).tolist(), 1] for _ in range(count)]
        for _ in range(2)
    ]
    sides = [tf.ragged.constant(side, dtype=tf.int32) for side in rows]
    return tf.data.Dataset.from_tensor_slices(dict(zip(("source", "target"), sides, strict=True)))


def _unpacked(inputs, labels):
    for row in range(labels.shape[0]):
        source_segments, target_segments = inputs["source_segments"], inputs["target_segments"]
        for segment in range(1, int(tf.reduce_max(source_segments[row])) + 1):
            source = inputs["source_ids"][row][source_segments[row] == segment]
            here = target_segments[row] == segment
            target, given = labels[row][here], inputs["target_ids"][row][here]
            yield tuple(source.numpy()), tuple(target.numpy()), tuple(given.numpy())


def test_unpacking_gives_back_the_pairs_each_behind_a_start():
    examples = _examples()
    seen = Counter()
    for inputs, labels, _ in Packing(128, 32)(examples, seed=3):
        for source, target, given in _unpacked(inputs, labels):
            assert given == (3, *target[:-1])
            seen[source, target] += 1
    assert seen == Counter(
        (tuple(pair["source"]), tuple(pair["target"])) for pair in examples.as_numpy_iterator()
    )


def test_positions_restart_in_every_pair_and_padding_is_nothing():
    batches = list(Packing(128, 32)(_examples()))
    for inputs, labels, weights in batches:
        assert inputs["source_ids"].shape == labels.shape == (labels.shape[0], 32)
        for side, ids in (("source", inputs["source_ids"]), ("target", labels)):
            segments = inputs[f"{side}_segments"].numpy()
            positions = inputs[f"{side}_positions"].numpy()
            assert {segments.dtype, positions.dtype} == {np.dtype(np.int32)}
            np.testing.assert_array_equal(segments == 0, ids.numpy() == 0)
            for row, places in zip(segments, positions, strict=True):
                filled = int((row > 0).sum())
                begins = np.flatnonzero(np.diff(row[:filled], prepend=0))
                np.testing.assert_array_equal(row[begins], np.arange(1, len(begins) + 1))
                expected = np.arange(filled) - np.repeat(begins, np.diff([*begins, filled]))
                np.testing.assert_array_equal(places[:filled], expected)
                assert not places[filled:].any()
        np.testing.assert_array_equal(weights, labels.numpy() != 0)
    assert [labels.shape[0] for _, labels, _ in batches[:-1]] == [4] * (len(batches) - 1)


def test_rows_are_filled_as_far_as_the_next_pair_allows():
    """Against a plain loop over the same order."""
    lengths = np.random.default_rng(1).integers(1, 20, [400, 2])
    plan = Packing(256, 64).plan(tf.constant(lengths, tf.int32), None)
    rows = plan.merge_dims(0, 1)
    used, expected, size = np.zeros(2, int), [], 0
    for pair in lengths[rows.values.numpy()]:
        if (used + pair).max() > 64:
            expected.append(size)
            used, size = np.zeros(2, int), 0
        used, size = used + pair, size + 1
    assert rows.row_lengths().numpy().tolist() == [*expected, size]


def test_what_does_not_fit_is_an_input_error():
    with pytest.raises(InputError, match="a pair of 33 tokens does not fit a row of 32"):
        Packing(128, 32).check(33)
    with pytest.raises(InputError, match="row_length 64"):
        Packing(32, 64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not fit"):
        next(iter(Packing(64, 4)(_examples())))
