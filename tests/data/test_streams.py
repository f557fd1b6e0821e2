"""Streams of batches: endless, shuffled, exact when resumed, and by a service every pair once."""

import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import (
    DataService,
    LengthBuckets,
    Packing,
    batches_per_epoch,
    evaluation_batches,
    padding_fraction,
    train_tokenizer,
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
    fraction = padding_fraction(batches)
    assert fraction == (0.5, 0.2)
    assert str(fraction) == "50.0% of source and 20.0% of target positions are padding"


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
    tokenizer = train_tokenizer("bpe", lines, 8000)
    assert write_shards(multi30k, "train", tokenizer, str(tmp_path)).kept == 29_000
    stream = training_batches(str(tmp_path), "train", LengthBuckets(4096), 1)
    epoch = stream.take(batches_per_epoch(str(tmp_path), "train", LengthBuckets(4096)))
    assert sum(int(labels.shape[0]) for _, labels, _ in epoch) == 29_000
    assert max(padding_fraction(epoch)) <= 0.05


@pytest.fixture(scope="module")
def address():
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    name = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=name))
    yield dispatcher.target
    del worker


def _pair_counts(batches):
    """Counts the pairs of some batches, as their ids."""
    return Counter(
        (tuple(source[source != 0]), tuple(target[target != 0]))
        for inputs, labels, _ in batches
        for source, target in zip(inputs["source_ids"], labels, strict=True)
    )


def _drawn(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def test_one_worker_delivers_every_pair_once_an_epoch(address, tokens):
    batcher = LengthBuckets(300)
    count = batches_per_epoch(tokens, "train", batcher)
    plain = _pair_counts(_drawn(training_batches(tokens, "train", batcher, seed=3), count))
    service = DataService(address)
    service.check()
    served = training_batches(tokens, "train", batcher, seed=3, service=service)
    assert _pair_counts(_drawn(served, count)) == plain


def test_a_resumed_stream_begins_with_its_epoch(address, tokens):
    batcher = LengthBuckets(300)
    count = batches_per_epoch(tokens, "train", batcher)
    second = itertools.islice(
        training_batches(tokens, "train", batcher, seed=3).as_numpy_iterator(), count, 2 * count
    )
    [first_of_second] = itertools.islice(second, 1)
    served = training_batches(
        tokens, "train", batcher, seed=3, skip=count + 5, service=DataService(address)
    )
    [first] = _drawn(served, 1)
    assert (first[1] == first_of_second[1]).all()


def test_processes_that_share_a_stream_draw_different_batches(address, tokens):
    batcher = LengthBuckets(100)
    shared = DataService(address, job="shared")
    streams = [
        iter(training_batches(tokens, "train", batcher, seed=3, service=shared)) for _ in range(2)
    ]
    batches = [tf.nest.map_structure(lambda x: x.numpy(), next(s)) for s in streams * 15]
    everything = _pair_counts(
        _drawn(
            training_batches(tokens, "train", batcher, seed=3),
            batches_per_epoch(tokens, "train", batcher),
        )
    )
    assert len(batches) < batches_per_epoch(tokens, "train", batcher) / 2
    assert all(count <= everything[row] for row, count in _pair_counts(batches).items())


@pytest.mark.parametrize(
    ("address_", "message"),
    [
        ("host:5050", r"give grpc://host:port"),
        ("grpc://host", r"give grpc://host:port"),
        ("grpc://host:port", r"give grpc://host:port"),
        ("grpc://localhost:1", r"grpc://localhost:1: nothing answers there"),
    ],
)
def test_an_address_where_nothing_answers_is_an_error(address_, message):
    with pytest.raises(InputError, match=message):
        DataService(address_).check()
