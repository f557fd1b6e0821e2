"""Length buckets and packed rows: every pair once, within the budget, with little padding."""

import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import debug_mode

from t2t_keras.data import (
    FolderCorpus,
    LabeledBuckets,
    LengthBuckets,
    Packing,
    batches_per_epoch,
    train_tokenizer,
    training_batches,
    write_shards,
)
from t2t_keras.data.bucket_shapes import bucket_lengths, bucket_shapes
from t2t_keras.data.plain_text import TextBuckets, TextPacking, TextStream, encode_texts
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError
from tests.data.reading import examples_of, packed_sequences, shared_data
from tests.tasks import tiny


def _examples(lengths):
    """Pairs of given lengths whose ids, unlike in every pair, end with 1."""

    def sequence(number, length):
        return [*range(100 * number + 10, 100 * number + 9 + length), 1]

    return examples_of([(sequence(n, s), sequence(n, t)) for n, (s, t) in enumerate(lengths)])


def _lengths(count=200):
    rng = np.random.default_rng(0)
    source = rng.integers(1, 40, count)
    return np.stack([source, np.clip(source + rng.integers(-5, 6, count), 1, None)], axis=1)


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


ROWS = [([5, 6, 1], [7, 1]), ([5, 1], [7, 8, 9, 1])]


def _generated(dtype, rows=ROWS):
    spec = tf.TensorSpec([None], dtype)
    return tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=(spec, spec))


def _padded(side, length=5, dtype="int64"):
    return np.array([row[side] + [0] * (length - len(row[side])) for row in ROWS], dtype)


PADDED = tf.data.Dataset.from_tensor_slices(
    {"source": _padded(0), "target": _padded(1, 6, "uint8")}
)


@pytest.mark.parametrize("batcher", [LengthBuckets(64), Packing(64, 8)])
@pytest.mark.parametrize("examples", [
    _generated(tf.int64),
    PADDED,
    PADDED.map(lambda pair: (pair["source"], pair["target"])),
    _generated(tf.int32).map(lambda *pair: dict(zip(("source", "target"), pair, strict=True))),
])  # fmt: skip
def test_pairs_of_any_integers_dicts_or_tuples_padded_or_not(examples, batcher):
    [(inputs, labels, _)] = batcher(examples)
    ids = inputs["source_ids"].numpy(), labels.numpy()
    assert [sorted(side[side > 0]) for side in ids] == [[1, 1, 5, 5, 6], [1, 1, 7, 7, 8, 9]]
    assert all(side.dtype == np.int32 for side in ids)
    if isinstance(batcher, LengthBuckets):
        assert [side.shape for side in ids] == [(2, 3), (2, 4)]


def test_an_empty_side_is_a_row_of_padding():
    [(inputs, labels, weights)] = LengthBuckets(64)(_generated(tf.int32, [([], []), ([5, 1], [])]))
    assert inputs["source_ids"].numpy().tolist() == [[0, 0], [5, 1]]
    assert labels.numpy().tolist() == weights.numpy().tolist() == [[0], [0]]


def test_a_class_0_is_no_padding():
    examples = tf.data.Dataset.from_tensor_slices(([[5, 6, 1], [5, 1, 0]], [[2], [0]]))
    [(inputs, labels, _)] = LabeledBuckets(64, 8)(examples)
    assert inputs["source_ids"].numpy().tolist() == [[5, 1, 0], [5, 6, 1]]
    assert labels.numpy().tolist() == [0, 2]


@pytest.mark.parametrize(("examples", "words"), [
    (ROWS, "examples are a list: give a tf.data.Dataset"),
    (_generated(tf.float32), "float32.* as source: give"),
    (_generated(tf.int32).padded_batch(2), r"shape=\(None, None\).* as source: give"),
    (_generated(tf.int32).map(lambda a, b: {"input_ids": a, "labels": b}), "have .'input_ids'"),
    (_generated(tf.int32).map(lambda a, b: (a, b, b)), "have .*: give"),
    (_generated(tf.int32).map(lambda a, b: (a, {"target": b})), "as target: give"),
    (tf.data.Dataset.from_tensor_slices({"source": ["a"], "target": ["b"]}), "encode_pairs"),
])  # fmt: skip
def test_datasets_of_something_else_are_refused(examples, words):
    with pytest.raises(InputError, match=words):
        LengthBuckets(64)(examples)


def pairs_of(examples):
    return Counter(
        (tuple(pair["source"]), tuple(pair["target"])) for pair in examples.as_numpy_iterator()
    )


