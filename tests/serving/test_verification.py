import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from t2t_keras.serving.golden import Request, golden_requests
from t2t_keras.serving.signatures import SIGNATURES
from t2t_keras.serving.verification import VerificationError, check_answers
from tests.tasks import tiny


@pytest.mark.slow  # the README's example exports all of them too, though not in bfloat16
def test_an_export_of_every_signature_passes(tmp_path):
    translator = tiny.translator(kind="wordpiece")
    export_saved_model(translator, str(tmp_path / "1"), precision="bfloat16")
    assert (tmp_path / "1" / "saved_model.pb").exists()


def test_a_weight_changed_on_its_way_to_the_disk_publishes_nothing(tmp_path, monkeypatch):
    """The files are whole and their checksums right: only the answers can tell."""
    other = tiny.translator()
    matrix = other.model.decoder.layers[0].cross_attention.weights[0]
    matrix.assign(1.02 * matrix)
    save = tf.saved_model.save
    options = {"signatures": ["serving_default"]}
    export_saved_model(other, str(tmp_path / "other"), verify=False, **options)

    def save_and_corrupt(module, folder, **kwargs):
        save(module, folder, **kwargs)
        changed = str(tmp_path / "other" / "variables")
        shutil.copytree(changed, os.path.join(folder, "variables"), dirs_exist_ok=True)

    monkeypatch.setattr(tf.saved_model, "save", save_and_corrupt)
    with pytest.raises(VerificationError) as caught:
        export_saved_model(tiny.translator(), str(tmp_path / "base" / "1"), **options)
    assert str(caught.value).startswith("The exported signature 'serving_default' answers text ['")
    assert not os.listdir(tmp_path / "base")


def test_files_that_do_not_load_publish_nothing(tmp_path, monkeypatch):
    save = tf.saved_model.save

    def save_half(module, folder, **kwargs):
        save(module, folder, **kwargs)
        os.truncate(os.path.join(folder, "saved_model.pb"), 1000)

    monkeypatch.setattr(tf.saved_model, "save", save_half)
    with pytest.raises(VerificationError, match="does not load in a process of its own"):
        export_saved_model(tiny.translator(), str(tmp_path / "1"), signatures=["n_best"])
    assert not os.listdir(tmp_path)


def test_every_signature_has_golden_requests_of_a_few_lengths():
    translator = tiny.translator()
    requests = golden_requests(translator, SIGNATURES)
    assert {request.signature for request in requests} == SIGNATURES.keys()
    for name, make in SIGNATURES.items():
        inputs = [request.inputs for request in requests if request.signature == name]
        assert [len(next(iter(value.values()))) for value in inputs] == [1, 1, 4]
        for given in inputs:
            assert given.keys() == {spec.name for spec in make(translator).input_signature}
    texts = [request.inputs["text"] for request in requests[:2]]
    lengths = [len(translator.tokenizer.encode(text)[0]) for text in texts]
    assert lengths[0] * 4 < lengths[1] < translator.max_source_length


def test_golden_requests_are_made_of_the_lines_given():
    lines = ["The dog sees a man.", "A train.", "Yes."]
    requests = golden_requests(tiny.translator(), ["n_best"], lines)
    texts = [[text.decode() for text in request.inputs["text"]] for request in requests]
    assert texts[:2] == [["Yes."], ["The dog sees a man."]]
    assert texts[2][:3] == ["The dog sees a man.", "A train.", ""]


REQUEST = Request("serving_default", {"text": np.array([b"a", b"b", b"c", b"d"], object)})
TEXTS = np.array([b"A", b"B", b"C", b"D"], object)
SCORES = np.array([-1, -2, -3, -np.inf], np.float32)


def check(texts=TEXTS, scores=SCORES, right=None):
    right = right or {"translation": TEXTS, "score": SCORES}
    check_answers([REQUEST], [right], [{"translation": texts, "score": scores}])


def test_rounding_and_a_tie_between_hypotheses_pass():
    check()
    check(scores=SCORES * np.float32(1.0001))
    check(texts=np.array([b"A", b"B", b"?", b"D"], object))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"scores": SCORES * np.float32(1.01)}, r"answers text \['a'\] with score \[-1.0099"),
        ({"scores": SCORES * np.float32("nan")}, r"text \['a'\] with score \[nan\]"),
        ({"scores": SCORES.astype(np.float64)}, "with score"),
        (
            {"texts": np.array([b"A", b"", b"", b"D"], object)},
            r"text \['b'\] with translation \[''\]",
        ),
        ({"texts": TEXTS[:3]}, "with translation"),
        (
            {"right": {"score": SCORES}},
            r"outputs \['score', 'translation'\] instead of \['score'\]",
        ),
    ],
)
def test_other_answers_do_not_pass(found, message):
    with pytest.raises(VerificationError, match=message):
        check(**found)


def test_without_a_search_there_is_no_tie():
    right, found = {"source_pieces": TEXTS}, {"source_pieces": np.roll(TEXTS, 1)}
    with pytest.raises(VerificationError, match=r"source_pieces \['D'\] where .* \['A'\]"):
        check_answers([REQUEST], [right], [found])


def test_what_a_signature_says_of_a_failure_is_passed_on():
    message = "'serving_default' fails for text .* no kernel"
    with pytest.raises(VerificationError, match=message):
        check_answers([REQUEST], [{"score": SCORES}], ["no kernel"])
