import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model, stored_weights
from t2t_keras.serving.signatures import SIGNATURES, signature_of
from t2t_keras.serving.verification import (
    Request,
    VerificationError,
    check_answers,
    check_own_answers,
    line_requests,
    sample_requests,
)
from tests.tasks import tiny


@pytest.mark.slow
def test_a_weight_changed_on_its_way_to_the_disk_publishes_nothing(tmp_path, monkeypatch):
    """The files are whole and their checksums right: only the answers can tell."""
    other = tiny.translator()
    matrix = other.model.decoder.layers[0].cross_attention.weights[0]
    matrix.assign(1.02 * matrix)
    save = tf.saved_model.save
    options = {"signatures": ["score"]}
    export_saved_model(other, str(tmp_path / "other"), verify=False, **options)

    def save_and_corrupt(module, folder, **kwargs):
        save(module, folder, **kwargs)
        changed = str(tmp_path / "other" / "variables")
        shutil.copytree(changed, os.path.join(folder, "variables"), dirs_exist_ok=True)

    monkeypatch.setattr(tf.saved_model, "save", save_and_corrupt)
    with pytest.raises(VerificationError) as caught:
        export_saved_model(tiny.translator(), str(tmp_path / "base" / "1"), **options)
    assert str(caught.value).startswith("The exported signature 'score' answers text ['")
    assert "where the model says log_probability" in str(caught.value)
    assert not os.listdir(tmp_path / "base")


def save_with(change):
    """A `tf.saved_model.save` whose signatures answer `change(inputs, answer)`."""
    save = tf.saved_model.save

    def save_changed(module, folder, signatures, **kwargs):
        def changed(function):
            specs, _ = function.structured_input_signature

            @tf.function(input_signature=specs)
            def signature(*values):
                inputs = {spec.name: value for spec, value in zip(specs, values, strict=True)}
                return change(inputs, function(*values))

            return signature

        signatures = {name: changed(function) for name, function in signatures.items()}
        save(module, folder, signatures=signatures, **kwargs)

    return save_changed


@pytest.mark.slow
def test_every_line_of_the_user_is_checked(tmp_path, monkeypatch):
    """Also one that is neither the shortest, nor the longest, nor among the first two."""
    lines = [
        "The dog sees a man.",
        "A train.",
        "Yes.",
        "The man sees it.",
        "The old dog sees a man.",
    ]

    def change(inputs, answer):
        fourth = tf.equal(inputs["text"], lines[3])
        return answer | {"translation": tf.where(fourth, "wrong", answer["translation"])}

    monkeypatch.setattr(tf.saved_model, "save", save_with(change))
    options = {"signatures": ["serving_default"], "lines": lines}
    with pytest.raises(VerificationError, match=r"text \['The man sees it.'\] with translation"):
        export_saved_model(tiny.translator(), tmp_path / "1", **options)
    assert not os.listdir(tmp_path)


def test_every_signature_has_sample_requests_of_a_few_lengths():
    translator = tiny.translator()
    requests = sample_requests(translator, SIGNATURES)
    assert {request.signature for request in requests} == SIGNATURES.keys()
    for name, request in SIGNATURES.items():
        inputs = [x.inputs for x in requests if x.signature == name]
        assert [len(next(iter(value.values()))) for value in inputs] == [1, 1, 4]
        for given in inputs:
            assert given.keys() == {x.name for x in request.inputs}
    texts = [request.inputs["text"] for request in requests[:2]]
    lengths = [len(translator.tokenizer.encode(text)[0]) for text in texts]
    assert lengths[0] * 4 < lengths[1] < translator.max_source_length


def test_sample_requests_are_made_of_the_lines_given():
    lines = ["The dog sees a man.", "A train.", "Yes."]
    requests = sample_requests(tiny.translator(), ["n_best"], lines)
    texts = [[text.decode() for text in request.inputs["text"]] for request in requests]
    assert texts[:2] == [["Yes."], ["The dog sees a man."]]
    assert texts[2][:3] == ["The dog sees a man.", "A train.", ""]


def answer(strings, scores, **more):
    """An answer of texts and scores, each named as its signature names them, and more outputs."""
    [(name, texts)], [(score, values)] = strings.items(), scores.items()
    return {name: np.array(texts, object), score: np.float32(values)} | more


def best(texts=(b"A", b"B", b"C", b"D"), scores=(-1, -2, -3, -np.inf)):
    return answer({"translation": texts}, {"score": scores})


def n_best(*texts, scores=(-1, -1, -2)):
    return answer({"translations": [texts]}, {"scores": [scores]})


