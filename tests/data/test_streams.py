"""The stream of batches: endless, shuffled, and the same wherever it is taken up."""

import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import (
    LengthBuckets,
    Packing,
    batches_per_epoch,
    evaluation_batches,
    learn_tokenizer,
    padding_share,
    training_batches,
    write_shards,
)
from t2t_keras.errors import InputError

BATCHERS = [LengthBuckets(200), Packing(256, 64)]


@pytest.fixture(scope="module")
def tokens(corpus, tokenizer, tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("tokens"))
    write_shards(corpus, "train", tokenizer, directory, shards=3)
    return directory


def _flat(batch):
    return [array.tolist() for array in tf.nest.flatten(tf.nest.map_structure(np.asarray, batch))]


def _taken(dataset, count):
    return [_flat(batch) for batch in itertools.islice(dataset, count)]


def _labels(batches):
    """The multiset of target sequences, whether packed or not."""
    seen = Counter()
    for _, labels, _ in batches:
        for row in labels.numpy():
            ends = np.flatnonzero(row == 1) + 1
            seen.update(tuple(part) for part in np.split(row, ends) if part.any())
    return seen


@pytest.mark.parametrize("batcher", BATCHERS)
def test_every_epoch_delivers_every_pair_in_another_order(tokens, batcher, pairs):
    count = batches_per_epoch(tokens, "train", batcher)
    stream = list(itertools.islice(training_batches(tokens, "train", batcher, 1), 2 * count))
    first, second = stream[:count], stream[count:]
    assert (
        _labels(first) == _labels(second) == _labels(evaluation_batches(tokens, "train", batcher))
    )
    assert sum(_labels(first).values()) == len(pairs)
    assert list(map(_flat, first)) != list(map(_flat, second))


@pytest.mark.parametrize("batcher", BATCHERS)
def test_a_resumed_stream_goes_on_with_the_very_next_batch(tokens, batcher):
    count = batches_per_epoch(tokens, "train", batcher)
    whole = _taken(training_batches(tokens, "train", batcher, 7), 2 * count + 8)
    for skip in (count - 1, 2 * count + 3):
        resumed = training_batches(tokens, "train", batcher, 7, skip=skip)
        assert _taken(resumed, 5) == whole[skip : skip + 5]


def test_the_stream_depends_on_the_seed_alone(tokens):
    def stream(seed):
        return _taken(training_batches(tokens, "train", BATCHERS[0], seed), 40)

    assert stream(1) == stream(1)
    assert stream(1) != stream(2)


def test_evaluation_is_finite_known_and_always_the_same(tokens):
    batches = evaluation_batches(tokens, "train", BATCHERS[0])
    assert int(batches.cardinality()) == len(list(batches))
    assert list(map(_flat, batches)) == list(map(_flat, batches))
    endless = training_batches(tokens, "train", BATCHERS[0], 1)
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY


def test_padding_is_measured_on_both_sides():
    source, labels = tf.constant([[5, 1, 0, 0]]), tf.constant([[5, 6, 7, 1, 0]])
    batches = tf.data.Dataset.from_tensors(({"source_ids": source}, labels, labels))
    share = padding_share(batches)
    assert share == (0.5, 0.2)
    assert str(share) == "50.0% of source and 20.0% of target positions are padding"


def test_missing_splits_and_long_pairs_are_input_errors(tokens):
    for stream in (lambda *rest: training_batches(*rest, seed=1), evaluation_batches):
        with pytest.raises(InputError, match="no tokenized split 'test'"):
            stream(tokens, "test", BATCHERS[0])
        with pytest.raises(InputError, match="does not fit a row of 8"):
            stream(tokens, "train", Packing(8, 8))


def test_the_graph_of_the_stream_calls_no_python(tokens):
    def definition(dataset):
        return tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor).numpy()

    for batcher in BATCHERS:
        assert b"PyFunc" not in definition(training_batches(tokens, "train", batcher, 1))
    spec = tf.TensorSpec([], tf.int32)
    python = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=spec)
    assert b"PyFunc" in definition(python)


def test_real_text_wastes_little(multi30k, tmp_path):
    lines = itertools.chain.from_iterable(
        (pair["source"], pair["target"])
        for pair in multi30k.examples("train").take(8000).as_numpy_iterator()
    )
    tokenizer = learn_tokenizer("bpe", lines, 8000)
    assert write_shards(multi30k, "train", tokenizer, str(tmp_path)).kept == 29_000
    stream = training_batches(str(tmp_path), "train", LengthBuckets(4096), 1)
    epoch = stream.take(batches_per_epoch(str(tmp_path), "train", LengthBuckets(4096)))
    assert sum(int(labels.shape[0]) for _, labels, _ in epoch) == 29_000
    assert max(padding_share(epoch)) <= 0.05
