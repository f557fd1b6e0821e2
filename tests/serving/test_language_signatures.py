"""Signatures of a model of many languages: two more inputs, codes that are checked in the graph."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.batch_inference import LinePredictor
from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.loaded_export import language_inputs
from t2t_keras.serving.signatures import signature_function
from tests.serving.session import Session
from tests.tasks import tiny

pytestmark = pytest.mark.slow

TEXTS = ["The dog sees a man.", "", "The train."]
OTHERS = ["Der Hund", "", "Der"]
SOURCES, TARGETS = ["en", "de", "fr"], ["de", "fr", "en"]
LANGUAGES = {"source_language": SOURCES, "target_language": TARGETS}


@pytest.fixture(scope="module")
def translator():
    return tiny.multilingual_translator(source="source", forces_target=True)


@pytest.fixture(scope="module")
def ask(translator):
    functions = {}

    def ask(signature, **inputs):
        inputs = {name: tf.constant(x) for name, x in inputs.items()}
        if signature not in functions:
            request = translator.requests[signature]
            functions[signature] = signature_function(request, translator).get_concrete_function()
        answer = functions[signature](**inputs)
        return {name: value.numpy() for name, value in answer.items()}

    return ask


def test_the_languages_are_inputs_of_a_model_of_many_alone(translator):
    bilingual = tiny.translator()
    for name, request in translator.requests.items():
        names, bilingual_names = (
            [spec.name for spec in signature_function(request, x).input_signature]
            for x in (translator, bilingual)
        )
        added = ["target_language"] if name == "decode_ids" else list(LANGUAGES)
        assert names == [*bilingual_names, *added]


def test_all_signatures_answer_as_the_translator_does(ask, translator):
    beams = translator.n_best(TEXTS, **LANGUAGES)
    best, n_best = (ask(name, text=TEXTS, **LANGUAGES) for name in ("serving_default", "n_best"))
    for row, texts, scores in zip(beams, n_best["translations"], n_best["scores"], strict=True):
        assert [found.text for found in row] == [text.decode() for text in texts]
        np.testing.assert_allclose([found.score for found in row], scores, rtol=1e-5)
    assert [text.decode() for text in best["translation"]] == translator(TEXTS, **LANGUAGES)
    scores = ask("score", text=TEXTS, translation=OTHERS, **LANGUAGES)["log_probability"]
    expected = translator.score(TEXTS, OTHERS, **LANGUAGES).log_probabilities
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    ids = translator.encode(tf.constant(TEXTS), *map(tf.constant, LANGUAGES.values()))
    decoded = ask("decode_ids", source_ids=ids, target_language=TARGETS)
    np.testing.assert_allclose(decoded["scores"], n_best["scores"], rtol=1e-5)
    prefixed = ask("prefix", text=TEXTS, prefix=OTHERS, **LANGUAGES)
    assert [text.decode() for text in prefixed["translation"]] == translator(
        TEXTS, OTHERS, **LANGUAGES
    )
    documents = ask("document", text=TEXTS, **LANGUAGES)
    assert documents["translation"].tolist() == best["translation"].tolist()
    tokens = ask("n_best_tokens", text=TEXTS, **LANGUAGES)
    assert tokens["translations"].tolist() == n_best["translations"].tolist()
    np.testing.assert_allclose(tokens["scores"], n_best["scores"], rtol=1e-5)
    assert not tokens["log_probabilities"][:, 0, 0].any()
    terms = ask("terms", text=TEXTS, terms=["dog\tMann", "", ""], **LANGUAGES)
    assert b"Mann" in terms["translation"][0]
    assert terms["translation"].tolist()[1:] == best["translation"].tolist()[1:]
    settings = {"temperature": [1.0] * 3, "top_k": [0] * 3, "top_p": [1.0] * 3}
    drawn = ask("sample", text=TEXTS, seed=[5, 6, 7], **settings, **LANGUAGES)
    samples = translator.sample(TEXTS, seed=[5, 6, 7], **LANGUAGES)
    assert [text.decode() for text in drawn["translation"]] == [row[0].text for row in samples]
    aligned = ask("align", text=TEXTS, translation=OTHERS, **LANGUAGES)
    assert aligned["target_pieces"][:, 0].tolist() == [b"<2de>", b"<2fr>", b"<2en>"]
    assert aligned["source_pieces"][:, 0].tolist() == [b"<2en>", b"<2de>", b"<2fr>"]


@pytest.mark.parametrize(("changed", "message"), [
    ({"target_language": ["de", "xx", "en"]}, r"target_language holds .*xx.*of de, en, fr"),
    ({"source_language": ["en", "", "fr"]}, "source_language holds .*of de, en, fr"),
    ({"target_language": [b"\xff\n" + b"x" * 99, b"de", b"en"]},
     "target_language holds .*\ufffd x{38}[^x]*: give one of de, en, fr"),
    ({"target_language": ["de"]}, "text has 3 rows and target_language has 1"),
])  # fmt: skip
def test_invalid_languages_are_named(ask, changed, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask("serving_default", text=TEXTS, **(LANGUAGES | changed))
    if "target_language" in changed:
        ids = np.ones([3, 1], np.int32)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message.replace("text", ".*")):
            ask("decode_ids", source_ids=ids, **changed)


@pytest.mark.parametrize("name", ["source_language", "target_language"])
@pytest.mark.parametrize("text", ["A dog.", " \n", "{name}"])
def test_the_language_of_a_document_without_a_sentence_is_checked_too(ask, translator, name, text):
    languages = {"source_language": ["en"], "target_language": ["de"]}
    ask("document", text=[text], **languages)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"{name} holds .*xx.*: give one of de"
    ):
        ask("document", text=[text], **(languages | {name: ["xx"]}))
    with pytest.raises(InputError, match=f"{name}.*xx.*: give one of de"):
        translator.documents([text], **(languages | {name: ["xx"]}))


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("export") / "1")
    export_saved_model(translator, folder, signatures=["serving_default"], verify=False)
    return folder


def test_an_export_answers_as_the_translator_does(translator, folder):
    expected = translator(TEXTS, **LANGUAGES)
    with Session(folder) as session:
        found = session("serving_default", text=TEXTS, **LANGUAGES)
    assert [text.decode() for text in found["translation"]] == expected
    one = {"source_language": "en", "target_language": "de"}
    outputs = LinePredictor(None, folder, 1, False, 8, {}, languages=one).load()
    assert [line for [line] in outputs(TEXTS)] == translator(TEXTS, **one)


@pytest.mark.parametrize(("languages", "message"), [
    ({}, "target_language is missing: this export has many languages"),
    ({"target_language": "de"}, "source_language holds .*: give one of de, en, fr"),
    ({"source_language": "en", "target_language": "xx"},
     "target_language holds .*xx.*: give one of de, en, fr"),
])  # fmt: skip
def test_an_export_names_a_missing_or_unknown_language(folder, languages, message):
    with pytest.raises(InputError, match=message):  # before a line is read
        LinePredictor(None, folder, 1, False, 8, {}, languages=languages).load()


def test_a_language_given_to_an_export_of_two_is_refused(loaded):
    signature = loaded.signatures["serving_default"]
    assert language_inputs(signature, None, None) == {}
    with pytest.raises(InputError, match=r"target_language is 'de'.*leave it out"):
        language_inputs(signature, None, "de")
