"""Random choices that come out alike on every version of Python."""

import bisect
import itertools
import random


class Dice:
    """Choices made with `random.Random.random` alone, whose values Python keeps fixed."""

    def __init__(self, seed):
        self._random = random.Random(seed).random

    def chance(self, probability):
        """Says yes with a probability."""
        return self._random() < probability

    def choice(self, items):
        """Gives one item of a sequence, each as likely."""
        return items[int(self._random() * len(items))]

    def between(self, first, last):
        """Gives a whole number from `first` to `last`."""
        return first + int(self._random() * (last - first + 1))

    def weighted(self, table):
        """Gives an item of a `Weighted` table."""
        return table.items[bisect.bisect(table.sums, self._random() * table.sums[-1])]


class Weighted:
    """Items with whole-number weights.

    >>> Weighted(apple=2, pear=1).items
    ('apple', 'pear')
    """

    def __init__(self, **weights):
        self.items = tuple(weights)
        self.sums = tuple(itertools.accumulate(weights.values()))
