"""Exports in int8: their files, their answers, and what they refuse."""

import contextlib
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import keras_compat
from t2t_keras.data.files import read_json
from t2t_keras.errors import InputError
from t2t_keras.ops import int8
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.signatures import SIGNATURES
from t2t_keras.serving.verification import Distance, Request, VerificationError, measure_distance
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.requests import TEXT, RequestKind
from t2t_keras.tasks.translation import Translator
from tests.serving.session import loaded_export
from tests.tasks import tiny
from tests.tasks.tiny import classifier

pytestmark = pytest.mark.slow


IN_INT8 = {"precision": "int8", "device": "cpu"}


def wide_translator(**overrides):
    """A translator whose weights are nearly all in matrices."""
    model = tiny.model(model_dim=64, feed_forward_dim=128, **overrides)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(0.5 * weight)  # else the width makes every softmax a choice
    return Translator(model, tiny.tokenizer(), max_extra_tokens=8, max_source_length=40)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A translator, and the folder that a clean process has confirmed."""
    folder = tmp_path_factory.mktemp("int8") / "1"
    translator = wide_translator()
    export_saved_model(translator, folder, signatures=["n_best"], **IN_INT8)
    return translator, folder


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(str(exported[1]))


def test_more_requests_than_threads_are_answered_side_by_side(loaded):
    """Loops whose steps run as functions of one thread waited for each other for ever."""
    texts = tf.constant([*tiny.ODD, "one two"])
    found = []

    def ask():
        found.append(loaded.signatures["n_best"](text=texts)["translations"].numpy().tolist())

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2 * os.cpu_count() + 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(found) == len(threads)
    assert all(answer == found[0] for answer in found)


def variables_of(folder):
    """Returns {dtype name: bytes} of the variables of a SavedModel."""
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    sizes = {}
    dtypes = reader.get_variable_to_dtype_map()
    for name, shape in reader.get_variable_to_shape_map().items():
        if not name.startswith("_CHECKPOINTABLE"):
            dtype = dtypes[name]
            sizes[dtype.name] = sizes.get(dtype.name, 0) + int(np.prod(shape)) * dtype.size
    return sizes


def test_matrices_are_stored_as_integers_alone(exported, loaded):
    translator, folder = exported
    weights = translator.model.get_weights()
    matrices = sum(weight.size for weight in weights if weight.ndim > 1)
    outputs = sum(max(weight.shape) for weight in weights if weight.ndim > 1)
    vectors = sum(weight.size for weight in weights if weight.ndim <= 1)
    sizes = variables_of(folder)
    assert sizes.keys() == {"int8", "float32"} and sizes["int8"] == matrices
    assert 4 * vectors < sizes["float32"] <= 4 * (vectors + outputs)
    # Integers and scales of each matrix, and the vectors; all signatures share them.
    assert len(loaded.weights) == sum(weight.ndim for weight in weights)
    record = read_json(folder / "assets.extra" / "export.json")
    assert record["precision"] == "int8" and keras_compat.INT8_PRODUCT in record["requires"]


def test_answers_are_nearly_those_of_float32_and_independent_of_each_other(exported, loaded):
    """With one scale for a whole batch each text would change all others."""
    translator, folder = exported
    texts = [*tiny.ODD, *tiny.LINES]
    signature = loaded.signatures["n_best"]
    found = signature(text=tf.constant(texts))
    rows = translator.n_best(texts)
    best = [row[0].text.encode() for row in rows]
    assert found["translations"].numpy()[:, 0].tolist() == best
    scores = np.array([row[0].score for row in rows])
    np.testing.assert_allclose(found["scores"].numpy()[:, 0], scores, atol=0.03)
    for row, text in enumerate(texts):
        alone = signature(text=tf.constant([text]))
        assert alone["translations"][0, 0] == found["translations"][row, 0]
        np.testing.assert_allclose(alone["scores"][0, 0], found["scores"][row, 0], atol=1e-3)
    record = read_json(folder / "assets.extra" / "export.json")["distance_from_float32"]
    assert record["lines"] == 20 and record["equal"] > 0.5
    assert 0 < record["score_difference"] < 0.05


def test_weights_and_rows_are_rounded_to_the_integers_of_numpy(tmp_path):
    """A model whose matrices hold what the export stores differs by its activations alone."""
    translator = wide_translator()
    loaded = loaded_export(translator, tmp_path / "1", "score", **IN_INT8)
    texts, translations = tf.constant(tiny.LINES[:2]), tf.constant(tiny.LINES[2:])
    found = loaded.signatures["score"](text=texts, translation=translations)["log_probability"]
    exact = translator.score(texts, translations).log_probabilities
    for weight in translator.model.weights:
        if len(weight.shape) > 1:
            axis = 1 if weight.shape[0] == translator.tokenizer.vocab_size else 0
            scales = np.abs(weight).max(axis=axis, keepdims=True) / 63
            weight.assign(np.rint(np.asarray(weight) / scales) * scales)
    rounded = wide_translator()
    rounded.model.set_weights(translator.model.get_weights())
    weights_only = rounded.score(texts, translations).log_probabilities
    assert np.abs(found - weights_only).max() < 0.02 * np.abs(exact).max()
    assert np.abs(found - exact).min() > 0


def test_a_classifier_multiplies_in_int8(tmp_path):
    live = classifier()
    loaded = loaded_export(live, tmp_path / "1", "serving_default", **IN_INT8)
    found = loaded.signatures["serving_default"](text=tf.constant(tiny.LINES))["probabilities"]
    np.testing.assert_allclose(found, live.probabilities(tiny.LINES), atol=0.05)
    assert variables_of(tmp_path / "1")["int8"] > 0


class Unranked(Classifier):
    """A predictor without an answer that has a score."""

    requests = {  # noqa: RUF012
        "serving_default": RequestKind(lambda own, text: own.classify(text)._asdict(), (TEXT,))
    }


def test_a_predictor_without_ranked_answers_has_no_distance_to_measure(tmp_path):
    plain = classifier()
    export_saved_model(
        Unranked(plain.model, plain.tokenizer, plain.labels), tmp_path / "1", **IN_INT8
    )
    record = read_json(tmp_path / "1" / "assets.extra" / "export.json")
    assert record["precision"] == "int8" and "distance_from_float32" not in record


# The verification ---------------------------------------------------------------------------------


def test_broken_scales_publish_nothing(tmp_path, monkeypatch):
    quantize = int8.quantize

    def broken(matrix):
        values, scales = quantize(matrix)
        return int8.Int8Matrix(values, scales * np.float32(3 ** (np.arange(len(scales)) % 2)))

    monkeypatch.setattr(int8, "quantize", broken)
    with pytest.raises(VerificationError, match=r"of 4 lines have .* 0\.25 is the limit"):
        options = {"signatures": ["n_best"], "lines": tiny.LINES}
        export_saved_model(classifier(), tmp_path / "1", **options, **IN_INT8)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(("distance", "lines", "passes"), [
    (Distance(10, 0.25, 0.25), tiny.LINES, True),
    (Distance(10, 1.0, 0.26), tiny.LINES, False),
    (Distance(10, 1.0, float("nan")), tiny.LINES, False),
    (Distance(10, 0.2, 0.0), tiny.LINES, False),
    (Distance(9, 0.0, 0.0), tiny.LINES, True),  # too few to judge by
    (Distance(10, 0.0, 2.0), None, True),
    (Distance(10, 1.0, 2.1), None, False),
])  # fmt: skip
def test_a_large_distance_from_float32_is_refused(distance, lines, passes):
    message = f"their scores differ by {distance.score_difference:.3g}"
    refused = pytest.raises(VerificationError, match=message)
    with contextlib.nullcontext() if passes else refused:
        distance.require(lines)


def n_best(translations, scores):
    answer = {"translations": tf.constant(translations), "scores": tf.constant(scores)}
    return lambda text: answer


def test_the_distance_is_that_of_the_scores_of_one_answer():
    exact = n_best(
        [["a", "b"], ["c", ""], ["d", "e"], ["f", "g"]],
        [[-1.0, -2.0], [0.0, -np.inf], [-3.0, -4.0], [-1.0, -2.0]],
    )
    rounded = n_best(
        [["a", "?"], ["c", ""], ["e", "d"], ["g", "?"]],
        [[-1.5, -2.0], [0.0, -np.inf], [-2.0, -2.5], [-3.0, -3.5]],
    )
    request = Request("n_best", {"text": np.array([b"1", b"2", b"3", b"4"], object)})
    found = measure_distance(SIGNATURES["n_best"], exact, rounded, [request])
    assert found == Distance(4, 0.5, (0.5 + 0 + 0.5 + 2.5) / 4)


# What is refused ----------------------------------------------------------------------------------


def test_a_server_without_the_operation_fails_at_loading(exported, tmp_path):
    _, folder = exported
    copy = shutil.copytree(folder, tmp_path / "1")
    graph = pathlib.Path(copy, "saved_model.pb")
    name = keras_compat.INT8_PRODUCT.encode()
    graph.write_bytes(graph.read_bytes().replace(name, name[:-1] + b"?"))
    with pytest.raises(Exception, match=name.decode()[:-1]):
        tf.saved_model.load(str(copy))


def with_weight(value):
    """A translator with a weight of this value."""
    translator = tiny.translator()
    matrix = translator.model.encoder.layers[0].feed_forward.inner.kernel
    matrix.assign(np.where(np.arange(matrix.shape[1]) == 3, value, matrix))
    return translator


@pytest.mark.parametrize(("make", "options", "message"), [
    (tiny.translator, {"device": "gpu"},
     "precision is 'int8', which only CPUs support, and device is 'gpu'"),
    (lambda: with_weight(np.nan), {}, "inner/kernel has weights that are NaN or infinite"),
    (lambda: with_weight(np.inf), {"precision": "float32"},
     "inner/kernel has weights that are NaN or infinite"),
    (lambda: wide_translator(feed_forward="convolution"), {},
     "feed_forward/outer is a convolution, which has no int8"),
])  # fmt: skip
def test_what_has_no_int8_form_is_refused(make, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export_saved_model(make(), tmp_path / "1", **(IN_INT8 | options))
    assert not os.listdir(tmp_path)


def test_a_tensorflow_without_the_operation_exports_no_int8(tmp_path, monkeypatch):
    monkeypatch.setattr(keras_compat, "INT8_PRODUCT", "_QuantizedMatMulOfNobody")
    with pytest.raises(InputError, match="this TensorFlow cannot multiply int8: export on x86-64"):
        export_saved_model(tiny.translator(), tmp_path / "1", **IN_INT8)
    assert not os.listdir(tmp_path)