@pytest.mark.parametrize("seed", [None, 5])
def test_every_pair_comes_once_within_the_budget(seed):
    examples = _examples(_lengths())
    seen, widths = Counter(), []
    for inputs, labels, _ in LengthBuckets(200)(examples, seed=seed):
        assert max(tf.size(inputs["source_ids"]), tf.size(labels)) <= 200
        seen.update(zip(_unpadded(inputs["source_ids"]), _unpadded(labels), strict=True))
        widths.append(labels.shape[1])
    assert seen == pairs_of(examples)
    in_order = np.corrcoef(widths, range(len(widths)))[0, 1]
    assert in_order > 0.9 if seed is None else abs(in_order) < 0.4
    # A pair beyond the budget gets a batch of its own.
    rows = [labels.shape for _, labels, _ in LengthBuckets(10)(_examples([(30, 20), (2, 3)]))]
    assert rows == [(1, 3), (1, 20)]


def test_batches_are_as_large_as_the_budget_allows():
    """Against a plain loop over the same order."""
    lengths = _lengths()
    batches = LengthBuckets(256).assign_batches(tf.constant(lengths, tf.int32), None)
    longest = lengths.max(axis=1)[batches.values.numpy()]
    expected, size = [], 0
    for place in range(len(longest)):
        if size and (size + 1) * longest[place - size : place + 1].max() > 256:
            expected.append(size)
            size = 0
        size += 1
    assert batches.row_lengths().numpy().tolist() == [*expected, size]


def test_neighbors_are_similar_on_the_shorter_side_too():
    lengths = np.array([[n, shorter] for n in (9, 10) for shorter in (3, 9, 1, 7, 5)])
    batches = LengthBuckets(20).assign_batches(tf.constant(lengths, tf.int32), None)
    assert lengths[batches.values, 1].tolist() == [1, 3, 5, 7, 9, 9, 7, 5, 3, 1]


def test_batches_hold_a_multiple_where_there_is_room():
    batches = LengthBuckets(128, batch_multiple=4).assign_batches(
        tf.constant(_lengths(), tf.int32), None
    )
    sizes = batches.row_lengths().numpy()
    assert sizes.sum() == 200
    assert all(size % 4 == 0 or size < 4 for size in sizes[:-1])


LENGTHS = bucket_lengths(48)
SHAPES = bucket_shapes(_lengths(), 48, 6)


@pytest.mark.parametrize("batcher", [
    LengthBuckets(256),
    LengthBuckets(256, 2, LENGTHS),
    LengthBuckets(256, 2, SHAPES),
    Packing(256, 64, 3),
    TextStream(64, 32),
])  # fmt: skip
def test_the_number_of_batches_does_not_depend_on_the_seed(batcher):
    lengths = tf.constant(_lengths(), tf.int32)
    assigned = [batcher.assign_batches(lengths, seed) for seed in (None, [0, 0], [0, 1], [7, 7])]
    assert len({int(batches.nrows()) for batches in assigned}) == 1
    assert assigned[1].to_list() != assigned[2].to_list()
    assert assigned[2].to_list() == batcher.assign_batches(lengths, [0, 1]).to_list()


