"""Batches that a tf.data service makes: every pair once an epoch, each batch to one consumer."""

import collections
import itertools

import pytest
import tensorflow as tf

from t2t_keras.data import LengthBuckets, write_shards
from t2t_keras.data.service import DataService
from t2t_keras.data.streams import batches_per_epoch, training_batches
from t2t_keras.errors import InputError


@pytest.fixture(scope="module")
def address():
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    name = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=name))
    yield dispatcher.target
    del worker


@pytest.fixture(scope="module")
def tokens(corpus, tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tokens"))
    write_shards(corpus, "train", tokenizer, folder, shards=3)
    return folder


def _rows(batches):
    """Counts the pairs of some batches, as their ids."""
    return collections.Counter(
        (tuple(source[source != 0]), tuple(target[target != 0]))
        for inputs, labels, _ in batches
        for source, target in zip(inputs["source_ids"], labels, strict=True)
    )


def _drawn(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def test_one_worker_delivers_every_pair_once_an_epoch(address, tokens):
    batcher = LengthBuckets(300)
    count = batches_per_epoch(tokens, "train", batcher)
    plain = _rows(_drawn(training_batches(tokens, "train", batcher, seed=3), count))
    service = DataService(address)
    service.check()
    served = training_batches(tokens, "train", batcher, seed=3, service=service)
    assert _rows(_drawn(served, count)) == plain


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
    everything = _rows(
        _drawn(
            training_batches(tokens, "train", batcher, seed=3),
            batches_per_epoch(tokens, "train", batcher),
        )
    )
    assert len(batches) < batches_per_epoch(tokens, "train", batcher) / 2
    assert all(count <= everything[row] for row, count in _rows(batches).items())


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
