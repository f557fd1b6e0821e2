"""IBM model 1: the targets that it finds, and its probabilities, computed once more with dicts."""

import collections
import itertools

import numpy as np
import pytest

from t2t_keras.data import lexical_table
from t2t_keras.data.lexical_table import learn_lexical_table
from t2t_keras.errors import InputError
from tests.data.reading import MemoryShards


def random_pairs(count, seed=0):
    """Pairs whose source ids 1 … 8 are translated to 10 + id, in any order, with noise."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        source = rng.integers(1, 9, rng.integers(1, 7)).tolist()
        target = [s + 10 for s in source] + rng.integers(1, 30, 2).tolist()
        pairs.append((source, rng.permutation(target).tolist()))
    return pairs


def model_1(pairs, passes):
    """p(t | s) after some passes, a dict, by the definition."""
    probability = collections.defaultdict(lambda: 1.0)
    for _ in range(passes):
        counts = collections.Counter()
        for source, target in pairs:
            for t in target:
                sources = [0, *source]
                total = sum(probability[s, t] for s in sources)
                for s in sources:
                    counts[s, t] += probability[s, t] / total
        totals = collections.Counter()
        for (s, _), count in counts.items():
            totals[s] += count
        probability = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return probability


@pytest.mark.parametrize("chunk", [lexical_table._CHUNK, 50])
def test_targets_are_ordered_as_by_the_definition(chunk, monkeypatch):
    monkeypatch.setattr(lexical_table, "_CHUNK", chunk)
    first, second = random_pairs(60), random_pairs(40, seed=1)
    table, frequent = learn_lexical_table(MemoryShards(first, second), 10, 30, k=5)
    right = model_1(first + second, lexical_table._PASSES)
    for s in range(1, 9):
        ranked = sorted((t for source, t in right if source == s), key=lambda t: -right[s, t])
        probabilities = [right[s, t] for t in table[s]]
        np.testing.assert_allclose(probabilities, [right[s, t] for t in ranked[:5]], rtol=1e-9)
        assert table[s, 0] == s + 10
    assert not table[0].any() and not table[9].any()  # padding, and an id that never occurs
    counts = collections.Counter(itertools.chain(*(target for _, target in first + second)))
    found = [counts[t] for t in frequent]
    assert found == sorted(found, reverse=True) and sorted(frequent) == list(range(30))


def test_memory_is_bounded_rare_pairs_go_first_and_later_shards_are_left_out(monkeypatch):
    monkeypatch.setattr(lexical_table, "_CHUNK", 100)
    monkeypatch.setattr(lexical_table, "_MAX_ENTRIES", 60)
    monkeypatch.setattr(lexical_table, "_MAX_SENTENCES", 300)
    shards = MemoryShards(random_pairs(300), [([9], [29])] * 50)
    table, _ = learn_lexical_table(shards, 10, 30, k=3)
    assert table[1:9, 0].tolist() == list(range(11, 19))
    assert not table[9].any()
    with pytest.raises(InputError, match="k is 0: give a whole number of at least 1"):
        learn_lexical_table(shards, 10, 30, k=0)
