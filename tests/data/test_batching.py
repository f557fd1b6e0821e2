"""Length buckets: every pair once, within the budget, with little padding."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import LengthBuckets, Packing
from t2t_keras.data.shards import Window
from t2t_keras.errors import InputError


def _examples(lengths):
    """Pairs of given lengths whose ids, unlike in every pair, end with 1."""

    def sequence(number, length):
        return [*range(100 * number + 10, 100 * number + 9 + length), 1]

    sources = tf.ragged.constant(
        [sequence(n, s) for n, (s, _) in enumerate(lengths)], dtype=tf.int32
    )
    targets = tf.ragged.constant(
        [sequence(n, t) for n, (_, t) in enumerate(lengths)], dtype=tf.int32
    )
    return tf.data.Dataset.from_tensor_slices({"source": sources, "target": targets})


def _lengths(count=500):
    chance = np.random.default_rng(0)
    source = chance.integers(1, 40, count)
    return np.stack([source, np.clip(source + chance.integers(-5, 6, count), 1, None)], axis=1)


def _unpadded(ids):
    return [tuple(row[row != 0]) for row in ids.numpy()]


def test_a_batch_is_the_contract():
    inputs, labels, weights = next(iter(LengthBuckets(100)(_examples([(3, 4), (2, 2)]))))
    assert inputs["source_ids"].numpy().tolist() == [[110, 1, 0], [10, 11, 1]]
    assert labels.numpy().tolist() == [[110, 1, 0, 0], [10, 11, 12, 1]]
    assert inputs["target_ids"].numpy().tolist() == [[3, 110, 0, 0], [3, 10, 11, 12]]
    assert weights.numpy().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert set(inputs) == {"source_ids", "target_ids"}
    assert {labels.dtype, inputs["source_ids"].dtype, inputs["target_ids"].dtype} == {tf.int32}
    assert weights.dtype == tf.float32


@pytest.mark.parametrize("seed", [None, 5])
def test_every_pair_comes_once_within_the_budget(seed):
    examples = _examples(_lengths())
    seen = Counter()
    for inputs, labels, _ in LengthBuckets(200)(examples, seed=seed):
        assert max(tf.size(inputs["source_ids"]), tf.size(labels)) <= 200
        seen.update(zip(_unpadded(inputs["source_ids"]), _unpadded(labels), strict=True))
    assert seen == Counter(
        (tuple(pair["source"]), tuple(pair["target"])) for pair in examples.as_numpy_iterator()
    )


def test_a_pair_beyond_the_budget_gets_a_batch_of_its_own():
    rows = [labels.shape for _, labels, _ in LengthBuckets(10)(_examples([(30, 20), (2, 3)]))]
    assert rows == [(1, 3), (1, 20)]


def test_batches_are_as_large_as_the_budget_allows():
    """Against a plain loop over the same order."""
    lengths = _lengths()
    plan = LengthBuckets(256).plan(tf.constant(lengths, tf.int32), None)
    longest = lengths.max(axis=1)[plan.values.numpy()]
    expected, size = [], 0
    for place in range(len(longest)):
        if size and (size + 1) * longest[place - size : place + 1].max() > 256:
            expected.append(size)
            size = 0
        size += 1
    assert plan.row_lengths().numpy().tolist() == [*expected, size]


def test_batches_hold_a_multiple_where_there_is_room():
    plan = LengthBuckets(128, batch_multiple=4).plan(tf.constant(_lengths(), tf.int32), None)
    sizes = plan.row_lengths().numpy()
    assert sizes.sum() == 500
    assert all(size % 4 == 0 or size < 4 for size in sizes[:-1])


@pytest.mark.parametrize("batcher", [LengthBuckets(256), Packing(256, 64)])
def test_the_number_of_batches_does_not_depend_on_the_seed(batcher):
    lengths = tf.constant(_lengths(), tf.int32)
    plans = [batcher.plan(lengths, seed) for seed in (None, [0, 0], [0, 1], [7, 7])]
    assert len({int(plan.nrows()) for plan in plans}) == 1
    assert plans[1].to_list() != plans[2].to_list()
    assert plans[2].to_list() == batcher.plan(lengths, [0, 1]).to_list()


def test_shuffled_batches_come_in_random_lengths():
    examples = _examples(_lengths())
    widths = [labels.shape[1] for _, labels, _ in LengthBuckets(100)(examples, seed=1)]
    ordered = [labels.shape[1] for _, labels, _ in LengthBuckets(100)(examples)]
    assert np.corrcoef(ordered, range(len(ordered)))[0, 1] > 0.9
    assert abs(np.corrcoef(widths, range(len(widths)))[0, 1]) < 0.3


def test_pairs_of_equal_lengths_change_company():
    lengths = tf.fill([64, 2], 5)
    plans = [LengthBuckets(40).plan(lengths, [0, epoch]).to_list() for epoch in range(2)]
    company = [{frozenset(batch) for batch in plan} for plan in plans]
    assert not company[0] & company[1]


def test_impossible_budgets_are_input_errors():
    for arguments in ((0,), (10, 0)):
        with pytest.raises(InputError, match="at least 1"):
            LengthBuckets(*arguments)


def test_a_window_knows_its_lengths():
    source, target = tf.ragged.constant([[5, 1], [1]]), tf.ragged.constant([[1], [7, 8, 1]])
    window = Window.of(source, target)
    assert window.lengths.numpy().tolist() == [[2, 1], [1, 3]]
    assert window.source.to_list() == source.to_list()
    assert window.target.to_list() == target.to_list()
