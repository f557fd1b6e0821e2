import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import beam_search
from t2t_keras.decoding.compiled_loop import CompiledLoop
from t2t_keras.errors import InputError
from tests import reference
from tests.decoding.toy import (
    END,
    START,
    Toy,
    assert_hypotheses,
    enumerate_all,
    narrow_search,
    scripted_search,
    search,
)

SCRIPT = [
    [[0.1, 0.1, 0.8], [0.1, 0.1, 0.8]],
    [[0.4, 0.5, 0.1], [0.2, 0.4, 0.4]],
    [[0.05, 0.9, 0.05], [0.4, 0.4, 0.2]],
]


@pytest.mark.parametrize(("alpha", "ids", "scores"), [
    (0.0, [[2, 1, 0], [2, 0, 1]], np.log([0.4, 0.288])),
    (3.5, [[2, 0, 1], [2, 1, 0]], [-0.454791, -0.534219]),
])  # fmt: skip
def test_scripted_probabilities(alpha, ids, scores):
    for loop in (None, CompiledLoop()):
        result = scripted_search(SCRIPT, max_lengths=[3], length_penalty=alpha, n_best=2, loop=loop)
        np.testing.assert_array_equal(result.ids[0, :, :3], ids)
        reference.assert_close(result.scores[0], scores)


def test_a_search_in_a_function_of_xla_is_refused():
    for loop in (None, CompiledLoop()):
        run = tf.function(
            lambda loop=loop: scripted_search(SCRIPT, max_lengths=[3], loop=loop), jit_compile=True
        )
        with pytest.raises(InputError, match=r"jit_compile=True.* loop=CompiledLoop\(\)"):
            run()
    with pytest.raises(InputError, match="state of the step grows"):
        search(Toy(0, 4, 1), [3], 2, loop=CompiledLoop())


@pytest.mark.parametrize(
    ("vocab", "max_length", "alpha"), [(3, 5, 0.6), (4, 4, 0.0), (4, 4, 3.0), (3, 5, -1.0)]
)
def test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds(vocab, max_length, alpha):
    toy, beams = Toy(vocab, vocab, sentences=3), vocab**max_length
    for n_best in (1, beams):
        result = search(toy, [max_length] * 3, beams, length_penalty=alpha, n_best=n_best)
        for row in range(3):
            assert_hypotheses(result, row, enumerate_all(toy, row, max_length, alpha))


@pytest.mark.parametrize(("beams", "alpha"), [(1, 0.6), (2, 0.6), (2, -0.5), (5, 0.6), (5, 2.0)])
def test_narrow_beams_follow_the_rules_in_a_batch_of_all_lengths(beams, alpha):
    toy, max_lengths = Toy(7, 6, sentences=8), [9, 1, 4, 12, 7, 0, 3, 15]
    for n_best in {1, beams}:
        result = search(toy, max_lengths, beams, length_penalty=alpha, n_best=n_best)
        for row, max_length in enumerate(max_lengths):
            assert_hypotheses(result, row, narrow_search(toy, row, beams, max_length, alpha))


def test_results_do_not_depend_on_the_batch():
    toy, max_lengths = Toy(3, 9, sentences=6), [3, 20, 8, 1, 14, 30]
    together = search(toy, max_lengths, 4, n_best=4)
    for row, max_length in enumerate(max_lengths):
        alone = search(toy, [max_length], 4, rows=[row], n_best=4)
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[row, :, :length], alone.ids[0])
        assert not np.any(together.ids[row, :, length:])
        for one, other in zip(together[1:4], alone[1:4], strict=True):
            np.testing.assert_allclose(one[row], other[0], rtol=1e-5)


def test_finished_sentences_leave_the_batch_and_keep_their_results():
    toy, max_lengths, sizes = Toy(3, 9, sentences=40), [i % 14 for i in range(40)], []

    def counted(ids, state):
        sizes.append(len(ids))
        assert len(state["hidden"]) == len(state["history"]) == len(ids)
        return Toy.step(toy, ids, state)

    toy.step = counted
    prefixes = [(4,) if i % 3 else () for i in range(40)]
    prefix_ids = tf.ragged.constant(prefixes, dtype=tf.int32).to_tensor()
    result = search(toy, max_lengths, 2, n_best=2, prefix_ids=prefix_ids)
    for row, max_length in enumerate(max_lengths):
        expected = narrow_search(toy, row, 2, max_length, 0.6, prefixes[row])
        assert_hypotheses(result, row, expected)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 40 and sizes[-1] == 8 and len(set(sizes)) > 2


@pytest.mark.parametrize("free_prefix", [0, 1])
def test_a_forced_prefix_keeps_its_true_probability_or_its_first_tokens_have_none(free_prefix):
    toy, prefixes = Toy(5, 5, sentences=5), [(), (4,), (3, 3, 2), (2, END), (4, 4, 4, 4, 4, 4)]
    max_lengths = [6, 6, 7, 6, 4]  # the last prefix is longer than its sentence may be
    result = search(
        toy,
        max_lengths,
        3,
        n_best=3,
        prefix_ids=tf.ragged.constant(prefixes, dtype=tf.int32).to_tensor(),
        free_prefix=free_prefix,
    )
    for row, prefix in enumerate(prefixes):
        expected = narrow_search(toy, row, 3, max_lengths[row], 0.6, prefix, free_prefix)
        assert_hypotheses(result, row, expected)


