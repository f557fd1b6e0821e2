"""Streams of batches from token shards: endless for training, one pass for evaluation.

`training_batches` can begin at any batch of any epoch, so that a run resumes exactly. Its batches
may be made by a tf.data service on other hosts (`DataService`), whose cores then feed the devices
of this one. `Mixture` does the same for several corpora; each batch comes from one of them.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import PAD_ID
from t2t_keras.data.batching import Batcher
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError
from t2t_keras.graphs import deterministic, no_autograph
from t2t_keras.types import StrPath

_PREFETCHED_BATCHES = 8
_CONNECT_TIMEOUT = 10  # seconds
_AutoShard = tf.data.experimental.AutoShardPolicy


class DataService(NamedTuple):
    """A running tf.data service: a dispatcher and workers, see `pipelines.data_service`.

    Its workers distribute the shards of each epoch among themselves: every pair appears once in an
    epoch, but the order of batches depends on the workers' speed, and differs between runs.
    """

    address: str  # of the dispatcher, "grpc://host:port"
    # name of a stream that several training processes share; each batch goes to one of them. None:
    # only this process reads the stream
    job: str | None = None

    def check(self) -> None:
        """Raises InputError if the address is invalid or nothing answers there."""
        parts = urlsplit(self.address)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "grpc" or not parts.hostname or not port:
            raise InputError(f"data service {self.address!r}: give grpc://host:port.")
        try:
            socket.create_connection((parts.hostname, port), _CONNECT_TIMEOUT).close()
        except OSError as error:
            raise InputError(
                f"data service {self.address}: nothing answers there ({error}); start one with "
                "python -m pipelines.data_service."
            ) from error

    def distribute(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns a dataset whose elements the service's workers make.

        Its source can be split, as `tf.data.Dataset.range`. All workers must be able to read the
        files that it names.
        """
        service = tf.data.experimental.service
        return dataset.apply(
            service.distribute(service.ShardingPolicy.DYNAMIC, self.address, job_name=self.job)
        )


@no_autograph
def training_batches(
    directory: StrPath,
    split: str,
    batcher: Batcher,
    seed: int,
    skip: int = 0,
    service: DataService | None = None,
) -> tf.data.Dataset:
    """Returns endless batches, every epoch in another order.

    Batch number n depends only on the shards, the batcher, the seed and n, not on parallelism or
    on the batch at which the stream begins. A service does not guarantee this.

    Args:
        directory, split: as given to `write_shards`.
        skip: number of batches that an earlier run has used. The stream begins with the next one,
            or with a service at the beginning of that batch's epoch.
        service: what makes the batches; None: this process does.

    Returns:
        `(inputs, labels, weights)`; see `Batcher.make_batch`.

    Raises:
        InputError: if the split is missing or damaged, or has a pair too long for the batcher.
    """
    return _stream(_open(directory, split, batcher), batcher, seed, skip, service)


