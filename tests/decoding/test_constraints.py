"""A search with phrases, compared with enumeration and with the rules spelled out in Python."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import PhraseConstraint, Phrases
from tests.decoding import toy as toys
from tests.decoding.toy import END, Toy, assert_hypotheses, enumerate_all, score


def dense(rows):
    """`Phrases` of {phrase, a tuple of tokens: count} for each sentence."""
    width = max([len(row) for row in rows] + [1])
    length = max([len(phrase) for row in rows for phrase in row] + [1])
    ids, counts = (
        np.zeros([len(rows), width, length], "int32"),
        np.zeros([len(rows), width], "int32"),
    )
    for row, phrases in enumerate(rows):
        for place, (phrase, count) in enumerate(phrases.items()):
            ids[row, place, : len(phrase)] = phrase
            counts[row, place] = count
    return Phrases(tf.constant(ids), tf.constant(counts))


def search(toy, max_lengths, beams, phrases, rows=None, continues=(), **options):
    continues = tf.constant([token in continues for token in range(toy.vocab)])
    constraint = PhraseConstraint(dense(phrases), END, continues)
    return toys.search(toy, max_lengths, beams, rows, constraint=constraint, **options)


def occurrences(ids, phrase, continues=()):
    """How often a phrase stands in a sequence, without overlap, as words of its own.

    It is no word of its own where one of the tokens that continue a word follows.
    """
    count, place = 0, 0
    while place + len(phrase) <= len(ids):
        end = place + len(phrase)
        found = tuple(ids[place:end]) == phrase
        count += found and not set(ids[end : end + 1]) & set(continues)
        place = end if found else place + 1
    return count


def has_all(ids, phrases, continues=()):
    return all(occurrences(ids, phrase, continues) >= count for phrase, count in phrases.items())


def sequences(result, row):
    return [
        tuple(ids[:length])
        for ids, length in zip(result.ids[row].numpy(), result.lengths[row].numpy(), strict=True)
    ]


def bank_of(ids, phrases):
    """Tokens that a hypothesis has of its phrases, those of one unfinished phrase included."""
    whole, longest = 0, 0
    for phrase, count in phrases.items():
        found, start = 0, 0
        for place in range(len(ids) + 1):
            if place - start >= len(phrase) and ids[place - len(phrase) : place] == phrase:
                found, start = found + 1, place
        whole += min(found, count) * len(phrase)
        if found < count:
            tail = ids[start:]
            longest = max([longest] + [n for n in range(1, len(phrase)) if tail[-n:] == phrase[:n]])
    return whole + longest


def next_tokens(ids, phrases):
    """The tokens that continue the longest beginning of each missing phrase."""
    found = set()
    for phrase, count in phrases.items():
        if occurrences(ids, phrase) < count:
            begun = [n for n in range(1, len(phrase)) if ids[-n:] == phrase[:n]]
            found.add(phrase[max(begun, default=0)])
    return found


def dealt(candidates, phrases):
    """Candidates (ids, log P), in the order in which they get beams."""
    ranked, seen = [], {}
    for ids, log_probability in sorted(candidates, key=lambda h: -h[1]):
        bank = bank_of(ids, phrases)
        seen[bank] = seen.get(bank, -1) + 1
        ranked.append((seen[bank], bank, ids, log_probability))
    highest = max(seen)
    ranked.sort(key=lambda c: (c[0], c[1] < highest, -(c[3] + 4.0 * c[1])))
    return [c[2:] for c in ranked]


def constrained_search(toy, sentence, beams, max_length, alpha, phrases):
    """The rules of a search with phrases, spelled out, without stopping early."""
    live, ended = [((), 0.0)], []
    for _ in range(max_length):
        candidates = []
        for ids, log_probability in live:
            following = toy.next_log_probabilities(sentence, ids)
            allowed = [t for t in range(toy.vocab) if t != END or has_all(ids, phrases)]
            best = sorted(allowed, key=lambda t: -following[t])[: 2 * beams]
            tokens = {*best, *next_tokens(ids, phrases)}
            candidates += [((*ids, t), log_probability + following[t]) for t in tokens]
        candidates = dealt(candidates, phrases)[: 2 * beams]
        ended += [h for h in candidates[:beams] if h[0][-1] == END]
        live = [h for h in candidates if h[0][-1] != END][:beams]
        if beams == 1 and ended:  # greedy search
            break
    live.sort(key=lambda h: (not has_all(h[0], phrases), -h[1]))
    scored = [[(*h, score(h[1], len(h[0]), alpha)) for h in group] for group in (ended, live)]
    return [*sorted(scored[0], key=lambda h: -h[2]), *scored[1]]


PHRASES = [{(2,): 1}, {}, {(3, 2): 1, (4,): 2}, {(2, 2, 4): 1, (5, 3): 1}, {(5,): 1, (4, 2): 2}]


def test_a_beam_as_wide_as_the_space_finds_the_best_sequences_with_the_phrases():
    toy, phrases = Toy(3, 4, sentences=3), [{(2, 3): 1}, {}, {(2,): 2}]
    result = search(toy, [4] * 3, 256, phrases, length_penalty=2.0, n_best=3)
    for row in range(3):
        expected = enumerate_all(toy, row, 4, 2.0)
        assert_hypotheses(
            result, row, [h for h in expected if h[0][-1] == END and has_all(h[0], phrases[row])]
        )


@pytest.mark.parametrize("beams", [1, 4])
def test_narrow_beams_are_dealt_to_banks_by_the_rules(beams):
    toy, max_lengths = Toy(7, 6, sentences=5), [9, 9, 12, 7, 14]
    result = search(toy, max_lengths, beams, PHRASES, n_best=min(beams, 2))
    for row, (max_length, phrases) in enumerate(zip(max_lengths, PHRASES, strict=True)):
        expected = constrained_search(toy, row, beams, max_length, 0.6, phrases)
        assert_hypotheses(result, row, expected)


# Phrases that stand in each other, as words of their own.
INSIDE = [
    {(5,): 1, (5, 6): 1},
    {(5,): 1, (7, 5, 6): 1, (8, 5): 1},
    {(5,): 2, (5, 6, 6): 2},
    {(7, 5): 1, (7, 5, 6): 1, (7,): 1, (5,): 1},
    {(5,): 1, (5, 7): 1, (4, 5): 1, (4, 5, 6): 1},
]


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(("rows", "continues"), [(PHRASES, ()), (INSIDE, (6,))])
def test_all_outputs_have_their_phrases_even_at_the_shortest_length_that_holds_them(
    rows, continues, beams
):
    need = [sum(len(p) * n for p, n in phrases.items()) for phrases in rows]
    for seed, extra in ((0, 0), (1, 0), (1, 3)):
        toy, lengths = Toy(seed, 9, sentences=5), [n + extra for n in need]
        result = search(toy, lengths, beams, rows, continues=continues)
        for row, phrases in enumerate(rows):
            [ids] = sequences(result, row)
            assert has_all(ids, phrases, continues), (seed, extra, row, ids)


def test_sentences_without_phrases_have_the_same_bits_as_in_a_search_without_a_constraint():
    toy, max_lengths = Toy(3, 9, sentences=5), [20, 8, 9, 14, 30]
    phrases = [{}, {(4, 7): 1}, {}, {}, {(2,): 1, (5, 6, 8): 1}]
    constrained = search(toy, max_lengths, 4, phrases, n_best=4)
    plain = toys.search(toy, max_lengths, 4, n_best=4)
    for row in (0, 2, 3):
        assert sequences(constrained, row) == sequences(plain, row)
        np.testing.assert_array_equal(constrained.scores[row], plain.scores[row])


def test_a_search_with_phrases_does_not_depend_on_the_batch():
    toy, max_lengths = Toy(5, 6, sentences=5), [9, 9, 12, 11, 14]
    together = search(toy, max_lengths, 4, PHRASES, n_best=2)
    for row, max_length in enumerate(max_lengths):
        alone = search(toy, [max_length], 4, [PHRASES[row]], rows=[row], n_best=2)
        assert sequences(together, row) == sequences(alone, 0)
        np.testing.assert_allclose(together.scores[row], alone.scores[0], rtol=1e-5)


def test_tokens_that_continue_a_word_do_not_follow_a_phrase():
    toy, phrases = Toy(8, 6, sentences=4), [{(2,): 1}, {(3, 2): 1}, {}, {(2,): 2}]
    free = search(toy, [9] * 4, 3, phrases)
    result = search(toy, [9] * 4, 3, phrases, continues=(4, 5))
    assert sequences(free, 2) == sequences(result, 2)
    for row in (0, 1, 3):
        [ids] = sequences(result, row)
        [(phrase, count)] = phrases[row].items()
        ends = [n for n in range(len(ids)) if ids[max(n + 1 - len(phrase), 0) : n + 1] == phrase]
        assert all(ids[n + 1] not in (4, 5) for n in ends[:count] if n + 1 < len(ids))
        assert has_all(ids, phrases[row])


# A phrase begins or is inside of another one, which continues its last word by 3.
NESTED = [
    {(2,): 1, (2, 3): 1},
    {(2, 3): 1, (2,): 1},
    {},
    {(2, 2, 3): 1, (2,): 1},
    {(2, 2): 1, (2, 3): 1},
]


def test_the_best_sequences_have_a_phrase_as_a_word_beside_a_longer_word_that_begins_with_it():
    toy = Toy(11, 4, sentences=5)
    toy.output[:, 3] += 1.0
    result = search(toy, [5] * 5, 4**5, NESTED, n_best=2, continues=(3,))
    for row, phrases in enumerate(NESTED):
        expected = enumerate_all(toy, row, 5, 0.6)
        assert_hypotheses(
            result, row, [h for h in expected if h[0][-1] == END and has_all(h[0], phrases, (3,))]
        )


RESERVED = [{(4,): 1}, {}, {(4,): 1, (5,): 1}, {(5,): 2, (2, 3): 1}, {(4,): 2}]
"""Tokens 4 and 5 appear as often as here, others at least so."""


def search_reserved(toy, max_lengths, beams, phrases, rows=None, **options):
    reserved = np.isin(np.arange(toy.vocab), [4, 5])
    constraint = PhraseConstraint(dense(phrases), END, reserved=reserved)
    return toys.search(toy, max_lengths, beams, rows, constraint=constraint, **options)


def has_exactly(ids, phrases):
    counts = [ids.count(token) == phrases.get((token,), 0) for token in (4, 5)]
    return all(counts) and has_all(ids, phrases)


def test_the_best_sequences_have_reserved_tokens_exactly_as_often_as_demanded():
    toy, rows = Toy(2, 6, sentences=5), [{(5,): 1, (2, 3): 1}, *RESERVED[:3], RESERVED[4]]
    toy.output[:, 4:] += 0.5
    result = search_reserved(toy, [4] * 5, 256, rows, n_best=2)
    for row, phrases in enumerate(rows):
        expected = [h for h in enumerate_all(toy, row, 4, 0.6) if has_exactly(h[0], phrases)]
        assert_hypotheses(result, row, [h for h in expected if h[0][-1] == END])


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
def test_narrow_beams_have_reserved_tokens_exactly_at_any_length_and_in_any_batch(beams):
    need = [sum(len(p) * n for p, n in phrases.items()) + 1 for phrases in RESERVED]
    for seed, extra in ((0, 0), (2, 6)):
        toy, lengths = Toy(seed, 8, sentences=5), [n + extra for n in need]
        result = search_reserved(toy, lengths, beams, RESERVED)
        for row, phrases in enumerate(RESERVED):
            [ids] = sequences(result, row)
            assert has_exactly(ids, phrases), (seed, row, ids)
    for row in (0, 3):
        alone = search_reserved(toy, [lengths[row]], beams, [RESERVED[row]], rows=[row])
        assert sequences(alone, 0) == sequences(result, row)
        np.testing.assert_allclose(alone.scores[0], result.scores[row], rtol=1e-5)


def test_a_forced_prefix_goes_before_phrases():
    toy, prefixes = Toy(4, 6, sentences=3), [(END,), (4, 5), (2,)]
    result = search(
        toy,
        [9] * 3,
        3,
        [{(2,): 1}, {(3, 2): 1}, {(2,): 1}],
        prefix_ids=tf.ragged.constant(prefixes, dtype=tf.int32).to_tensor(),
    )
    assert sequences(result, 0) == [(END,)]
    [ids] = sequences(result, 1)
    assert ids[:2] == (4, 5) and occurrences(ids, (3, 2))
    [ids] = sequences(result, 2)
    assert ids[0] == 2 and END in ids
