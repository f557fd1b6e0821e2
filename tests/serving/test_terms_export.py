"""The signatures with terms: exported on request, and asked by the commands."""

import pytest
import tensorflow as tf

from pipelines.batch_inference import LinePredictor
from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.loaded_export import LoadedExport

pytestmark = pytest.mark.slow

TEXTS = ["A small dog.", "She sees it.", "The old dog sees a train.", ""]
TERMS = {"small dog": "Zugtier", "train": "Hund Mann", "dog": "Mann"}


@pytest.fixture(scope="module")
def with_terms(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("terms") / "1"
    signatures = ["serving_default", "terms", "document_terms"]
    export_saved_model(translator, folder, signatures=signatures, lines=TEXTS)  # verified
    return str(folder)


@pytest.fixture(scope="module")
def signatures(with_terms):
    return tf.saved_model.load(with_terms).signatures


@pytest.fixture(scope="module")
def live(translator):
    """What the translator itself says."""
    return translator(TEXTS, terms=TERMS)


def ask(signatures, texts, terms):
    found = signatures["terms"](text=tf.constant(texts), terms=tf.constant(terms))
    return [text.decode() for text in found["translation"].numpy()], found


def test_terms_are_lines_of_two_phrases_for_each_text(signatures, live):
    column = "small dog\tZugtier\r\ntrain\tHund Mann\ndog\tMann"
    found, answer = ask(signatures, TEXTS, [column, column, column, column])
    assert found == live
    assert "Zugtier" in found[0] and "Hund Mann" in found[2]
    plain = signatures["serving_default"](text=tf.constant(TEXTS))
    free = [1, 3]  # the same bits
    for name, value in plain.items():
        assert tf.reduce_all(tf.gather(value, free) == tf.gather(answer[name], free))
    found, answer = ask(signatures, TEXTS, [""] * 4)
    for name, value in plain.items():
        assert tf.reduce_all(value == answer[name])


@pytest.mark.parametrize(("terms", "message"), [
    (["dog"], "terms has the line “dog”: give a source phrase, a tab and a target phrase."),
    (["dog\tMann\nDog\tHund", "", ""], "text has 1 rows and terms has 3: give one terms for"),
    (
        ["dog\tMann\ndog\tHund"],
        "terms has the line “dog → Mann”, and another target phrase for the same",
    ),
    (
        ["dog\ta\ue000"],
        "the characters U+E000 to U+E0FF stand for protected spans; give a line",
    ),
])  # fmt: skip
def test_an_invalid_request_gets_a_sentence(signatures, terms, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        ask(signatures, ["A dog."], terms)
    assert message in caught.value.message


@pytest.mark.parametrize("text", ["A dog.", "", " \n", "\x7f \ufffd", "{name}"])
def test_an_invalid_line_is_refused_for_a_document_without_a_sentence_too(signatures, text):
    given = {"text": tf.constant([text]), "terms": tf.constant(["\tHund"])}
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        signatures["document_terms"](**given)
    assert "terms has the line “ → Hund”: give a source phrase, a tab" in caught.value.message


def test_terms_hold_in_each_sentence_of_a_document(signatures, live, translator, tmp_path):
    column = "\n".join("\t".join(pair) for pair in TERMS.items())
    documents = [" ".join(TEXTS[:2]), f" {TEXTS[2]}\n\n{TEXTS[2]} ", ""]
    wanted = [f"{live[0]} {live[1]}", f" {live[2]}\n\n{live[2]} ", ""]
    given = {"text": tf.constant(documents), "terms": tf.constant([column] * 3)}
    found = signatures["document_terms"](**given)["translation"]
    assert [text.decode() for text in found.numpy()] == wanted
    # Each document has its own terms.
    given = {"text": tf.constant([TEXTS[2]] * 2), "terms": tf.constant([column, "train\tMann"])}
    first, second = signatures["document_terms"](**given)["translation"].numpy()
    assert first.decode() == live[2]
    assert second.decode() == translator([TEXTS[2]], terms={"train": "Mann"})[0] != live[2]


def predictor(saved_model, tmp_path, lines, n_best=1, request="terms"):
    (tmp_path / "terms.tsv").write_text(lines, encoding="utf-8")
    given = {"request": request, "terms": str(tmp_path / "terms.tsv")}
    return LinePredictor(None, saved_model, n_best, False, 64, {}, **given)


def test_translate_asks_an_export_with_terms(with_terms, live, tmp_path):
    file = "".join(f"{source}\t{target}\n" for source, target in TERMS.items())
    given = predictor(with_terms, tmp_path, file)
    found = given.load()([text.encode() for text in TEXTS])
    assert [row for [row] in found] == [" ".join(text.splitlines()) for text in live]
    before = given.fingerprint("")["files"]
    assert before != predictor(with_terms, tmp_path, "a\tb\n").fingerprint("")["files"]
    with pytest.raises(InputError, match="--terms and --n_best together need --workdir"):
        predictor(with_terms, tmp_path, file, n_best=2).load()
    with pytest.raises(InputError, match=r"terms.tsv line 1 is 'dog': give a source phrase"):
        predictor(with_terms, tmp_path, "dog\n").load()


def test_translate_asks_an_export_for_documents_with_terms(with_terms, live, tmp_path):
    file = "".join(f"{source}\t{target}\n" for source, target in TERMS.items())
    outputs = predictor(with_terms, tmp_path, file, request="document_terms").load()
    lines = [f"{TEXTS[0]}  {TEXTS[2]}\n", "\n", TEXTS[1]]
    found = [*map("".join, outputs([line.encode() for line in lines]))]
    assert found == [f"{live[0]}  {live[2]}\n", "\n", live[1]]


def test_the_demo_passes_the_sentence_on_that_refuses_terms(with_terms):
    app = pytest.importorskip("t2t_keras.serving.demo.app")
    model = object.__new__(app.ExportedTranslator)  # without the other signatures
    model._export = LoadedExport(with_terms)
    found = model.translate("A small dog.", "small dog\tZugtier")
    assert "Zugtier" in found.translations[0].text
    with pytest.raises(InputError, match=r"^terms has the line “dog”: give .* a target phrase\.$"):
        model.translate("A small dog.", "dog")


def test_an_export_without_the_signature_says_how_to_get_it(exported_wordpiece, tmp_path):
    with pytest.raises(InputError, match="has no signature terms: export it again with it among"):
        predictor(exported_wordpiece, tmp_path, "dog\tHund\n").load()