@pytest.mark.parametrize("shapes", [LENGTHS, SHAPES])
@pytest.mark.parametrize("seed", [None, 5])
def test_buckets_of_given_shapes_have_one_each(shapes, seed):
    pairs = [tuple(np.broadcast_to(shape, 2).tolist()) for shape in shapes]
    sizes = {shape: max(200 // max(shape) // 3, 1) * 3 for shape in pairs}
    examples, seen, parts, larger = _examples(_lengths()), Counter(), Counter(), 0
    for inputs, labels, weights in LengthBuckets(200, 3, shapes)(examples, seed=seed):
        assert inputs["target_ids"].shape == labels.shape
        shape = inputs["source_ids"].shape[1], labels.shape[1]
        assert len(labels) == len(inputs["source_ids"]) == sizes[shape]
        real = zip(_unpadded(inputs["source_ids"]), _unpadded(labels), strict=True)
        real = [pair for pair in real if pair != ((), ())]
        first = [next(s for s in pairs if s[0] >= len(a) and s[1] >= len(b)) for a, b in real]
        larger += sum(other != shape for other in first)
        np.testing.assert_array_equal(weights, labels != 0)
        seen.update(real)
        parts[shape] += len(real) < len(labels)
    assert seen == pairs_of(examples)
    assert max(parts.values()) <= 1  # one batch of a bucket is filled up at most
    assert 0 < larger < 40  # pairs that would have needed such a batch


def positions(lengths, shapes):
    """Returns the positions of pairs, padding included, in the first shapes that hold them."""
    holds = (lengths[:, np.newaxis] <= np.array(shapes)).all(axis=-1)
    return np.array(shapes)[holds.argmax(axis=1)].sum()


@pytest.mark.parametrize("seed", range(4))
def test_the_shapes_of_buckets_are_the_best_of_all_chains(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, (rng.integers(1, 12), 2))
    count, longest = int(rng.integers(2, 5)), int(lengths.max()) + seed % 2
    found, top = bucket_shapes(lengths, longest, count), tuple(lengths.max(axis=0))
    assert len(found) <= count and found[-1] == (longest, longest)
    most = count - 1 - (min(top) < longest)  # beside the last ones
    chains = (
        [*chain, top]
        for size in range(most + 1)
        for chain in itertools.combinations(itertools.product(range(1, 5), repeat=2), size)
        if all(a[1] <= b[1] and a[0] <= b[0] for a, b in itertools.pairwise([*chain, top]))
    )
    assert positions(lengths, found) == min(positions(lengths, chain) for chain in chains)


@pytest.mark.slow
def test_sixteen_shapes_pad_real_text_little(tmp_path):
    corpus = FolderCorpus(shared_data("multi30k/raw"), "en", "de")
    texts = corpus.examples("train").as_numpy_iterator()
    tokenizer = train_tokenizer("bpe", [text for pair in texts for text in pair.values()], 10_000)
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    shapes = bucket_shapes(open_shards(tmp_path, "train").read_lengths(0).numpy(), 256)
    fractions = []
    for chosen in (shapes, bucket_lengths(256), None):
        split = tmp_path, "train", LengthBuckets(4_096, bucket_lengths=chosen)
        batches = training_batches(*split, seed=1).take(batches_per_epoch(*split))
        padded = [side == 0 for x, labels, _ in batches for side in (x["source_ids"], labels)]
        fractions.append(np.concatenate([side.numpy().ravel() for side in padded]).mean())
    assert fractions[0] < 0.11 and fractions[1] > 0.15 and fractions[2] < 0.05


@pytest.mark.parametrize("longest", [3, 40, 256, 1024])
def test_bucket_lengths_grow_by_a_factor_to_the_longest(longest):
    lengths = bucket_lengths(longest)
    assert lengths[-1] == longest and len(lengths) <= 16 and len(set(lengths)) == len(lengths)
    assert all(b <= max(1.5 * a, a + 4) for a, b in itertools.pairwise(lengths))


def test_every_epoch_has_another_order_which_the_seed_decides():
    def rows(seed, epochs=1):
        batches = LengthBuckets(200)(_examples(_lengths(40)), seed=seed).repeat(epochs)
        return [labels.numpy().tolist() for _, labels, _ in batches]

    first, second = rows(1, epochs=2), rows(1, epochs=2)
    half = len(first) // 2
    assert first == second and first[:half] != first[half:]
    assert rows(2) != first[:half]


def test_pairs_of_equal_lengths_change_company():
    lengths = tf.fill([64, 2], 5)
    assigned = [
        LengthBuckets(40).assign_batches(lengths, [0, epoch]).to_list() for epoch in range(2)
    ]
    company = [{frozenset(batch) for batch in batches} for batches in assigned]
    assert not company[0] & company[1]


def _random_examples():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 12, [100, 2])
    return examples_of([[[*rng.integers(10, 99, n).tolist(), 1] for n in pair] for pair in sizes])


@pytest.mark.parametrize(("batcher", "seed", "shape"), [
    (Packing(128, 32), 3, (4, 32)),
    (Packing(256, 64, batch_multiple=3), None, (3, 64)),
])  # fmt: skip
def test_packed_rows_give_back_the_pairs_each_behind_a_start(batcher, seed, shape):
    examples, found = _random_examples(), Counter()
    for inputs, labels, weights in batcher(examples, seed=seed):
        tensors = [*inputs.values(), labels]
        assert {(x.dtype, tuple(x.shape)) for x in tensors} == {(tf.int32, shape)}
        np.testing.assert_array_equal(weights, labels != 0)
        sources, targets, given = (
            list(packed_sequences(ids, inputs[f"{side}_segments"], inputs[f"{side}_positions"]))
            for ids, side in (
                (inputs["source_ids"], "source"),
                (labels, "target"),
                (inputs["target_ids"], "target"),
            )
        )
        assert given == [(3, *target[:-1]) for target in targets]
        found.update(zip(sources, targets, strict=True))
    assert found == pairs_of(examples)


def test_rows_are_filled_as_far_as_the_next_pair_allows():
    """Against a plain loop over the same order."""
    lengths = np.random.default_rng(1).integers(1, 20, [100, 2])
    batches = Packing(256, 64).assign_batches(tf.constant(lengths, tf.int32), None)
    rows = batches.merge_dims(0, 1)
    used, expected, size = np.zeros(2, int), [], 0
    for pair in lengths[rows.values.numpy()]:
        if (used + pair).max() > 64:
            expected.append(size)
            used, size = np.zeros(2, int), 0
        used, size = used + pair, size + 1
    assert rows.row_lengths().numpy().tolist() == [*expected, size]


@pytest.mark.parametrize("batcher", [
    Packing(64, 4), LengthBuckets(64, bucket_lengths=(4, (14, 9))),
])  # fmt: skip
def test_a_pair_too_long_for_a_batch_is_refused(batcher):
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not fit"):
        next(iter(batcher(_random_examples())))


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda: Packing(128, 32).check_length(33), "a pair of 33 tokens does not fit a row of 32"),
    (lambda: LengthBuckets(100, 1, LENGTHS).check_length(49), "49 tokens does not fit a row of 48"),
    (lambda: LabeledBuckets(100, 7, 1, (4, 6)), "a pair of 7 tokens does not fit a row of 6"),
    (lambda: LabeledBuckets(100, max_length=1), "max_length is 1"),
    (lambda: Packing(32, 64), "row_length is 64: give at most tokens_per_batch, 32"),
    (lambda: TextStream(20, 30), "row_length is 30"),
    (lambda: TextStream(20, 20, stride=0), "stride is 0: give 1 to 20, the tokens"),
    (lambda: TextStream(20, 20, stride=21), "stride is 21: give 1 to 20, the tokens"),
    *((lambda n=n: LengthBuckets(100, bucket_lengths=n), "bucket_lengths is .* as the one before")
      for n in [8, (), (8, 4), (0, 4), ((4, 8), (8, 4)), ((4, 8, 9),), (4.5,)]),
    *((lambda seed=seed: LengthBuckets(100)(PADDED, seed=seed), "seed is")
      for seed in [1.5, "1", 2**70]),
])  # fmt: skip
def test_settings_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        wrong()