def with_tokens(*order, **changes):
    """An answer of `n_best_tokens`: the first two hypotheses are one text in other tokens."""
    ends = np.int32([[1, 2, 2], [2, 2, 0], [1, 0, 0]])  # of tokens in their text
    log_probabilities = np.float32([[-0.25, -0.5, -0.25], [-0.5, -0.5, 0], [-2, 0, 0]])
    return n_best(b"Aa", b"Aa", b"C") | {
        "tokens": np.int32([3, 2, 1])[None, order],
        "spans": np.stack([0 * ends, ends], axis=-1)[None, order],
        "log_probabilities": log_probabilities[None, order],
        "source_spans": np.zeros([1, 3, 3, 2], np.int32),
    } | changes  # fmt: skip


def label(text=b"x", truncated=False):
    probabilities = [[0.1, 0.45, 0.45]]
    more = {"truncated": np.array([truncated])}
    return answer({"label": [text]}, {"probabilities": probabilities}, **more)


RANKING = answer(
    {"translations": [[b"A", b"a"], [b"B", b"b"], [b"C", b"c"], [b"D", b""]]},
    {"scores": [[-1, -1.0001], [-2, -2.1], [-3, -3.01], [-np.inf, -np.inf]]},
)
LABELS = answer({"labels": [[b"x", b"y", b"z"]]}, {"probabilities": [[0.45, 0.45, 0.1]]})
IDS = {"target_ids": np.int32([[[7, 1, 0], [8, 9, 1]]]), "scores": np.float32([[-1, -1]])}
LONGER = np.int32([[[8, 9, 1, 0], [7, 1, 0, 0]]])
ABC, UNFINISHED = n_best(b"A", b"B", b"C"), n_best(b"A", b"B", b"C", scores=(-3, -1, -1))
APART = {"scores": np.float32([[-1, -1.1, -2]])}
TIE, NONE = "with .* where the model says .*: their scores tie", "^$"
COMPARED = [  # signature, the model's answer, its n-best, the export's answer, what is said of it
    *(("serving_default", best(), RANKING, *row) for row in (
        (best(), NONE),
        (best(scores=best()["score"] * 1.0001), NONE),
        (best((b"a", b"B", b"C", b"D")), r"answers text \['a'\] with translation \['a'\] .* tie"),
        (best((b"A", b"B", b"c", b"D")), r"text \['c'\] with translation \['c'\] .* published"),
        (best((b"A", b"", b"", b"D")), r"text \['b'\] with translation \[''\] .* published"),
        (best(scores=best()["score"] * 1.01), r"answers text \['a'\] with score \[-1.0099"),
        (best(scores=[np.nan] * 4), r"text \['a'\] with score \[nan\]"),
        (best() | {"score": best()["score"].astype(np.float64)}, "with score .* published"),
        (best() | {"translation": best()["translation"][:3]}, "with translation .* published"),
        ({"score": best()["score"]}, r"outputs \['score'\] instead of \['score', 'translation'\]"),
        ("no kernel", "'serving_default' fails for text .* no kernel"),
    )),
    # Hypotheses of equal scores may have another order, and nothing else may change.
    ("n_best", ABC, ABC, n_best(b"B", b"A", b"C"), TIE),
    ("n_best", ABC, ABC, n_best(b"A", b"A", b"C"), "with translations .* published"),
    ("n_best", ABC, ABC, n_best(b"A", b"C", b"B"), "with translations .* published"),
    ("n_best", ABC, ABC, n_best(b"A", b"B", b"?"), "with translations .* published"),
    ("n_best", ABC, ABC, n_best(b"B", b"A", b"C") | APART, "with scores .* published"),
    # As long as fewer hypotheses have ended than are wanted, scores do not fall.
    ("n_best", UNFINISHED, UNFINISHED, n_best(b"A", b"C", b"B", scores=(-3, -1, -1)), TIE),
    ("n_best", UNFINISHED, UNFINISHED, n_best(b"B", b"A", b"C", scores=(-3, -1, -1)),
     "with translations .* published"),
    *(("n_best_tokens", with_tokens(0, 1, 2), with_tokens(0, 1, 2), *row) for row in (
        (with_tokens(0, 1, 2), NONE),
        (with_tokens(1, 0, 2), TIE),
        (with_tokens(0, 0, 2), "with tokens .* published"),
        (with_tokens(2, 1, 0), "with tokens .* published"),
        (with_tokens(0, 1, 1), "with tokens .* published"),
        (with_tokens(0, 1, 2, spans=with_tokens(0, 1, 2)["spans"] + 1), "with spans .* published"),
    )),
    ("n_best_tokens", with_tokens(0, 1, 2, **APART), with_tokens(0, 1, 2, **APART),
     with_tokens(1, 0, 2, **APART), "with tokens .* published"),
    # Ids are compared without the padding of the batch.
    ("decode_ids", IDS, IDS, IDS | {"target_ids": LONGER}, TIE),
    ("decode_ids", IDS, IDS, IDS | {"target_ids": LONGER.astype(np.int64)}, "with target_ids .* p"),
    ("decode_ids", IDS, IDS, IDS | {"target_ids": LONGER[:, :1]}, "with target_ids .* published"),
    ("decode_ids", IDS, IDS, IDS | {"target_ids": LONGER + 1}, "with target_ids .* published"),
    ("serving_default", label(), LABELS, label(b"y"), TIE),
    ("serving_default", label(), LABELS, label(b"z"), "with label .* published"),
    ("serving_default", label(), LABELS, label(b"y", truncated=True), "with truncated .* publ"),
]  # fmt: skip


