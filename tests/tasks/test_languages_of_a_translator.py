"""A model of many languages: languages as inputs of calls, searches, scores and alignments."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.analysis.attention import align_texts, head_statistics, sentence_attention
from t2t_keras.errors import InputError
from t2t_keras.tasks import loading
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

CODES = ["de", "en", "fr"]
TEXTS = ["The dog sees a man.", "", "She does not know.", "The train."]
SOURCES = ["en", "de", "fr", "en"]
TARGETS = ["de", "en", "de", "fr"]


@pytest.fixture(scope="module")
def before_source():
    return tiny.multilingual_translator(source="target")


@pytest.fixture(scope="module")
def forced():
    return tiny.multilingual_translator(source="source", forces_target=True)


def ids_of(translator, text):
    return translator.tokenizer.encode([text]).to_list()[0]


def test_the_language_stands_before_the_source(before_source, forced):
    languages = {"source_language": tf.constant(SOURCES), "target_language": tf.constant(TARGETS)}
    for translator, codes in ((before_source, TARGETS), (forced, SOURCES)):
        found = translator.encode(tf.constant(TEXTS), **languages).numpy()
        for row, text, code in zip(found, TEXTS, codes, strict=True):
            expected = [translator.languages.ids[code], *ids_of(translator, text), 1]
            assert row[: len(expected)].tolist() == expected
            assert not row[len(expected) :].any()
    language = tf.constant(["de"])
    [row] = forced.encode(tf.constant(["word " * 300]), language, language).numpy()
    words = ids_of(forced, "word " * 300)[:38]  # a long source keeps its language and its end
    assert row.tolist() == [forced.languages.ids["de"], *words, 1]


@pytest.mark.slow
def test_each_text_of_a_batch_is_translated_as_it_is_alone(before_source, forced, tmp_path):
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    for translator in (before_source, forced):
        together = translator.n_best(TEXTS, 3, **languages)
        for row, text, source, target in zip(together, TEXTS, SOURCES, TARGETS, strict=True):
            [alone] = translator.n_best([text], 3, source_language=source, target_language=target)
            assert [found.text for found in row] == [found.text for found in alone]
        again = translator(TEXTS, **languages)
        assert again == [row[0].text for row in together] and again[1] == ""
        assert again == translator.predict(
            TEXTS, batch_size=2, source_language=SOURCES, target_language=tf.constant(TARGETS)
        )
    assert len({*forced(["The dog."] * 3, target_language=CODES, source_language="en")}) > 1
    terms = forced(TEXTS, terms={"dog": "Mann", "train": "Zug"}, **languages)
    assert "Mann" in terms[0] and "Zug" in terms[3] and terms[1:3] == again[1:3]
    rows = forced.sample(TEXTS, 2, seed=7, **languages)
    alone = forced.sample(TEXTS[:1], 2, seed=7, source_language="en", target_language="de")
    assert [pair.text for pair in alone[0]] == [pair.text for pair in rows[0]]
    forced.save(tmp_path / "bundle")
    loaded = loading.load(tmp_path / "bundle")
    assert loaded.languages == forced.languages and loaded(TEXTS, **languages) == again


def test_a_forced_language_is_certain_and_counts_in_the_length(forced):
    """Its log P is 0, as in Hugging Face's searches with forced_bos_token_id."""
    source = [forced.languages.ids["en"], *ids_of(forced, TEXTS[0]), 1]
    language, prefix = forced.languages.ids["de"], ids_of(forced, "Der")

    found = forced.search(tf.constant([source]), tf.constant([[language, *prefix]]))
    labels = found.ids[0, 0].numpy().tolist()
    assert labels[: 1 + len(prefix)] == [language, *prefix]
    expected = tiny.log_p(forced.model, labels, source)[1:].sum() / ((5 + len(labels)) / 6) ** 0.6
    assert found.scores[0, 0].numpy() == pytest.approx(expected, rel=1e-4)
    languages = {"source_language": "en", "target_language": "de"}
    [[best, *_]] = forced.n_best(TEXTS[:1], prefix=["Der"], **languages)
    assert best.score == pytest.approx(expected, rel=1e-4)

    given = [language, *ids_of(forced, "Der Zug kommt."), 1]
    scores = forced.score(TEXTS[:1], ["Der Zug kommt."], **languages)
    expected = tiny.log_p(forced.model, given, source)[1:].sum()  # without the language
    tensors = [tf.constant(texts) for texts in (TEXTS[:1], ["Der Zug kommt."])]
    for found in (scores, forced.score(*tensors, **languages)):
        assert found.log_probabilities.numpy() == pytest.approx([expected], rel=1e-4)
        assert found.lengths.numpy().tolist() == [len(given)]