@pytest.mark.parametrize("make", [
    LengthBuckets,
    lambda tokens, *rest: LabeledBuckets(tokens, 8, *rest),
    lambda tokens, *rest: Packing(tokens, 4, *rest),
    lambda tokens, *rest: TextStream(tokens, 4, *rest),
])  # fmt: skip
@pytest.mark.parametrize("sizes", [(0,), (10.0,), ("10",), (10, 0), (10, -1), (10, 2.0)])
def test_sizes_of_batches_are_whole_numbers_of_at_least_1(make, sizes):
    with pytest.raises(InputError, match=r"is .*: give a whole number of at least 1"):
        make(*sizes)
    assert make(np.int64(10), np.int32(2)).tokens_per_batch == 10


def test_pairs_and_texts_without_targets_are_not_taken_for_one_another():
    texts = encode_texts(["a house"], tiny.tokenizer())
    for batcher in (LengthBuckets(64), Packing(64, 32)):
        with pytest.raises(
            InputError, match=r"without targets, and .* is for pairs: .*TextBuckets"
        ):
            batcher(texts)
    for batcher in (TextBuckets(64), TextPacking(64, 32), TextStream(64, 32)):
        with pytest.raises(InputError, match=r"have targets, which .* would leave out.*zeros"):
            batcher(_examples([(3, 4)]))
        [(_, labels, _)] = batcher(texts)
        [(_, own, _)] = batcher(texts.map(lambda row: row | {"target": tf.zeros([0], tf.int32)}))
        np.testing.assert_array_equal(own, labels)


def test_the_debug_mode_of_tensorflow_is_refused(monkeypatch):
    monkeypatch.setattr(debug_mode, "DEBUG_MODE", True)  # TensorFlow cannot turn it off
    with pytest.raises(InputError, match=r"tf.data is in debug mode"):
        LengthBuckets(100)(tf.data.Dataset.range(1))
