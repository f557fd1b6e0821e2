"""A model of many languages: languages as inputs of calls, searches, scores and alignments."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.tasks import loading
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

CODES = ["de", "en", "fr"]
TEXTS = ["The dog sees a man.", "", "She does not know.", "The train."]
SOURCES = ["en", "de", "fr", "en"]
TARGETS = ["de", "en", "de", "fr"]


def make_translator(**template):
    """A translator of random weights whose last three tokens are languages."""
    tokenizer = train_tokenizer("bpe", tiny.LINES * 3, 330, languages=CODES)
    languages = LanguageTemplate(tokenizer.languages.ids, **template)
    tokenizer = type(tokenizer)("bpe", tokenizer.model_bytes, languages=languages)
    return Translator(tiny.model(), tokenizer, max_extra_tokens=8, max_source_length=40)


@pytest.fixture(scope="module")
def before_source():
    return make_translator(source="target")


@pytest.fixture(scope="module")
def forced():
    return make_translator(source="source", forces_target=True)


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


def test_a_long_source_keeps_its_language_and_its_end(forced):
    language = tf.constant(["de"])
    [row] = forced.encode(tf.constant(["word " * 300]), language, language).numpy()
    assert len(row) == 40 and row[0] == forced.languages.ids["de"] and row[-1] == 1
    assert row[1:-1].tolist() == ids_of(forced, "word " * 300)[:38]


def test_each_text_of_a_batch_is_translated_as_it_is_alone(before_source, forced):
    for translator in (before_source, forced):
        together = translator.n_best(TEXTS, 3, source_language=SOURCES, target_language=TARGETS)
        for row, text, source, target in zip(together, TEXTS, SOURCES, TARGETS, strict=True):
            [alone] = translator.n_best([text], 3, source_language=source, target_language=target)
            assert [found.text for found in row] == [found.text for found in alone]
        again = translator(TEXTS, source_language=SOURCES, target_language=TARGETS)
        assert again == [row[0].text for row in together] and again[1] == ""
        assert again == translator.predict(
            TEXTS, batch_size=2, source_language=SOURCES, target_language=tf.constant(TARGETS)
        )
    assert len({*forced(["The dog."] * 3, target_language=CODES, source_language="en")}) > 1


def test_a_forced_language_is_certain_and_counts_in_the_length(forced):
    """Its log P is 0, as in Hugging Face's searches with forced_bos_token_id."""
    source = [forced.languages.ids["en"], *ids_of(forced, TEXTS[0]), 1]
    language, prefix = forced.languages.ids["de"], ids_of(forced, "Der")

    def log_probability(labels):  # by the model's own logits, without the language
        decoder_ids = tf.constant([[3, *labels[:-1]]])
        logits = forced.model({"source_ids": tf.constant([source]), "target_ids": decoder_ids})[0]
        return tf.nn.log_softmax(logits).numpy()[range(1, len(labels)), labels[1:]].sum()

    found = forced.search(tf.constant([source]), tf.constant([[language, *prefix]]))
    labels = found.ids[0, 0].numpy().tolist()
    assert labels[: 1 + len(prefix)] == [language, *prefix]
    expected = log_probability(labels) / ((5 + len(labels)) / 6) ** 0.6
    assert found.scores[0, 0].numpy() == pytest.approx(expected, rel=1e-4)
    languages = {"source_language": "en", "target_language": "de"}
    [[best, *_]] = forced.n_best(TEXTS[:1], prefix=["Der"], **languages)
    assert best.score == pytest.approx(expected, rel=1e-4)

    given = [language, *ids_of(forced, "Der Zug kommt."), 1]
    scores = forced.score(TEXTS[:1], ["Der Zug kommt."], **languages)
    assert scores.log_probabilities.numpy() == pytest.approx([log_probability(given)], rel=1e-4)
    assert scores.lengths.numpy().tolist() == [len(given)]


def test_ids_are_translated_as_their_text_is(forced):
    languages = [tf.constant(codes) for codes in (SOURCES, TARGETS)]
    source_ids = forced.encode(tf.constant(TEXTS), *languages)
    found = forced.translate_ids(source_ids, languages[1])
    first = [forced.languages.ids[code] for code in TARGETS]
    assert found.ids[:, 0, 0].numpy().tolist() == first
    texts = [text.decode() for text in forced.tokenizer.decode(found.ids[:, 0]).numpy()]
    beams = forced.n_best(TEXTS, source_language=SOURCES, target_language=TARGETS)
    assert texts == [row[0].text for row in beams]


def test_an_alignment_has_the_languages_tokens_without_a_span(forced):
    found = forced.align(
        tf.constant(["The dog."]),
        tf.constant(["Der Hund."]),
        tf.constant(["en"]),
        tf.constant(["de"]),
    )
    assert found.source_pieces[0, 0] == b"<2en>" and found.target_pieces[0, 0] == b"<2de>"
    assert found.spans[0, 0].numpy().tolist() == [0, 0]
    assert np.all(found.spans[0, 1:-1, 1] > 0)
    assert np.allclose(tf.reduce_sum(found.attention, axis=-1), 1)


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ({"target_language": "xx"}, "target_language is 'xx': give one of de, en, fr"),
        ({"target_language": ["de", "xx"]}, "target_language is 'xx': give one of de, en, fr"),
        ({"target_language": ["de", ""]}, "target_language is '': give one of de, en, fr"),
        ({}, "target_language is missing: give one of de, en, fr"),
        ({"target_language": ["de"]}, "target_language has 1 codes for 2 texts"),
        ({"target_language": "de", "source_language": "xx"}, "source_language is 'xx'"),
    ],
)
def test_a_missing_or_unknown_language_is_named(before_source, languages, message):
    for ask in (before_source, before_source.n_best, before_source.predict):
        with pytest.raises(InputError, match=message):
            ask(["a", "b"], **languages)
    with pytest.raises(InputError, match=message):
        before_source.score(["a", "b"], ["c", "d"], **languages)


def test_a_source_language_that_the_model_does_not_read_may_be_missing(before_source, forced):
    texts = TEXTS[:2]
    assert before_source(texts, target_language="de") == before_source(
        texts, source_language=["en", ""], target_language=["de", "de"]
    )
    with pytest.raises(InputError, match="source_language is missing: give one of de, en, fr"):
        forced(texts, target_language="de")


def test_a_language_given_to_a_model_of_two_is_refused():
    translator = tiny.translator()
    for name in ("source_language", "target_language"):
        for ask in (translator, translator.n_best, translator.predict):
            with pytest.raises(InputError, match=f"{name} is 'de'.*leave it out"):
                ask(["a"], **{name: "de"})
        with pytest.raises(InputError, match=f"{name} is 'de'.*leave it out"):
            translator.score(["a"], ["b"], **{name: "de"})


def test_a_bundle_keeps_the_languages(forced, tmp_path):
    forced.save(tmp_path / "bundle")
    loaded = loading.load(tmp_path / "bundle")
    assert loaded.languages == forced.languages
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    assert loaded(TEXTS, **languages) == forced(TEXTS, **languages)