def test_the_tokens_of_a_translation_have_its_language_as_a_certain_first(forced):
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    found, plain = forced.n_best_tokens(TEXTS, 2, **languages), forced.n_best(TEXTS, **languages)
    for row, expected, text in zip(found, plain, TEXTS, strict=True):
        assert [best.text for best in row] == [best.text for best in expected[:2]]
        for best in row:
            total = sum(token.log_probability for token in best.tokens)
            score = total / ((5 + len(best.tokens)) / 6) ** 0.6
            assert best.score == pytest.approx(score, rel=1e-4) or not text
            words = [token for token in best.tokens if token.end]
            assert all(0 <= t.source_start < t.source_end <= len(text) for t in words)
            if best.score > -np.inf:
                assert best.tokens[0] == (0, 0, 0.0, 0, 0)


@pytest.mark.parametrize(("name", "ids", "message"), [
    ("forced", ["en", 5], None),
    ("forced", [5, 1], r"source without the token of its language: give one of \d+ "),
    ("before_source", ["de", 5], None),
    ("before_source", ["fr", 5], "does not begin with the token of its target_language: give"),
    ("before_source", [5, 6], r"target_language: give one of \d+ \(de\), \d+ \(en\), "),
])  # fmt: skip
def test_ids_must_begin_with_the_language_that_the_model_reads(name, ids, message, request):
    translator = request.getfixturevalue(name)
    ids = [[translator.languages.ids.get(token, token) for token in ids], [0, 0]]
    inputs = tf.constant(ids), tf.constant(["de", "fr"])
    if message is None:
        found = translator.translate_ids(*inputs)
        assert found.scores[0, 0] <= 0
        first = translator.languages.ids["de"]
        assert (found.ids[0, 0, 0] == first) == (name == "forced")
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"source_ids holds a .*{message}"):
        translator.translate_ids(*inputs)


def asks(translator):
    methods = ("__call__", "n_best", "predict", "documents", "n_best_tokens", "sample")
    return [getattr(translator, name) for name in methods]


@pytest.mark.parametrize(("languages", "message"), [
    ({"target_language": "xx"}, "target_language is 'xx': give one of de, en, fr"),
    ({"target_language": ["de", "xx"]}, r"target_language\[1\] is 'xx': give one of de, en"),
    ({"target_language": ["de", ""]}, r"target_language\[1\] is '': give one of de, en, fr"),
    ({"target_language": ""}, "target_language is '': give one of de, en, fr"),
    ({}, "target_language is missing: give one of de, en, fr"),
    ({"target_language": ["de"]}, "target_language has 1 codes for 2 texts"),
    ({"target_language": "de", "source_language": "xx"}, "source_language is 'xx'"),
])  # fmt: skip
def test_a_missing_or_unknown_language_is_named(before_source, languages, message):
    for ask in asks(before_source):
        with pytest.raises(InputError, match=message):
            ask(["a", "b"], **languages)
    with pytest.raises(InputError, match=message):
        before_source.score(["a", "b"], ["c", "d"], **languages)


def test_a_source_language_that_the_model_does_not_read_may_be_missing(before_source, forced):
    texts = TEXTS[:2]
    expected = before_source(texts, target_language="de")
    for source in (["en", ""], ""):
        found = before_source(texts, source_language=source, target_language=["de", "de"])
        assert found == expected
    german = tf.constant(["de", "de"])
    ids = before_source.encode(tf.constant(texts), target_language=german)
    assert ids[:, 0].numpy().tolist() == [before_source.languages.ids["de"]] * 2
    for call in (
        lambda: forced(texts, target_language="de"),
        lambda: forced.encode(tf.constant(texts), target_language=german),
        lambda: head_statistics(forced, ["The dog."], ["Der Hund."]),
    ):
        with pytest.raises(InputError, match="source_language is missing"):
            call()
    with pytest.raises(
        InputError, match=r"at most 1 token, .* raise max_target_length, .* to at least 2"
    ):
        Translator(forced.model, forced.tokenizer, max_target_length=1)


def test_a_language_given_to_a_model_of_two_is_refused():
    translator = tiny.translator()
    for name in ("source_language", "target_language"):
        for ask in (
            *asks(translator),
            lambda texts, **given: translator.score(texts, texts, **given),
        ):
            with pytest.raises(InputError, match=f"{name} is 'de'.*leave it out"):
                ask(["a"], **{name: "de"})
        with pytest.raises(InputError, match=f"{name} is .*de.*leave it out"):
            translator.translate(tf.constant(["a"]), **{name: tf.constant(["de"])})


def test_attention_and_alignment_have_the_languages(forced):
    languages = {"source_language": "en", "target_language": "de"}
    found = forced.align(["The dog."], ["Der Hund."], **languages)
    assert found.source_pieces[0, 0] == b"<2en>" and found.target_pieces[0, 0] == b"<2de>"
    assert found.spans[0, 0].numpy().tolist() == [0, 0] and np.all(found.spans[0, 1:-1, 1] > 0)
    found = sentence_attention(forced, "The dog.", "Der Hund.", **languages)
    assert (found.encoder.keys[0], found.cross.queries[0]) == ("<2en>", "<2de>")
    assert found.decoder.keys[:2] == ["<s>", "<2de>"]
    [pairs] = align_texts(forced, ["The dog."], ["Der Hund."], **languages)
    assert pairs and all(0 <= i <= 1 and 0 <= j <= 1 for i, j in pairs)
