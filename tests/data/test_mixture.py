"""Batches of several corpora: how often each comes, and that a run resumes at any of them."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import LengthBuckets, MemoryCorpus, batches_per_epoch, streams, write_shards
from t2t_keras.data.streams import DataService, Mixture, sampling_probabilities, training_batches
from t2t_keras.errors import InputError

BATCHER = LengthBuckets(100)
PARTS = {"large": "train/large", "small": "train/small"}


@pytest.fixture(scope="module")
def tokens(pairs, tokenizer, tmp_path_factory):
    """500 pairs in three shards, and 60 longer ones in two."""
    directory = str(tmp_path_factory.mktemp("tokens"))
    corpus = MemoryCorpus(
        {"train/large": pairs[:500], "train/small": [(f"{s} {s}", t) for s, t in pairs[500:560]]}
    )
    for (_, split), shards in zip(PARTS.items(), (3, 2), strict=True):
        write_shards(corpus, split, tokenizer, directory, shards=shards)
    return directory


def arrays(batch):
    return [np.asarray(array).tolist() for array in tf.nest.flatten(batch)]


def taken(dataset, count):
    return [arrays(batch) for batch in itertools.islice(dataset, count)]


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (1, [0.1, 0.9]),
        (2, [100**0.5 / (100**0.5 + 900**0.5), 900**0.5 / (100**0.5 + 900**0.5)]),
        (5, [1 / (1 + 9**0.2), 9**0.2 / (1 + 9**0.2)]),
        (float("inf"), [0.5, 0.5]),
        (1e-3, [0, 1]),
    ],
)
def test_probabilities_are_sizes_to_the_power_of_one_by_the_temperature(temperature, expected):
    np.testing.assert_allclose(sampling_probabilities([100, 900], temperature), expected)


@pytest.mark.parametrize("temperature", [0, -1, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature, tokens):
    with pytest.raises(InputError, match=f"temperature is {temperature}: give a number above 0"):
        Mixture(tokens, PARTS, BATCHER, 1, temperature)


def test_a_corpus_without_pairs_is_refused():
    with pytest.raises(InputError, match=r"\[5, 0\] pairs: leave out those without any"):
        sampling_probabilities([5, 0], 1)


@pytest.mark.parametrize("temperature", [1, 5])
def test_pairs_come_as_often_as_the_temperature_says(tokens, temperature):
    """Batches of the small corpus hold fewer pairs, and come so much more often."""
    mixture = Mixture(tokens, PARTS, BATCHER, 3, temperature)
    count = {name: batches_per_epoch(tokens, split, BATCHER) for name, split in PARTS.items()}
    sizes = {"large": 500, "small": 60}
    weights = {n: sizes[n] ** (1 / temperature) * count[n] / sizes[n] for n in PARTS}
    for name, weight in weights.items():
        assert mixture.probabilities[name] == pytest.approx(weight / sum(weights.values()))
    drawn = mixture.composition(5_000, 55_000)
    assert drawn["batches_small"] == pytest.approx(mixture.probabilities["small"], abs=0.01)
    assert sum(drawn.values()) == pytest.approx(1)


def test_each_corpus_delivers_all_its_pairs_in_each_of_its_epochs(tokens):
    mixture = Mixture(tokens, PARTS, BATCHER, 3, temperature=2)
    count = batches_per_epoch(tokens, "train/small", BATCHER)
    stream = (labels.numpy().shape[0] for _, labels, _ in mixture.training_batches())
    choices = mixture._draw(tf.constant(0, tf.int64)).numpy().tolist()
    small = [place for place, choice in enumerate(choices) if choice == 1][: 2 * count]
    rows = [
        rows for place, rows in enumerate(itertools.islice(stream, small[-1] + 1)) if place in small
    ]
    assert sum(rows[:count]) == sum(rows[count : 2 * count]) == 60
    assert mixture.composition(0, 900)["batches_small"] * 900 == pytest.approx(sum(choices[:900]))


def test_a_resumed_mixture_goes_on_with_the_very_next_batch(tokens, monkeypatch):
    monkeypatch.setattr(streams, "_CHOICES", 16)  # drawn together, and no run begins anew there
    whole = taken(Mixture(tokens, PARTS, BATCHER, 7, temperature=2).training_batches(), 45)
    for skip in (1, 15, 16, 40):
        again = Mixture(tokens, PARTS, BATCHER, 7, temperature=2)
        assert taken(again.training_batches(skip), 5) == whole[skip : skip + 5]


def test_a_mixture_of_one_corpus_is_that_corpus(tokens):
    mixture = Mixture(tokens, {"small": "train/small"}, BATCHER, 5)
    one = training_batches(tokens, "train/small", BATCHER, 5)
    assert taken(mixture.training_batches(), 30) == taken(one, 30)


def test_the_mixture_depends_on_the_seed(tokens):
    def stream(seed):
        return taken(Mixture(tokens, PARTS, BATCHER, seed, 2).training_batches(), 10)

    assert stream(1) != stream(2)


def test_the_mixture_calls_no_python(tokens):
    batches = Mixture(tokens, PARTS, BATCHER, 1).training_batches(3)
    assert int(batches.cardinality()) == tf.data.INFINITE_CARDINALITY
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=batches._variant_tensor).numpy()
    assert b"PyFunc" not in graph


@pytest.mark.slow
def test_a_data_service_makes_the_batches_of_all_corpora(tokens):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    name = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=name))
    mixture = Mixture(tokens, PARTS, BATCHER, 3, temperature=2)
    plain = taken(mixture.training_batches(), 200)
    for job in (None, "shared"):
        served = taken(mixture.training_batches(service=DataService(dispatcher.target, job)), 200)
        # One worker's order of shards may differ, and so may the last epoch begun.
        same = [batch for batch in served if batch in plain]
        assert len(same) > 150
    del worker
