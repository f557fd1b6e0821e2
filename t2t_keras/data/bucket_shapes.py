"""The shapes of batches for XLA, which compiles each one: few shapes, with little padding.

`bucket_shapes` chooses them for given pairs, `bucket_lengths` without pairs. Both are what
`LengthBuckets` takes as `bucket_lengths`.
"""

import numpy as np

_MOST_LENGTHS = 40  # of a side, among which to choose


def bucket_lengths(max_length: int, count: int = 16) -> tuple[int, ...]:
    """Returns at most `count` lengths of buckets up to max_length, ascending.

    Each is about a fixed factor longer than the one before, so that the fraction of padding is the
    same for short and long sentences; all but the last are multiples of 4.
    """
    shortest = min(8, max_length)
    factor = (max_length / shortest) ** (1 / (count - 1))
    lengths = {-(-round(shortest * factor**i) // 4) * 4 for i in range(count)}
    return (*sorted(length for length in lengths if length < max_length), max_length)


def bucket_shapes(
    lengths: np.ndarray, max_length: int, count: int = 16
) -> tuple[tuple[int, int], ...]:
    """Returns at most `count` shapes (source, target), ascending, that need the least padding.

    Each shape is at least as long on both sides as the one before, and a pair gets the first
    one in which it fits; the last has room for a pair of `max_length`. Dynamic programming finds,
    among all such chains of `count` shapes, one with the fewest positions for all pairs. If a side
    has more than 40 different lengths, only 40 of them are used, each about a fixed factor longer
    than the one before.

    Args:
        lengths: int [pairs, 2], tokens of sources and targets, at least one pair, none longer
            than `max_length`.
        count: at least 2.
    """
    lengths = np.asarray(lengths)
    longest = (max_length, max_length)
    if (lengths.max(axis=0) < max_length).any():
        count -= 1  # the last shape is for other pairs
    sources, targets = (_some_of(side) for side in lengths.T)
    pairs = np.zeros([len(sources), len(targets)])  # that a shape holds
    places = np.searchsorted(sources, lengths[:, 0]), np.searchsorted(targets, lengths[:, 1])
    np.add.at(pairs, places, 1)
    pairs = pairs.cumsum(axis=0).cumsum(axis=1).ravel()
    shapes = np.array(np.meshgrid(sources, targets, indexing="ij")).reshape(2, -1).T
    holds = (shapes[:, np.newaxis] <= shapes).all(axis=-1)
    # The positions of the pairs that are new in a shape (column) after another one (row).
    added = np.where(holds, (pairs - pairs[:, np.newaxis]) * shapes.sum(axis=1), np.inf)
    total, befores = pairs * shapes.sum(axis=1), []
    for _ in range(count - 1):
        chains = total[:, np.newaxis] + added
        befores.append(chains.argmin(axis=0))
        total = chains.min(axis=0)
    place, chosen = len(shapes) - 1, [longest, tuple(shapes[-1].tolist())]
    for before in reversed(befores):
        place = before[place]
        chosen.append(tuple(shapes[place].tolist()))
    return tuple(dict.fromkeys(reversed(chosen)))


def _some_of(lengths):
    """Returns at most `_MOST_LENGTHS` of the lengths, ascending, the longest among them."""
    unique = np.unique(lengths)
    if len(unique) <= _MOST_LENGTHS:
        return unique
    wanted = np.geomspace(unique[0], unique[-1], _MOST_LENGTHS).round()
    return unique[np.unique(np.searchsorted(unique, wanted))]
