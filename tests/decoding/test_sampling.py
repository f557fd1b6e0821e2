import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding import beam_search, sample
from tests.decoding.toy import END, START, Toy, assert_hypotheses, narrow_search, scripted

PROBABILITIES = np.array([0.05, 0.3, 0.5, 0.15])
MAX_LENGTHS = [12, 5, 9, 0]
SEEDS = [[3, 0], [3, 1], [7, 0], [3, 0]]


def draw(toy, **options):
    return sample(
        toy.step,
        toy.state(options.get("samples", 1)),
        bos_ids=[START] * 4,
        eos_id=END,
        max_lengths=MAX_LENGTHS,
        seeds=SEEDS,
        **options,
    )


def draw_once(step, state, samples, **options):
    """Draws one token of one sentence, which no token ends."""
    options |= {"bos_ids": [0], "eos_id": 10_000, "max_lengths": [1], "seeds": [[1, 0]]}
    return sample(step, state, samples=samples, **options)


@pytest.mark.parametrize("free_prefix", [0, 1])
def test_sampling_from_one_token_follows_the_likeliest_and_a_forced_prefix(free_prefix):
    toy, prefixes = Toy(2, 6, sentences=4), [(), (4, 5), (3,), (2,)]
    prefix_ids = tf.ragged.constant(prefixes, dtype=tf.int32).to_tensor()
    result = draw(toy, top_k=1, prefix_ids=prefix_ids, free_prefix=free_prefix)
    for row, (prefix, max_length) in enumerate(zip(prefixes, MAX_LENGTHS, strict=True)):
        expected = narrow_search(toy, row, 1, max_length, 0.6, prefix, free_prefix)
        assert_hypotheses(result, row, expected)


@pytest.mark.parametrize("options", [{"temperature": 1e-4}, {"top_k": 1}, {"top_p": 1e-6}])
def test_sampling_without_freedom_is_a_search_with_a_beam_of_one(options):
    toy = Toy(4, 7, sentences=4)
    greedy = beam_search(
        toy.step,
        toy.state(1),
        bos_ids=[START] * 4,
        eos_id=END,
        beam_size=1,
        max_lengths=MAX_LENGTHS,
    )
    for one, other in zip(draw(toy, **options), greedy, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(("options", "expected"), [
    ({}, PROBABILITIES),
    ({"temperature": 0.5}, PROBABILITIES**2),
    ({"top_k": 3}, PROBABILITIES * [0, 1, 1, 1]),
    ({"banned": [False, True, False, False]}, PROBABILITIES * [1, 0, 1, 1]),
    ({"top_k": 2, "banned": [False, True, False, False]}, PROBABILITIES * [0, 0, 1, 1]),
    ({"top_k": 9}, PROBABILITIES),
    ({"top_p": 0.7}, PROBABILITIES * [0, 1, 1, 0]),  # 0.5 is less than 0.7, 0.8 is not
    ({"top_p": 0.81}, PROBABILITIES * [0, 1, 1, 1]),
    ({"top_k": 2, "top_p": 0.6}, PROBABILITIES * [0, 0, 1, 0]),  # 0.5 / 0.8 is enough
])  # fmt: skip
def test_frequencies_are_those_of_the_closed_form(options, expected):
    count = 20_000
    step, state = scripted([np.tile(PROBABILITIES, [count, 1])])
    result = draw_once(step, state, count, **options)
    found = np.bincount(result.ids.numpy().ravel(), minlength=4) / count
    expected = expected / expected.sum()
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / count))
    assert not found[expected == 0].any()
    np.testing.assert_allclose(
        result.log_probabilities[0], np.log(PROBABILITIES)[result.ids[0, :, 0]], 1e-5
    )


@pytest.mark.parametrize("options", [{}, {"top_k": 16}, {"top_p": 1 - 1e-6}])
def test_a_large_vocabulary_is_drawn_by_blocks_from_the_same_probabilities(options):
    """Likely ids in some blocks of 128 tokens, an id alone in its block, blocks without any."""
    likely = [*range(0, 384, 40), 900, 1_000, 1_001, 1_002, 1_003, 1_020]
    probabilities = np.zeros([5_120])
    probabilities[likely] = np.random.default_rng(0).dirichlet(np.ones(len(likely)))
    count = 4_000
    with np.errstate(divide="ignore"):
        step, state = scripted([np.tile(probabilities, [count, 1])])
    result = draw_once(step, state, count, **options)
    found = np.bincount(result.ids.numpy().ravel(), minlength=5_120)
    expected = count * probabilities[likely]
    assert found[likely].sum() == count
    chi_squared = np.sum((found[likely] - expected) ** 2 / expected)
    assert chi_squared < 37.7  # 15 degrees of freedom: 0.1 %


