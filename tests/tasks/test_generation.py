"""Continuations of prompts, by search and by sampling, and the probability of whole texts."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.data.plain_text import TextStream
from t2t_keras.errors import InputError
from t2t_keras.tasks import search
from tests.tasks import tiny


def make_generator(**settings):
    """A generator of random weights, large enough that texts differ."""
    tokenizer = tiny.tokenizer()
    config = t2t.TransformerConfig(
        tokenizer.vocab_size,
        num_decoder_layers=1,
        model_dim=16,
        feed_forward_dim=24,
        num_heads=2,
        position_embedding="learned",
        max_positions=40,
    )
    keras.utils.set_random_seed(1)
    return t2t.TextGenerator(t2t.TransformerLM(config), tokenizer, **settings)


@pytest.fixture(scope="module")
def made():
    return make_generator(max_extra_tokens=6, beam_size=3)


def test_a_score_is_the_sum_of_the_log_probabilities(made):
    lines = [line for line in tiny.LINES if len(made.tokenizer.encode([line]).values) < 38]
    found = made.score(lines)
    ids = [[*row, made.tokenizer.eos_id] for row in made.tokenizer.encode(lines).to_list()]
    expected = [tiny.log_p(made.model, row).sum() for row in ids]
    np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-4)
    assert found.lengths.numpy().tolist() == list(map(len, ids))


@pytest.mark.parametrize("across", [True, False])
def test_windows_of_a_stream_score_each_token_by_its_context(made, across):
    texts, length, stride = tiny.LINES[:6], 16, 5
    ids = [[*row, made.tokenizer.eos_id] for row in made.tokenizer.encode(texts).to_list()]
    stream, starts = np.concatenate(ids), np.cumsum([0, *map(len, ids)])
    before = np.concatenate([[made.tokenizer.bos_id, *row[:-1]] for row in ids])
    expected = []
    for place, token in enumerate(stream):
        first = max(0, -(-(place + 1 - length) // stride)) * stride  # of the window that counts it
        if not across:
            first = max(first, starts[starts <= place][-1])
        logits = made.model({"target_ids": before[np.newaxis, first : place + 1].astype("int32")})
        logits = logits[0, -1].numpy().astype("float64")
        expected.append(logits[token] - np.log(np.exp(logits).sum()))
    batches = TextStream(32, length, across_texts=across, stride=stride)
    found = [made.score_rows(*batch) for batch in batches(t2t.encode_texts(texts, made.tokenizer))]
    assert sum(int(tf.reduce_sum(scores.lengths)) for scores in found) == len(stream)
    log_p = np.concatenate([scores.log_probabilities for scores in found])
    sums = np.concatenate([scores.lengths for scores in found])
    bounds = np.cumsum([0, *sums[sums > 0]])
    np.testing.assert_allclose(
        log_p[sums > 0], [sum(expected[a:b]) for a, b in itertools.pairwise(bounds)], rtol=1e-4
    )


def test_greedy_search_takes_the_likeliest_token_after_each():
    generator = make_generator(max_extra_tokens=5, beam_size=1)
    for prompt in ("", tiny.LINES[0][:4]):
        ids = [*generator.tokenizer.encode([prompt]).values.numpy()]
        for _ in range(5):
            shifted = np.array([[generator.tokenizer.bos_id, *ids]], "int32")
            best = int(np.argmax(generator.model({"target_ids": shifted})[0, -1]))
            if best == generator.tokenizer.eos_id:
                break
            ids.append(best)
        expected = generator.tokenizer.decode(np.array([ids], "int32")).numpy()[0]
        assert generator([prompt])[0].strip() == expected.decode("utf-8", "replace").strip()


def test_prompts_stay_as_they_are_and_batches_do_not_matter(made):
    prompts = [line[: 5 + i] for i, line in enumerate(tiny.LINES[:4])]
    together, alone = made(prompts), [made([prompt])[0] for prompt in prompts]
    assert together == alone
    assert all(t.startswith(p.rstrip()) for t, p in zip(together, prompts, strict=True))
    rows = made.n_best(prompts)
    assert [row[0].text for row in rows] == together
    assert all(a.score >= b.score for row in rows for a, b in itertools.pairwise(row))
    drawn = made.sample(prompts, n=2, seed=[1, 2, 3, 4], top_k=9)
    [drawn_alone] = made.sample(prompts[2:3], n=2, seed=[3], top_k=9)
    for one, other in zip(drawn_alone, drawn[2], strict=True):
        assert one.text == other.text and one.score == pytest.approx(other.score, rel=1e-5)
    likeliest = [row[0].text for row in made.sample(prompts, top_k=1)]
    made_greedy = make_generator(max_extra_tokens=6, beam_size=1)
    assert likeliest == made_greedy(prompts)


def test_rules_hold_for_the_prompt_and_what_follows(monkeypatch):
    generator, found = make_generator(max_extra_tokens=20, beam_size=1, no_repeat_ngram_size=1), []
    as_texts = generator._as_texts
    monkeypatch.setattr(
        generator, "_as_texts", lambda ids, *rest: found.append(ids) or as_texts(ids, *rest)
    )
    prompt = tiny.LINES[0][:6]
    generator.continue_texts(tf.constant([prompt]))
    ids = found[0].ids[0, 0].numpy().tolist()
    read = generator.tokenizer.encode([prompt]).values.numpy().tolist()
    assert ids[: len(read)] == read and len(ids) > len(read) + 5
    assert len(set(ids)) == len(ids)


def test_a_bundle_and_an_export_answer_the_same(made, tmp_path):
    made.save(tmp_path / "saved")
    assert t2t.load(tmp_path / "saved").n_best(tiny.LINES[:2]) == made.n_best(tiny.LINES[:2])
    t2t.export_saved_model(made, tmp_path / "export" / "1")
    signatures = tf.saved_model.load(tmp_path / "export" / "1").signatures
    assert set(signatures) == {"serving_default", "n_best", "sample", "score"}
    texts = tf.constant(tiny.LINES[:2])
    found = signatures["serving_default"](text=texts)
    assert [text.decode() for text in found["text"].numpy()] == made(tiny.LINES[:2])
    whole = [
        p.rstrip().encode() + c
        for p, c in zip(tiny.LINES[:2], found["continuation"].numpy(), strict=True)
    ]
    assert whole == found["text"].numpy().tolist()
    scores = signatures["score"](text=texts)["log_probability"]
    np.testing.assert_allclose(scores, made.score(tiny.LINES[:2]).log_probabilities, rtol=1e-5)
    options = {"seed": [5, 6], "temperature": [1.0] * 2, "top_k": [5] * 2, "top_p": [1.0] * 2}
    drawn = signatures["sample"](text=texts, **{k: tf.constant(x) for k, x in options.items()})
    rows = made.sample(tiny.LINES[:2], seed=[5, 6], top_k=5)
    assert [row[0].text.encode() for row in rows] == drawn["text"].numpy().tolist()


def test_what_cannot_be_continued_is_refused_by_its_place(made):
    with pytest.raises(InputError, match=r"texts\[1\] has more than 39 tokens.*shorten it"):
        made(["a", "a b " * 40])
    with pytest.raises(InputError, match=r"texts\[70\] has more than 39 tokens"):
        made.predict(["a"] * 70 + ["a b " * 40] + ["b"] * 9, batch_size=8)
    with pytest.raises(InputError, match=r"texts\[0\] has more than 40 tokens"):
        made.score(["a b " * 40])
    for call in (made, made.n_best, made.sample, made.score):
        with pytest.raises(InputError, match="texts is the string"):
            call("a prompt")
    with pytest.raises(InputError, match="without 'encode'"):
        t2t.TextGenerator(keras.Sequential(), tiny.tokenizer())


@pytest.mark.slow
def test_a_search_whose_steps_xla_compiles_is_the_plain_one(monkeypatch):
    generator = make_generator(max_extra_tokens=6, beam_size=3)
    prompts = ["The dog", "", *tiny.LINES[:2]]
    expected = generator.n_best(prompts)
    monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
    monkeypatch.setattr(search, "PLAIN_CALLS", 0)
    for row, other in zip(generator.n_best(prompts), expected, strict=True):
        assert [found.text for found in row] == [found.text for found in other]
        scores = [[found.score for found in x] for x in (row, other)]
        np.testing.assert_allclose(*scores, rtol=1e-4)
    assert not generator.searches().without_xla