def compare(signature, right, ranking, found, dtype="float32"):
    texts = np.array([b"a", b"b", b"c", b"d"], object)[: len(next(iter(right.values())))]
    request = Request(signature, {"text": texts})
    check_answers([request], [right], [found], lambda request: ranking, dtype)


@pytest.mark.parametrize(("signature", "right", "ranking", "found", "said"), COMPARED)
def test_answers_are_equal_or_tie_or_are_refused(signature, right, ranking, found, said, caplog):
    if said is not NONE and not said.endswith("tie"):
        with pytest.raises(VerificationError, match=said):
            compare(signature, right, ranking, found)
        return
    compare(signature, right, ranking, found)
    levels = ["WARNING"] if said is not NONE else []
    assert [record.levelname for record in caplog.records] == levels
    assert re.search(said, "".join(record.getMessage() for record in caplog.records))


def test_a_tie_is_as_wide_as_rounding_in_the_dtype_of_the_model(caplog):
    texts = (b"A", b"B", b"c", b"D")  # -3.01 instead of -3
    compare("serving_default", best(), RANKING, best(texts), "bfloat16")
    [record] = caplog.records
    assert record.levelname == "WARNING" and "tie" in record.getMessage()


def test_samples_are_checked_on_sample_requests_alone():
    names, lines = ["n_best", "document", "sample"], ["A train."] * 100
    requests = line_requests(tiny.translator(), names, lines)
    assert [request.signature for request in requests] == ["n_best", "n_best"]
    requests = sample_requests(tiny.translator(), names, lines)
    assert [request.signature for request in requests].count("sample") == 3


@pytest.mark.parametrize(("precision", "change", "lines", "reason"), [
    ("float32", 0.0, None, None),
    ("float32", 0.1, None, "answers text .* where the predictor itself says"),
    ("float32", 0.1, ["none of them"], "answers text .* where the predictor itself says"),
    ("float32", np.nan, None, "where the predictor itself says"),
    ("float32", 0.0, ["none of them"], None),
    ("bfloat16", 0.3, None, None),
    ("bfloat16", 2.1, None, "in bfloat16 differ from those of the predictor by 2.1, where 2.0 is"),
    ("bfloat16", 0.24, tiny.LINES, None),
    ("bfloat16", 0.26, tiny.LINES, "in bfloat16 differ .* by 0.26, where 0.25 is"),
    ("bfloat16", np.nan, tiny.LINES, "by nan, where 0.25 is"),
])  # fmt: skip
def test_an_export_is_compared_with_the_predictors_own_answers(
    translator, precision, change, lines, reason
):
    texts = [*tiny.LINES[:2], "odd"]
    [request] = line_requests(translator, ["serving_default"], texts)
    found = translator.n_best(texts, 1)
    # A mean is that of the user's lines, without the others of the request.
    changes = [change, change, change if lines is None else 0.0]
    scores = [row[0].score - x for row, x in zip(found, changes, strict=True)]
    answer = {
        "translation": np.array([row[0].text.encode() for row in found], object),
        "score": np.array(scores, np.float32),
    }
    arguments = translator, [request], [answer], precision, lines
    if reason is None:
        check_own_answers(*arguments)
    else:
        with pytest.raises(VerificationError, match=reason):
            check_own_answers(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "limit"), [(None, "2.0"), (tiny.LINES, "0.25")])
def test_matrices_that_are_widened_wrongly_publish_nothing(lines, limit, tmp_path, monkeypatch):
    widen = stored_weights._Widened.widen
    monkeypatch.setattr(stored_weights._Widened, "widen", lambda self: 3 * widen(self))
    options = {"signatures": ["serving_default"], "precision": "bfloat16", "lines": lines}
    with pytest.raises(VerificationError, match=f"in bfloat16 differ .* where {limit} is the"):
        export_saved_model(tiny.translator(), str(tmp_path / "1"), **options)
    assert not os.listdir(tmp_path)


def test_outputs_have_their_meaning_whatever_else_a_signature_answers():
    outputs = {"other": 0, "label": 1, "confidence": 2, "probabilities": 3, "note": 4}
    found = signature_of("serving_default", outputs)
    assert (found.answer, found.score) == ("label", "probabilities")
    assert signature_of("serving_default", {"text": 0}) is None
