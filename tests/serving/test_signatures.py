import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

TEXTS = ["The dog.", "A train.", "She does not know the old man.", "", *tiny.LINES]
WORDS = ["Der", "Hund", "Der alte Mann", "kommt", "Zug sieht", "", "ob", "Der Zug"]


@pytest.fixture(scope="module")
def ask(live):
    def ask(signature, *inputs):
        answer = live(signature)(*(tf.constant(x) for x in inputs))
        return {name: value.numpy() for name, value in answer.items()}

    return ask


@pytest.mark.slow
def test_each_signature_has_the_names_types_and_shapes_of_the_design(live):
    s, i, f, b = tf.string, tf.int32, tf.float32, tf.bool
    text, best = (s, 1), {"translation": (s, 1), "score": (f, 1), "truncated": (b, 1)}
    spans = {"spans": (i, 4), "log_probabilities": (f, 3), "source_spans": (i, 4)}
    n_best = {"translations": (s, 2), "scores": (f, 2)}
    expected = {  # types and ranks
        "serving_default": ([text], best),
        "n_best": ([text], n_best),
        "prefix": ([text, text], best),
        "score": ([text, text], {"log_probability": (f, 1), "tokens": (i, 1)}),
        "decode_ids": ([(i, 2)], {"target_ids": (i, 3), "scores": (f, 2)}),
        "align": ([text, text], {"source_pieces": (s, 2), "target_pieces": (s, 2),
         "attention": (f, 5), "spans": (i, 3)}),
        "document": ([text], {"translation": (s, 1)}),
        "n_best_tokens": ([text], n_best | spans | {"tokens": (i, 2), "truncated": (b, 1)}),
        "sample": ([text, (i, 1), (f, 1), (i, 1), (f, 1)], best),
    }  # fmt: skip
    assert expected.keys() == Translator.requests.keys() - {"terms", "document_terms"}
    for name, (inputs, outputs) in expected.items():
        signature = live(name)
        assert [(x.dtype, x.shape.rank) for x in signature.input_signature] == inputs
        assert all(x.shape.as_list() == [None] * x.shape.rank for x in signature.input_signature)
        found = signature.get_concrete_function().structured_outputs
        assert {key: (x.dtype, len(x.shape)) for key, x in found.items()} == outputs


def test_score_and_serving_default_agree_on_a_translation(ask, translator):
    texts = ["dog"] * len(WORDS)
    forced = ask("prefix", texts, WORDS)
    found = ask("score", texts, forced["translation"])
    scores = found["log_probability"] / ((5 + found["tokens"]) / 6) ** 0.6
    tokenizer = translator.tokenizer
    searched = translator.search(
        translator.encode(tf.constant(texts)), tokenizer.encode(WORDS).to_tensor()
    ).ids[:, 0]
    read = translator.targets.encode(forced["translation"]).ids
    # Bytes that are no text, or pieces put together otherwise, have another probability.
    same = [
        row
        for row, ids in enumerate(read.numpy())
        if np.array_equal(np.trim_zeros(ids), np.trim_zeros(searched[row].numpy()))
    ]
    assert len(same) >= 3
    np.testing.assert_allclose(scores[same], forced["score"][same], rtol=1e-5)


def test_ids_are_translated_as_their_text_is(ask, translator):
    source_ids = translator.encode(tf.constant(TEXTS)).numpy()
    texts, bare = ask("n_best", TEXTS), np.where(source_ids == 1, 0, source_ids)
    for given in (source_ids, bare, np.pad(bare, [[0, 0], [3, 0]])):
        found = ask("decode_ids", given)
        np.testing.assert_allclose(found["scores"], texts["scores"], rtol=1e-5)
        for beam in range(4):
            decoded = translator.tokenizer.decode(found["target_ids"][:, beam])
            assert decoded.numpy().tolist() == texts["translations"][:, beam].tolist()
    assert found["target_ids"][3, 0].tolist()[:2] == [1, 0]  # padding alone


def test_truncated_marks_the_sources_and_prefixes_that_were_cut(ask):
    found = ask("serving_default", ["dog " * 60, "dog", ""])
    assert found["truncated"].tolist() == [True, False, False]
    assert ask("prefix", ["dog " * 60], [""])["truncated"].tolist() == [True]
    prefix = " ".join(["Der Hund"] * 5)  # longer than the text and the extra tokens
    found = ask("prefix", ["Hi.", "Hi."], [prefix, "Der Hund " * 40])
    assert found["translation"][0].startswith(prefix.encode())
    assert found["truncated"].tolist() == [False, True]


def test_the_tokens_of_n_best_are_those_of_the_library(ask, translator):
    found = ask("n_best_tokens", TEXTS)
    for row, translations in enumerate(translator.n_best_tokens(TEXTS)):
        for beam, translation in enumerate(translations):
            count, tokens = found["tokens"][row, beam], translation.tokens
            assert count == len(tokens)
            for name, expected in (
                ("spans", [token[:2] for token in tokens]),
                ("source_spans", [token[3:] for token in tokens]),
                ("log_probabilities", [token.log_probability for token in tokens]),
            ):
                values = found[name][row, beam, :count]
                wanted = np.reshape(expected, values.shape)
                np.testing.assert_allclose(values, wanted, rtol=1e-4, err_msg=name)
    assert found["tokens"].max() > 1


def test_samples_are_those_of_the_library(ask, translator):
    seeds = [5, -9, 2**31 - 1, 0, *range(len(tiny.LINES))]
    count = len(TEXTS)
    settings = [[0.8] * count, [0, 20] * (count // 2), [1.0, 1.0, 0.9, 0.9] * (count // 4)]
    found = ask("sample", TEXTS, seeds, *settings)
    for row, text in enumerate(TEXTS):
        temperature, top_k, top_p = (values[row] for values in settings)
        [[sample]] = translator.sample([text], 1, [seeds[row]], temperature, top_k or None, top_p)
        assert sample.text == found["translation"][row].decode()
        np.testing.assert_allclose(sample.score, found["score"][row], rtol=1e-5)
    assert found["translation"][3] == b""


def test_spans_slice_the_text_that_was_sent(ask):
    text = "  The dog\u00a0\u2014 e\u0301te\u0301 \U0001f600 \u05d0\u05d1 sees  \u1112\u1161\u11ab."
    found = ask("align", [text], ["Der alte Mann sieht einen kleinen Hund."])
    pieces = found["target_pieces"][0].tolist()
    slices = [text[begin:end] for begin, end in found["spans"][0].tolist()]
    assert all(slices[: pieces.index(b"</s>")])
    assert not any(slices[pieces.index(b"</s>") :])
