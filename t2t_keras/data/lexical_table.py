"""Lexical translation probabilities p(target | source) of IBM model 1.

Brown et al. 1993, "The Mathematics of Statistical Machine Translation". In model 1 each target
token comes from one source token, or from none, and only the two ids matter. A few passes of
expectation maximization over a tokenized split learn p(t | s); `learn_lexical_table` keeps the best
targets of each source. Memory is bounded: above a maximum number of id pairs the pairs with the
lowest counts are dropped. Time is bounded: if there are more than half a million sentences, only
the first shards are read, each of which is an even sample of the split.
"""

import itertools
from typing import Any

import numpy as np

from t2t_keras.errors import require_whole_number

_PASSES = 4
_MAX_SENTENCES = 1 << 19
_MAX_ENTRIES = 1 << 23  # pairs of ids that are kept
_CHUNK = 1 << 22  # pairs of tokens that are counted together, but for a longer sentence
_NOTHING = 0  # the source of target tokens that come from no token; the id of padding


def learn_lexical_table(
    shards: Any, source_vocab: int, target_vocab: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k most probable targets of each source id, and all targets by their frequency.

    They are int32 [source_vocab, k], the most probable first, then 0; and int32 [target_vocab], the
    most frequent ids first. `shards` are `Shards` of a split, or an object with `paths` and `read`.

    Raises:
        InputError: if k is below 1.
    """
    require_whole_number("k", k)
    keys, counts = np.zeros(0, np.int64), np.zeros(0)
    frequency = np.zeros(target_vocab, np.int64)
    # The first pass: every source of a target token is equally probable.
    for sources, targets, tokens in _chunks(shards):
        frequency += np.bincount(targets[_firsts(tokens)], minlength=target_vocab)
        share = 1 / np.bincount(tokens)[tokens]
        keys, counts = _add(keys, counts, sources * target_vocab + targets, share)
    for _ in range(_PASSES - 1):
        probabilities = _normalized(keys, counts, target_vocab)
        counts = np.zeros(len(keys))
        for sources, targets, tokens in _chunks(shards):
            wanted = sources * target_vocab + targets
            entry = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            share = np.where(keys[entry] == wanted, probabilities[entry], 0)  # 0 if dropped
            total = np.bincount(tokens, share)[tokens]
            share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)
            counts += np.bincount(entry, share, minlength=len(keys))
    return _best(keys, _normalized(keys, counts, target_vocab), source_vocab, target_vocab, k), (
        np.argsort(-frequency, kind="stable").astype(np.int32)
    )


def _chunks(shards):
    """Yields source id, target id and number of the target token of all pairs in some sentences.

    They are three int64 arrays; the number is the same in all pairs of a target token.
    """
    seen = 0
    for index in range(len(shards.paths)):
        if seen >= _MAX_SENTENCES:
            return
        source, source_splits, target, target_splits = (
            part.numpy().astype(np.int64) for part in shards.read(index)
        )
        source = np.insert(source, source_splits[:-1], _NOTHING)
        source_splits = source_splits + np.arange(len(source_splits))
        sizes = np.diff(source_splits) * np.diff(target_splits)
        bounds = np.searchsorted(np.cumsum(sizes), np.arange(_CHUNK, sizes.sum(), _CHUNK)) + 1
        bounds = np.unique([0, *bounds, len(sizes)])
        for start, end in itertools.pairwise(bounds):
            splits = target_splits[start : end + 1]
            targets = target[splits[0] : splits[-1]]
            sentence = np.repeat(np.arange(start, end), np.diff(splits))  # of each target token
            width = np.diff(source_splits)[sentence]
            tokens = np.repeat(np.arange(len(targets)), width)
            within = np.arange(len(tokens)) - np.repeat(np.cumsum(width) - width, width)
            yield source[source_splits[sentence][tokens] + within], targets[tokens], tokens
        seen += len(sizes)


def _firsts(tokens):
    """Returns the index of the first element of each run in a sorted array."""
    return np.flatnonzero(np.diff(tokens, prepend=-1))


def _add(keys, counts, new_keys, new_counts):
    """Adds up counts by key; returns sorted keys, at most `_MAX_ENTRIES`, and their counts."""
    keys, place = np.unique(np.concatenate([keys, new_keys]), return_inverse=True)
    counts = np.bincount(place, np.concatenate([counts, new_counts]))
    if len(keys) <= _MAX_ENTRIES:
        return keys, counts
    kept = np.sort(np.argpartition(-counts, _MAX_ENTRIES)[:_MAX_ENTRIES])
    return keys[kept], counts[kept]


def _normalized(keys, counts, target_vocab):
    """Returns p(t | s) of each key."""
    sources = keys // target_vocab
    totals = np.bincount(sources, counts)[sources]
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)


def _best(keys, probabilities, source_vocab, target_vocab, k):
    """Returns the k most probable targets of each source, int32 [source_vocab, k]."""
    order = np.lexsort((-probabilities, keys // target_vocab))
    order = order[probabilities[order] > 0]
    sources, targets = np.divmod(keys[order], target_vocab)
    firsts = _firsts(sources)
    rank = np.arange(len(sources)) - np.repeat(firsts, np.diff([*firsts, len(sources)]))
    table = np.zeros((source_vocab, k), np.int32)
    kept = rank < k
    table[sources[kept], rank[kept]] = targets[kept]
    table[_NOTHING] = 0
    return table