def _stream(shards, batcher, seed, skip, service):
    """Returns the `training_batches` of shards that are open: opening reads all their files."""
    epoch, rest = divmod(skip, _batches_per_epoch(shards, batcher)) if skip else (0, 0)
    count = len(shards.paths)

    def visit(number):
        key = tf.stack([tf.constant(seed, tf.int64), number // count])
        order = tf.range(count, dtype=tf.int64)
        order = tf.random.experimental.stateless_shuffle(order, key, alg="philox")
        shard = order[number % count]
        fold = tf.random.experimental.stateless_fold_in
        return shards.read(shard), fold(key, shard, alg="philox")

    pairs = tf.data.Dataset.range(epoch * count, np.iinfo(np.int64).max).map(visit)
    batches = batcher.batches(pairs, shuffle=True, skip=0 if service else rest)
    if service:
        batches = service.distribute(deterministic(batches))
    return _finish(batches, tf.data.INFINITE_CARDINALITY, service)


_CHOICES = 1024
"""Batches whose corpora are drawn together."""


class Mixture:
    """Training batches of several corpora, sampled by temperature.

    A pair of sentences comes from corpus c with probability p ∝ size^(1/T), where size is its
    number of pairs (Arivazhagan et al. 2019, section 4.2). Each batch comes from one corpus, so
    corpora whose batches contain fewer pairs are drawn more often. Batch number n depends only on
    the shards, the batcher, the seed, the temperature and n.

    Args:
        parts: {name of a corpus: the split that holds it}.
        directory, batcher, seed: as for `training_batches`.
        temperature: T; 1 samples as if the corpora were joined, higher values favor small ones.

    Attributes:
        probabilities: {name: the probability that a batch comes from this corpus}.

    Raises:
        InputError: if the temperature is not above 0, or `training_batches` raises it.
    """

    def __init__(
        self,
        directory: StrPath,
        parts: Mapping[str, str],
        batcher: Batcher,
        seed: int,
        temperature: float = 1.0,
    ):
        self._shards = [_open(directory, split, batcher) for split in parts.values()]
        self._batcher, self._seed = batcher, seed
        sizes = [shards.report["kept"] for shards in self._shards]
        pairs = sampling_probabilities(sizes, temperature)
        counts = [_batches_per_epoch(shards, batcher) for shards in self._shards]
        weights = pairs * np.array(counts) / np.array(sizes)
        self.probabilities = dict(zip(parts, (weights / weights.sum()).tolist(), strict=True))

    @no_autograph
    def training_batches(
        self, skip: int = 0, service: DataService | None = None
    ) -> tf.data.Dataset:
        """Returns endless batches; arguments and result as for `training_batches`."""
        streams = []
        for place, used in enumerate(self._counts(0, skip)):
            job = service and service.job and f"{service.job}, corpus {place}"
            part, seed = service and service._replace(job=job), self._seed + (place << 32)
            streams.append(_stream(self._shards[place], self._batcher, seed, used, part))
        first, rest = divmod(skip, _CHOICES)
        choices = tf.data.Dataset.range(first, np.iinfo(np.int64).max).map(self._draw)
        choices = choices.flat_map(tf.data.Dataset.from_tensor_slices).skip(rest)
        batches = tf.data.Dataset.choose_from_datasets(
            streams, choices, stop_on_empty_dataset=False
        )
        return _finish(batches, tf.data.INFINITE_CARDINALITY, service)

    def composition(self, first: int, last: int) -> dict[str, float]:
        """Returns each corpus's fraction of batches first, …, last - 1: {"batches_NAME": float}."""
        counts = self._counts(first, last)
        names = (f"batches_{name}" for name in self.probabilities)
        return {n: count / (last - first) for n, count in zip(names, counts, strict=True)}

    def _counts(self, first, last):
        """Returns how many of the batches first, …, last - 1 come from each corpus, a list."""
        blocks = range(first // _CHOICES, -(-last // _CHOICES))
        with tf.device("CPU:0"):
            drawn = [self._draw(tf.constant(block, tf.int64)).numpy() for block in blocks]
        start = first // _CHOICES * _CHOICES
        drawn = np.concatenate([*drawn, np.zeros(0, np.int64)])[first - start : last - start]
        return np.bincount(drawn, minlength=len(self._shards)).tolist()

    def _draw(self, block):
        """Returns the corpus index of each batch in a block, int64 [`_CHOICES`]."""
        seed = tf.stack([tf.constant(self._seed, tf.int64), block])
        uniform = tf.random.stateless_uniform([_CHOICES], seed, dtype=tf.float64, alg="philox")
        bounds = np.cumsum(list(self.probabilities.values()))
        bounds[-1] = 1.0  # whatever the rounding: no drawn number is as large
        return tf.searchsorted(tf.constant(bounds), uniform, side="right", out_type=tf.int64)


def sampling_probabilities(sizes: Sequence[int], temperature: float) -> np.ndarray:
    """Returns p ∝ size^(1/T), float64 [sizes]; raises InputError unless sizes and T are above 0."""
    if not temperature > 0:
        raise InputError(f"the sampling temperature is {temperature}: give a number above 0.")
    if min(sizes) < 1:
        raise InputError(f"the corpora have {sizes} pairs: leave out the empty ones.")
    logs = np.log(np.array(sizes, np.float64)) / temperature
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


@no_autograph
def evaluation_batches(directory: StrPath, split: str, batcher: Batcher) -> tf.data.Dataset:
    """Returns batches that contain every pair once, always in the same order, of known number.

    Arguments, result and errors are those of `training_batches`.
    """
    shards = _open(directory, split, batcher)
    pairs = tf.data.Dataset.range(len(shards.paths)).map(
        lambda shard: (shards.read(shard), tf.zeros([2], tf.int64))
    )
    return _finish(batcher.batches(pairs, shuffle=False), _batches_per_epoch(shards, batcher))


def batches_per_epoch(directory: StrPath, split: str, batcher: Batcher) -> int:
    """Returns the number of batches of an epoch, int; arguments as for `evaluation_batches`."""
    return _batches_per_epoch(_open(directory, split, batcher), batcher)


@no_autograph
def _batches_per_epoch(shards, batcher):
    counts = tf.data.Dataset.range(len(shards.paths)).map(
        lambda shard: batcher.assign_batches(shards.read_lengths(shard), None).nrows()
    )
    return int(sum(deterministic(counts).as_numpy_iterator()))


class PaddingFraction(NamedTuple):
    """The fraction of positions that are padding, 0 to 1; source is None without sources."""

    source: float | None
    target: float

    def __str__(self):
        if self.source is None:
            return f"{self.target:.1%} of positions are padding"
        return f"{self.source:.1%} of source and {self.target:.1%} of target positions are padding"


@no_autograph
def padding_fraction(batches: tf.data.Dataset) -> PaddingFraction:
    """Measures the fraction of padding in a finite dataset of `(inputs, labels, weights)`."""

    def count(inputs, _, weights):
        source = inputs.get("source_ids", tf.zeros([0], tf.int32))
        sides = source == PAD_ID, weights == 0
        return tf.stack([[tf.math.count_nonzero(x), tf.size(x, tf.int64)] for x in sides])

    counts = deterministic(batches.map(count))  # [2 sides, 2]
    total = counts.reduce(tf.zeros([2, 2], tf.int64), tf.add).numpy()
    source, target = (total[:, 0] / np.maximum(total[:, 1], 1)).tolist()
    return PaddingFraction(source if total[0, 1] else None, target)


def _open(directory, split, batcher):
    """Opens the shards of a split; its longest side must fit the batcher."""
    shards = open_shards(directory, split)
    batcher.check_length(max(shards.report["longest_source"], shards.report["longest_target"]))
    return shards


def _finish(batches, count, service=None):
    options = tf.data.Options()
    # tf.data sees no input files that it could distribute over workers. Of a stream that
    # processes share, each batch goes to one of them; otherwise to all.
    policy = _AutoShard.OFF if service and service.job else _AutoShard.DATA
    options.experimental_distribute.auto_shard_policy = policy
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return deterministic(batches.prefetch(_PREFETCHED_BATCHES)).with_options(options)
