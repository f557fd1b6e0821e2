"""Streams of batches: endless, shuffled, exact when resumed, mixed, and by a service."""

import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import (
    DataService,
    LengthBuckets,
    MemoryCorpus,
    Packing,
    batches_per_epoch,
    evaluation_batches,
    padding_fraction,
    streams,
    training_batches,
    write_shards,
)
from t2t_keras.data.plain_text import TextStream
from t2t_keras.data.shards import open_shards
from t2t_keras.data.streams import Mixture, sampling_probabilities
from t2t_keras.errors import InputError

BATCHERS = [LengthBuckets(400), Packing(512, 64)]
SMALL_BATCHES = LengthBuckets(100)
SIZES = {"large": 200, "small": 30}  # pairs
PARTS = {name: name for name in SIZES}


@pytest.fixture(scope="module")
def tokens(pairs, tokenizer, tmp_path_factory):
    """A training split, and a large and a small one of longer texts, in several shards each."""
    directory = str(tmp_path_factory.mktemp("tokens"))
    longer = [(f"{s} {s}", t) for s, t in pairs[200 : 200 + SIZES["small"]]]
    corpus = MemoryCorpus({"train": pairs[:200], "large": pairs[: SIZES["large"]], "small": longer})
    for split, shards in (("train", 3), ("large", 3), ("small", 2)):
        write_shards(corpus, split, tokenizer, directory, shards=shards)
    return directory


def taken(dataset, count):
    """The first batches, as nests of lists."""
    return [
        [np.asarray(array).tolist() for array in tf.nest.flatten(batch)]
        for batch in itertools.islice(dataset, count)
    ]


def targets(batches):
    """The multiset of target sequences, whether packed or not."""
    seen = Counter()
    for _, labels, _ in batches:
        for row in np.asarray(labels):
            ends = np.flatnonzero(row == 1) + 1
            seen.update(tuple(part) for part in np.split(row, ends) if part.any())
    return seen


@pytest.mark.parametrize("batcher", BATCHERS)
def test_every_epoch_delivers_every_pair_in_another_order(tokens, batcher):
    count = batches_per_epoch(tokens, "train", batcher)
    stream = training_batches(tokens, "train", batcher, 7)
    whole, evaluated = (list(stream.take(2 * count)), evaluation_batches(tokens, "train", batcher))
    first, second = whole[:count], whole[count:]
    assert targets(first) == targets(second) == targets(evaluated)
    assert sum(targets(first).values()) == 200
    assert taken(first, 9) != taken(second, 9)
    assert int(evaluated.cardinality()) == count
    assert taken(evaluated, 9) == taken(evaluated, 9)
    assert int(stream.cardinality()) == tf.data.INFINITE_CARDINALITY
    assert not calls_python(stream)


@pytest.mark.parametrize("batcher", [*BATCHERS, TextStream(256, 32)])
def test_a_resumed_stream_goes_on(tokens, batcher):
    count = batches_per_epoch(tokens, "train", batcher)
    whole = taken(training_batches(tokens, "train", batcher, 7), 2 * count + 8)
    for skip in (2, 2 * count + 3):
        resumed = training_batches(tokens, "train", batcher, 7, skip=skip)
        assert taken(resumed, 5) == whole[skip : skip + 5]


def calls_python(dataset):
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor).numpy()
    return b"PyFunc" in graph


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


# Several corpora ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("temperature", "expected"), [
    (1, [0.1, 0.9]),
    (2, [1 / (1 + 9**0.5), 9**0.5 / (1 + 9**0.5)]),
    (5, [1 / (1 + 9**0.2), 9**0.2 / (1 + 9**0.2)]),
    (float("inf"), [0.5, 0.5]),
    (1e-3, [0, 1]),
])  # fmt: skip
def test_probabilities_are_sizes_to_the_power_of_one_by_the_temperature(temperature, expected):
    np.testing.assert_allclose(sampling_probabilities([100, 900], temperature), expected)


def test_impossible_mixtures_are_refused(tokens):
    for temperature in (0, -1, float("nan")):
        with pytest.raises(InputError, match=f"temperature is {temperature}: give a number above"):
            Mixture(tokens, PARTS, SMALL_BATCHES, 1, temperature)
    with pytest.raises(InputError, match=r"\[5, 0\] pairs: leave out the empty ones"):
        sampling_probabilities([5, 0], 1)