def test_plain_forms_draw_the_same_tokens_from_a_large_vocabulary():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(5_120))
    step, state = scripted([np.tile(probabilities, [4_000, 1])])
    found = draw_once(step, state, 4_000)
    with ops.plain():
        np.testing.assert_array_equal(draw_once(step, state, 4_000).ids, found.ids)


@pytest.mark.parametrize("options", [{"top_p": 0.5}, {"top_p": 0.1}, {"top_k": 300, "top_p": 0.9}])
def test_a_nucleus_is_whole_whether_it_is_small_or_not(options):
    """Of 1,000 tokens 0.5 needs more than 128, 0.1 less, and 300 tokens are more as well."""
    probabilities = np.exp(-np.arange(1_000) / 400)
    probabilities /= probabilities.sum()
    step, state = scripted([np.tile(probabilities, [30_000, 1])])
    result = draw_once(step, state, 30_000, **options)
    top = probabilities[: options.get("top_k", 1_000)]
    size = 1 + np.searchsorted(np.cumsum(top / top.sum()), options["top_p"])
    counts = np.bincount(result.ids.numpy().ravel(), minlength=1_000)
    assert counts[:size].all() and not counts[size:].any()
    expected = 30_000 * top[:size] / top[:size].sum()
    assert np.sum((counts[:size] - expected) ** 2 / expected) < size + 4 * np.sqrt(2 * size)


def test_a_seed_draws_the_same_samples_again_and_samples_differ():
    toy = Toy(6, 9, sentences=4)
    once, again = draw(toy, samples=5), tf.function(lambda: draw(toy, samples=5))()
    np.testing.assert_array_equal(once.ids, again.ids)
    assert len({tuple(ids) for ids in once.ids[0].numpy()}) > 1
    np.testing.assert_array_equal(once.lengths[3], np.zeros(5))


def test_logits_of_unknown_rank_are_drawn_from():
    step, state = scripted([np.tile(PROBABILITIES, [5, 1])])

    def unknown(ids, state):
        logits, state = step(ids, state)
        return tf.numpy_function(np.copy, [logits], tf.float32), state

    found = tf.function(lambda: draw_once(unknown, state, 5))()
    np.testing.assert_array_equal(found.ids, draw_once(step, state, 5).ids)


def test_samples_of_a_sentence_do_not_depend_on_its_batch():
    toy = Toy(6, 9, sentences=4)
    together = draw(toy, samples=3)
    for row in range(4):
        alone = sample(
            toy.step,
            toy.state(3, [row]),
            bos_ids=[START],
            eos_id=END,
            max_lengths=[MAX_LENGTHS[row]],
            seeds=[SEEDS[row]],
            samples=3,
        )
        length = alone.ids.shape[2]
        np.testing.assert_array_equal(together.ids[row, :, :length], alone.ids[0])
        np.testing.assert_allclose(together.scores[row], alone.scores[0], 1e-5)
    assert not np.array_equal(together.ids[0], together.ids[1])


def test_each_sentence_is_drawn_by_its_own_settings():
    """What a neighbor asks for changes nothing, and values that mean "none" are none."""
    toy = Toy(6, 9, sentences=4)
    settings = {"temperature": [0.5, 1.0, 2.0, 1.0], "top_k": [3, 0, 9, 0], "top_p": [1, 1, 0.4, 1]}
    dtypes = {"temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32}
    tensors = {name: tf.constant(x, dtypes[name]) for name, x in settings.items()}
    together = tf.function(lambda: draw(toy, samples=6, **tensors))()
    for row in range(3):
        given = {name: values[row] for name, values in settings.items()}
        given["top_k"] = given["top_k"] or None
        alone = draw(toy, samples=6, **given)
        length = int(tf.reduce_max(together.lengths[row]))
        np.testing.assert_array_equal(together.ids[row, :, :length], alone.ids[row, :, :length])
        np.testing.assert_allclose(together.scores[row], alone.scores[row], 1e-5)
