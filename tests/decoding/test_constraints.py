"""A search with required tokens, compared with enumeration and with the rules in Python."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import RequiredTokens
from tests.decoding import toy as toys
from tests.decoding.toy import END, Toy, assert_hypotheses, enumerate_all, score

TOKENS = (4, 5, 2)
REQUIRED = [{4: 1}, {}, {4: 1, 5: 1}, {5: 2, 2: 1}, {4: 2}]
"""{token: how often it appears} of each sentence; those of `TOKENS` that are left out do not."""


def search(toy, max_lengths, beams, required, rows=None, **options):
    constraint = RequiredTokens(
        tf.constant(TOKENS),
        tf.constant([[row.get(token, 0) for token in TOKENS] for row in required]),
        END,
        np.isin(np.arange(toy.vocab), TOKENS),
    )
    return toys.search(toy, max_lengths, beams, rows, constraint=constraint, **options)


def has_exactly(ids, required):
    return all(ids.count(token) == required.get(token, 0) for token in TOKENS)


def sequences(result, row):
    return [
        tuple(ids[:length])
        for ids, length in zip(result.ids[row].numpy(), result.lengths[row].numpy(), strict=True)
    ]


def bank_of(ids):
    return sum(token in TOKENS for token in ids)


def dealt(candidates):
    """Candidates (ids, log P), in the order in which they get beams."""
    ranked, seen = [], {}
    for ids, log_probability in sorted(candidates, key=lambda h: -h[1]):
        bank = bank_of(ids)
        seen[bank] = seen.get(bank, -1) + 1
        ranked.append((seen[bank], bank, ids, log_probability))
    highest = max(seen)
    ranked.sort(key=lambda c: (c[0], c[1] < highest, -(c[3] + 4.0 * c[1])))
    return [c[2:] for c in ranked]


def constrained_search(toy, sentence, beams, max_length, alpha, required):
    """The rules of a search with required tokens, spelled out, without stopping early."""
    live, ended = [((), 0.0)], []
    for _ in range(max_length):
        candidates = []
        for ids, log_probability in live:
            following = toy.next_log_probabilities(sentence, ids)
            missing = {t for t, count in required.items() if ids.count(t) < count}
            free = {*range(toy.vocab)} - {*TOKENS} - ({END} if missing else set())
            tokens = {*sorted(free, key=lambda t: -following[t])[: 2 * beams], *missing}
            candidates += [((*ids, t), log_probability + following[t]) for t in tokens]
        candidates = dealt(candidates)[: 2 * beams]
        ended += [h for h in candidates[:beams] if h[0][-1] == END]
        live = [h for h in candidates if h[0][-1] != END][:beams]
        if beams == 1 and ended:  # greedy search
            break
    live.sort(key=lambda h: (not has_exactly(h[0], required), -h[1]))
    scored = [[(*h, score(h[1], len(h[0]), alpha)) for h in group] for group in (ended, live)]
    return [*sorted(scored[0], key=lambda h: -h[2]), *scored[1]]


def test_a_beam_as_wide_as_the_space_finds_the_best_sequences_with_the_tokens():
    toy = Toy(2, 6, sentences=5)
    toy.output[:, 4:] += 0.5
    result = search(toy, [4] * 5, 256, REQUIRED, n_best=2)
    for row, required in enumerate(REQUIRED):
        expected = [h for h in enumerate_all(toy, row, 4, 0.6) if has_exactly(h[0], required)]
        assert_hypotheses(result, row, [h for h in expected if h[0][-1] == END])


@pytest.mark.parametrize("beams", [1, 4])
def test_narrow_beams_are_dealt_to_banks_by_the_rules(beams):
    toy, max_lengths = Toy(7, 7, sentences=5), [9, 9, 12, 7, 14]
    result = search(toy, max_lengths, beams, REQUIRED, n_best=min(beams, 2))
    for row, (max_length, required) in enumerate(zip(max_lengths, REQUIRED, strict=True)):
        expected = constrained_search(toy, row, beams, max_length, 0.6, required)
        assert_hypotheses(result, row, expected)


@pytest.mark.slow
def test_outputs_have_the_tokens_at_any_length_that_holds_them_and_in_any_batch():
    beams = 3
    for seed, extra in ((0, 1), (2, 7)):
        toy = Toy(seed, 8, sentences=5)
        lengths = [sum(required.values()) + extra for required in REQUIRED]
        result = search(toy, lengths, beams, REQUIRED)
        for row, required in enumerate(REQUIRED):
            [ids] = sequences(result, row)
            assert has_exactly(ids, required), (seed, row, ids)
    for row in (0, 3):
        alone = search(toy, [lengths[row]], beams, [REQUIRED[row]], rows=[row])
        assert sequences(alone, 0) == sequences(result, row)
        np.testing.assert_allclose(alone.scores[0], result.scores[row], rtol=1e-5)


def test_sentences_without_required_tokens_have_the_bits_of_a_search_without_a_constraint():
    class Rare(Toy):
        def step(self, ids, state):
            logits, state = super().step(ids, state)
            return tf.where(np.isin(np.arange(self.vocab), TOKENS), -100.0, logits), state

    toy, max_lengths = Rare(3, 9, sentences=5), [20, 8, 9, 14, 30]
    constrained = search(toy, max_lengths, 4, [{}, {4: 1}, {}, {}, {2: 1, 5: 2}], n_best=4)
    plain = toys.search(toy, max_lengths, 4, n_best=4)
    for row in (0, 2, 3):
        assert sequences(constrained, row) == sequences(plain, row)
        np.testing.assert_array_equal(constrained.scores[row], plain.scores[row])


def test_a_forced_prefix_goes_before_the_tokens():
    toy, prefixes = Toy(4, 6, sentences=3), [(END,), (3, 5), (2,)]
    result = search(
        toy,
        [9] * 3,
        3,
        [{2: 1}, {4: 1, 5: 1}, {2: 1}],
        prefix_ids=tf.ragged.constant(prefixes, dtype=tf.int32).to_tensor(),
    )
    assert sequences(result, 0) == [(END,)]
    [ids] = sequences(result, 1)
    assert ids[:2] == (3, 5) and has_exactly(ids, {4: 1, 5: 1})
    [ids] = sequences(result, 2)
    assert ids[0] == 2 and has_exactly(ids, {2: 1}) and END in ids