def test_pairs_come_as_often_as_the_temperature_says(tokens):
    """Batches of the small corpus hold fewer pairs, and come so much more often."""
    temperature = 5
    mixture = Mixture(tokens, PARTS, SMALL_BATCHES, 3, temperature)
    count = {name: batches_per_epoch(tokens, name, SMALL_BATCHES) for name in SIZES}
    weights = {n: SIZES[n] ** (1 / temperature) * count[n] / SIZES[n] for n in SIZES}
    for name, weight in weights.items():
        assert mixture.probabilities[name] == pytest.approx(weight / sum(weights.values()))
    drawn = mixture.composition(5_000, 55_000)
    assert drawn["batches_small"] == pytest.approx(mixture.probabilities["small"], abs=0.01)
    assert sum(drawn.values()) == pytest.approx(1)


def test_each_corpus_delivers_all_its_pairs_in_each_of_its_epochs(tokens):
    mixture = Mixture(tokens, PARTS, SMALL_BATCHES, 3, temperature=2)
    count = batches_per_epoch(tokens, "small", SMALL_BATCHES)
    choices = mixture._draw(tf.constant(0, tf.int64)).numpy().tolist()
    small = [place for place, choice in enumerate(choices) if choice == 1][: 2 * count]
    batches = list(mixture.training_batches().take(small[-1] + 1))
    rows = [batches[place][1].shape[0] for place in small]
    assert sum(rows[:count]) == sum(rows[count:]) == SIZES["small"]
    assert mixture.composition(0, 900)["batches_small"] * 900 == pytest.approx(sum(choices[:900]))


def test_a_mixture_opens_each_corpus_once(tokens, monkeypatch):
    """Opening reads all its files, for their checksums."""
    opened = []
    monkeypatch.setattr(
        streams, "open_shards", lambda *which: opened.append(which[1]) or open_shards(*which)
    )
    Mixture(tokens, PARTS, SMALL_BATCHES, 3).training_batches(skip=20)
    assert opened == list(PARTS)


def test_a_resumed_mixture_goes_on_with_the_very_next_batch(tokens, monkeypatch):
    monkeypatch.setattr(streams, "_CHOICES", 16)  # drawn together, and no run begins anew there

    def batches(seed, skip=0):
        return Mixture(tokens, PARTS, SMALL_BATCHES, seed, 2).training_batches(skip)

    assert not calls_python(batches(7))
    whole = taken(batches(7), 30)
    for skip in (16, 25):
        assert taken(batches(7, skip), 5) == whole[skip : skip + 5]
    assert taken(batches(8), 10) != whole[:10]


# The data service ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address():
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    name = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=name))
    yield dispatcher.target
    del worker


def test_one_worker_delivers_every_pair_once_an_epoch_and_resumes_at_an_epoch(address, tokens):
    batcher, service = LengthBuckets(300), DataService(address)
    service.check()
    count = batches_per_epoch(tokens, "train", batcher)
    plain = list(training_batches(tokens, "train", batcher, seed=3).take(count + 1))
    served = training_batches(tokens, "train", batcher, seed=3, service=service)
    assert targets(served.take(count)) == targets(plain[:count])
    resumed = training_batches(tokens, "train", batcher, seed=3, skip=count + 5, service=service)
    assert taken(resumed, 1) == taken(plain[count:], 1)


@pytest.mark.slow
def test_processes_that_share_a_stream_draw_different_batches(address, tokens):
    def stream(service=None):
        mixture = Mixture(tokens, PARTS, SMALL_BATCHES, 3, temperature=2)
        return mixture.training_batches(service=service)

    shared = DataService(address, job="shared")
    processes = [iter(stream(shared)) for _ in range(2)]
    batches = [next(process) for process in processes * 15]
    plain = targets(stream().take(200))
    assert all(count <= plain[row] for row, count in targets(batches).items())


@pytest.mark.parametrize("wrong", ["host:5050", "grpc://host", "grpc://host:port"])
def test_an_address_where_nothing_answers_is_an_error(wrong):
    with pytest.raises(InputError, match=r"give grpc://host:port"):
        DataService(wrong).check()
    with pytest.raises(InputError, match=r"grpc://localhost:1: nothing answers there"):
        DataService("grpc://localhost:1").check()
