"""Exports of classifiers, parsers, kNN-MT and placeholders answer as the live predictors do."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.corpora import encode_pairs
from t2t_keras.errors import InputError
from t2t_keras.models.knn import KNNTransformer, build_datastore
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.serving.export import read_warmup
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.translation import Translator
from tests.serving.session import Session, loaded_export
from tests.tasks import tiny
from tests.tasks.parsers import SENTENCES, make_parser
from tests.tasks.protected import A, decoded, make, spans_of, texts_with_spans
from tests.tasks.tiny import LABELS, classifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A classifier, and the folder that a clean process has confirmed."""
    folder = str(tmp_path_factory.mktemp("classifier") / "1")
    live = classifier()
    export_saved_model(live, folder, name="classifier")
    return live, folder


def test_an_exported_classifier_answers_as_the_live_one(exported):
    live, folder = exported
    texts = [*tiny.LINES, *tiny.ODD]
    signatures = tf.saved_model.load(folder).signatures
    answer = signatures["serving_default"](text=tf.constant(texts))
    assert {name: (x.dtype, x.shape) for name, x in answer.items()} == {
        "label": (tf.string, [10]),
        "probabilities": (tf.float32, [10, 3]),
        "truncated": (tf.bool, [10]),
    }
    assert [label.decode() for label in answer["label"].numpy()] == live(texts)
    np.testing.assert_allclose(answer["probabilities"], live.probabilities(texts), rtol=1e-5)

    long = [len(text) > 2000 for text in texts]
    assert answer["truncated"].numpy().tolist() == long and any(long)

    ranking = signatures["n_best"](text=tf.constant(texts))
    assert ranking["truncated"].numpy().tolist() == long
    for row, text in enumerate(texts):
        names = [label.decode() for label in ranking["labels"][row].numpy()]
        assert names == [c.label for c in live.n_best([text])[0]]
        places = [LABELS.index(name) for name in names]
        in_order = tf.gather(answer["probabilities"][row], places)
        np.testing.assert_allclose(ranking["probabilities"][row], in_order, rtol=1e-5)


def test_every_signature_takes_a_batch_of_nothing_and_warms_up(exported):
    _, folder = exported
    for signature in tf.saved_model.load(folder).signatures.values():
        answer = signature(text=tf.constant([], tf.string))
        assert {tensor.shape[0] for tensor in answer.values()} == {0}
    assert {request.signature for request in read_warmup(folder)} == {"serving_default", "n_best"}


def test_a_subclass_is_exported_as_what_it_is(tmp_path):
    class Mine(Classifier):
        pass

    live = classifier()
    mine = Mine(live.model, live.tokenizer, LABELS)
    loaded = loaded_export(mine, tmp_path / "1", "serving_default")
    assert "label" in loaded.signatures["serving_default"].structured_outputs


def test_signatures_of_other_tasks_are_refused(tmp_path):
    with pytest.raises(InputError, match="no signature 'align': choose from serving_default, n_"):
        export_saved_model(classifier(), tmp_path / "1", signatures=["align"])


def test_an_exported_parser_answers_as_the_live_one(tmp_path):
    parser = make_parser()
    export_saved_model(parser, tmp_path / "1", verify=False)
    with Session(str(tmp_path / "1")) as session:
        best = session("serving_default", text=[text.encode() for text in SENTENCES])
        assert [tree.decode() for tree in best["tree"]] == parser(SENTENCES)
        beams = session("n_best", text=[text.encode() for text in SENTENCES])
        for row, parses in enumerate(parser.n_best(SENTENCES)):
            assert [tree.decode() for tree in beams["trees"][row]] == [p.text for p in parses]
            np.testing.assert_allclose(beams["scores"][row], [p.score for p in parses], rtol=1e-4)
        for signature in ("serving_default", "n_best"):
            for text in ("It works .", [["It works ."]], np.zeros([0, 3], object)):
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"text has shape .* give"):
                    session(signature, text=text)
            assert {len(x) for x in session(signature, text=np.array([], object)).values()} == {0}


PAIRS = [(tiny.LINES[0], tiny.LINES[1]), (tiny.LINES[2], tiny.LINES[3])]


@pytest.fixture(scope="module")
def knn_translator():
    batches = LengthBuckets(200)(encode_pairs(PAIRS, tiny.tokenizer()))
    model = tiny.model()
    model = KNNTransformer(model, build_datastore(model, batches), k=1, interpolation=0.95)
    return Translator(model, tiny.tokenizer(), max_extra_tokens=20, max_source_length=60)


def test_an_export_repeats_the_text_of_the_datastore(knn_translator, tmp_path):
    sources, targets = map(list, zip(*PAIRS, strict=True))
    assert knn_translator(sources) == targets  # of random weights
    loaded = loaded_export(knn_translator, tmp_path / "1", "serving_default", "score")
    texts = tf.constant(sources)
    found = loaded.signatures["serving_default"](text=texts)
    assert [text.decode() for text in found["translation"].numpy()] == targets
    scores = loaded.signatures["score"](text=texts, translation=tf.constant(targets))
    live = knn_translator.score(texts, tf.constant(targets))
    found = scores["log_probability"]
    np.testing.assert_allclose(found, live.log_probabilities, atol=1e-3, rtol=0)
    assert np.all(live.log_probabilities >= live.lengths.numpy() * np.log(0.95))


def test_ctranslate2_has_no_knn(knn_translator, tmp_path):
    with pytest.raises(InputError, match=r"has no KNNTransformer: give .* without kNN-MT"):
        export_ctranslate2(knn_translator, tmp_path / "engine")


def test_documents_of_an_export_with_placeholders_have_their_spans(tmp_path):
    """The vocabulary has placeholders: documents have them, texts of requests do not."""
    translator = make()
    texts = [*texts_with_spans(12, most=5, seed=2), *tiny.LINES, "", f"<b>{A}</b>"]
    signatures = ["serving_default", "document"]
    export_saved_model(translator, tmp_path / "1", signatures=signatures, lines=texts[:6])
    asked = tf.saved_model.load(tmp_path / "1").signatures
    assert sorted(asked) == sorted(signatures)
    found = decoded(asked["document"](text=tf.constant(texts))["translation"])
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
    lines = decoded(asked["serving_default"](text=tf.constant(tiny.LINES))["translation"])
    assert found[12:-2] == lines
    assert lines == translator(tiny.LINES)