def test_ties_go_to_what_ended_first_then_to_the_lower_beam_and_id():
    result = scripted_search(
        np.full([3, 2, 4], 0.25), max_lengths=[3], n_best=2, length_penalty=0.0
    )
    np.testing.assert_array_equal(result.ids[0], [[1, 0], [0, 1]])


@pytest.mark.parametrize(("n_best", "patience", "steps"), [
    (1, None, 1),  # log 0.06 can't come up to log 0.9 at any length
    # The second best is log 0.054 / penalty(2) = -2.66; 4 · log 0.06 / penalty(50) is below it.
    (2, None, 4),
    *((2, 2, 2), (2, 3, 3), (2, 9, 4)),  # the best one is 1 token long
])  # fmt: skip
def test_the_search_stops_when_nothing_can_be_beaten(n_best, patience, steps):
    likely_end, calls = np.tile([0.04, 0.9, 0.06], [50, 2, 1]), []
    options = {} if patience is None else {"n_best_patience": patience}
    found = scripted_search(likely_end, calls, max_lengths=[50], n_best=n_best, **options)
    assert len(calls) == steps
    assert np.all(found.scores > -np.inf)


GO, STOP = [0.98, 0.01, 0.01], [0.01, 0.98, 0.01]


@pytest.mark.parametrize(("alpha", "first", "length"), [
    (1.0, [0.4, 0.5, 0.1], 20),  # log 0.4 is behind at the next length, ahead at the last
    (-1.0, [0.5, 0.4, 0.1], 2),  # and here, with longer ones worse, ahead at the next only
])  # fmt: skip
def test_the_search_goes_on_while_a_longer_hypothesis_may_win(alpha, first, length):
    script = [[row] * 2 for row in [first] + [GO] * (length - 2) + [STOP] * 19]
    result = scripted_search(script, max_lengths=[20], length_penalty=alpha)
    np.testing.assert_array_equal(result.ids[0, 0, :length], [0] * (length - 1) + [1])


@pytest.mark.parametrize(("ratio", "steps", "best"), [
    (None, 6, [0, 0, 0, 0, 0, 1]),
    (6, 6, [0, 0, 0, 0, 0, 1]),  # log 0.42 / penalty(6) is ahead of log 0.5
    (2, 1, [1]),  # log 0.4 / penalty(2), the most it is given, is behind
    (2.5, 2, [1]),  # log 0.4 / penalty(3) is ahead, log 0.392 / penalty(3) no more
    (3.5, 6, [0, 0, 0, 0, 0, 1]),  # log 0.376 / penalty(4) is ahead, and ever after
])  # fmt: skip
def test_a_search_does_not_wait_for_ends_beyond_the_length_ratio(ratio, steps, best):
    script = [[row] * 2 for row in [[0.4, 0.5, 0.1], GO, GO, GO, GO, STOP, STOP]]
    options, calls = {"length_penalty": 1.0, "stopping_length_ratio": ratio}, []
    found = scripted_search(script, calls, max_lengths=[7], **options)
    np.testing.assert_array_equal(found.ids[0, 0, : len(best)], best)
    assert len(calls) == steps


def test_every_sentence_has_n_best_hypotheses_or_a_mark_that_there_are_no_more():
    script = [[[0.25, 0.75]] * 3] * 2  # 1; 0 1; 0 0: three sequences in all
    result = scripted_search(script, beam_size=3, max_lengths=[1], n_best=3)
    np.testing.assert_array_equal(result.lengths[0], [1, 1, 0])
    np.testing.assert_allclose(result.scores[0], [np.log(0.75), np.log(0.25), -np.inf], 1e-5)
    for beams, n_best in ((0, 1), (2, 3), (2, 0)):
        with pytest.raises(InputError, match="beam_size"):
            search(Toy(0, 3, sentences=1), [3], beams, n_best=n_best)


def test_one_graph_serves_every_batch_and_length():
    toy = Toy(1, 6, sentences=4)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, 5]),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, None], tf.int32),
        ]
    )
    def run(hidden, max_lengths, prefix_ids):
        batch = tf.shape(hidden)[0]
        return beam_search(
            toy.step,
            {"hidden": hidden, "history": tf.zeros([batch, 3, 0, 5])},
            bos_ids=tf.fill([batch], START),
            eos_id=END,
            beam_size=3,
            max_lengths=max_lengths,
            n_best=3,
            prefix_ids=prefix_ids,
        )

    for max_lengths in ([5, 9, 3, 1], [11], []):
        rows = list(range(len(max_lengths)))
        hidden = toy.state(3, rows)["hidden"]
        prefix = tf.fill([len(rows), 1], 3)
        result = run(hidden, max_lengths, prefix)
        eager = search(toy, max_lengths, 3, rows=rows, n_best=3, prefix_ids=prefix)
        for one, other in zip(result[:4], eager[:4], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
    assert run.experimental_get_tracing_count() == 1
    assert result.ids.shape == (0, 3, 0)
