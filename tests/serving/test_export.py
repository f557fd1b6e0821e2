import collections
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from pipelines.batch_inference import LinePredictor
from t2t_keras import ops
from t2t_keras.data.files import read_json
from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model, next_version
from t2t_keras.serving.export import BATCHING_FILE, batching_parameters, model_config, new_version
from t2t_keras.serving.verification import CleanProcess, Request
from t2t_keras.tasks.translation import Translator
from tests.serving.session import loaded_export, nodes_of
from tests.tasks import tiny
from tools import device_audit


def versions(base):
    return sorted(entry for entry in os.listdir(base) if entry.isdigit())


@pytest.mark.parametrize("kind", ["wordpiece", pytest.param("bpe", marks=pytest.mark.slow)])
def test_a_process_without_this_library_translates_as_the_translator_does(kind, request):
    exported = {"wordpiece": "exported_wordpiece", "bpe": "exported"}[kind]
    texts = np.array([text.encode() for text in tiny.ODD], object)
    sizes, names = (len(texts), 1, 0), ("serving_default", "n_best")
    asked = [Request(name, {"text": texts[:size]}) for size in sizes for name in names]
    with CleanProcess() as process:
        process.ask(request.getfixturevalue(exported), asked)
        answers = iter(process.answers())
    predictor = tiny.translator(kind=kind, beam_size=1 if kind == "wordpiece" else 4)
    expected = predictor.n_best(tiny.ODD)
    for size in sizes:
        best, beam = next(answers), next(answers)
        assert [text.decode() for text in best["translation"]] == predictor(tiny.ODD)[:size]
        assert len(beam["translations"]) == len(beam["scores"]) == len(best["score"]) == size
        for row, translations in enumerate(expected[:size]):
            texts, scores = beam["translations"][row], beam["scores"][row]
            assert [text.decode() for text in texts] == [t.text for t in translations]
            np.testing.assert_allclose(scores, [t.score for t in translations], 1e-4)
            np.testing.assert_allclose(best["score"][row], translations[0].score, 1e-4)


def test_a_version_is_what_a_model_server_takes(tmp_path):
    (tmp_path / "models.config").write_text("# mine")  # an operator's own is kept
    assert [*loaded_export(tiny.translator(), tmp_path / "1", "score").signatures] == ["score"]
    assert sorted(os.listdir(tmp_path)) == ["1", "batching_params.pbtxt", "models.config"]
    assert (tmp_path / "models.config").read_text() == "# mine"
    assert sorted(os.listdir(tmp_path / "1")) == [
        "SHA256SUMS",
        "assets",
        "assets.extra",
        "batching_params.pbtxt",
        "fingerprint.pb",
        "saved_model.pb",
        "variables",
    ]


@pytest.mark.slow
def test_the_lines_of_a_file_are_documents_of_an_export(exported, translator):
    outputs = LinePredictor(None, exported, 1, False, 2, {}, request="document").load()
    lines = [b"She knows. Der Zug?\r\n", b" \n", b"dog " * 60]
    assert [row for [row] in outputs(lines)] == translator.documents(lines)


def test_signatures_share_their_graphs_and_equal_nodes_are_one(exported):
    nodes = nodes_of(exported)
    count = collections.Counter(node.op for node in nodes)
    # Nine signatures: a search by text or ids, one with tokens, one of samples; each two loops.
    assert count["While"] + count["StatelessWhile"] <= 11
    assert count["Const"] <= 900 and len(nodes) <= 7_000


@pytest.mark.slow
def test_an_export_for_a_gpu_has_one_search_of_plain_forms(tmp_path):
    """Its answers are those of an export for a CPU, which has copies of matrices."""
    translator = tiny.translator()
    with ops.made_for("cpu"):
        translator(tiny.ODD)  # has made a graph for the CPU by now
    answers, counts = {}, {}
    for device in ("cpu", "gpu"):
        path = tmp_path / device
        loaded = loaded_export(translator, path, "n_best", device=device)
        assert read_json(path / "assets.extra" / "export.json")["device"] == device
        threads = "4" if device == "cpu" else "2"
        assert f"num_batch_threads {{ value: {threads} }}" in (path / BATCHING_FILE).read_text()
        counts[device] = collections.Counter(node.op for node in nodes_of(path))
        answers[device] = loaded.signatures["n_best"](text=tf.constant(tiny.ODD))
    np.testing.assert_array_equal(answers["gpu"]["translations"], answers["cpu"]["translations"])
    np.testing.assert_allclose(answers["gpu"]["scores"], answers["cpu"]["scores"], 1e-4)
    for name in ("BatchMatMulV3", "LogSoftmax", "InplaceUpdate"):
        assert not counts["gpu"][name]
    assert counts["cpu"]["BatchMatMulV3"] and counts["cpu"]["LogSoftmax"]
    # The CPU works on text: ids go to the GPU and come back, with bookkeeping of the search.
    copies = device_audit.audit(loaded.signatures["n_best"])
    # 62 where TensorFlow places text as it likes.
    assert sum((c.kind, c.scope) == ("bookkeeping", "") for c in copies) <= 24
    loops = [counts[d]["While"] + counts[d]["StatelessWhile"] for d in ("gpu", "cpu")]
    assert loops[1] == loops[0]


@pytest.mark.slow
def test_bfloat16_answers_as_the_model_with_rounded_matrices(tmp_path):
    translator = tiny.translator()
    weights = translator.model.get_weights()
    loaded = [
        loaded_export(translator, tmp_path / precision, "n_best", precision=precision)
        for precision in ("float32", "bfloat16")
    ]
    sizes = [
        (tmp_path / precision / "variables" / "variables.data-00000-of-00001").stat().st_size
        for precision in ("float32", "bfloat16")
    ]
    matrices = sum(weight.size for weight in weights if weight.ndim > 1)
    assert sizes[1] < sizes[0] - 1.8 * matrices
    for before, after in zip(weights, translator.model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)

    # Round to nearest even on the upper 16 bits, with integers.
    def rounded(weight):
        bits = weight.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)

    model = tiny.model()
    model.set_weights([rounded(w) if w.ndim > 1 else w for w in weights])
    settings = {"max_extra_tokens": 8, "max_source_length": 40}
    expected = Translator(model, tiny.tokenizer(), **settings).n_best(tiny.ODD)
    for model, rows in zip(loaded, (translator.n_best(tiny.ODD), expected), strict=True):
        found = model.signatures["n_best"](text=tf.constant(tiny.ODD))
        texts = [[t.text.encode() for t in row] for row in rows]
        np.testing.assert_array_equal(found["translations"], texts)
        np.testing.assert_allclose(found["scores"], [[t.score for t in r] for r in rows], 1e-4)


def test_a_failed_export_leaves_nothing_and_the_old_version_alone(tmp_path, monkeypatch):
    """Nor is it a version while it is written, where a killed one would stay."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "old").touch()

    def full_disk(module, folder, **_):
        with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
            file.write(b"half")
        assert versions(tmp_path) == ["1"] and len(os.listdir(tmp_path)) == 2
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full_disk)
    with pytest.raises(InputError, match=r"/2 could not be written \(No space left"):
        export_saved_model(tiny.translator(), str(tmp_path / "2"), signatures=["score"])
    assert os.listdir(tmp_path) == ["1"]
    assert os.listdir(tmp_path / "1") == ["old"]


def test_versions_count_up_and_are_never_overwritten(tmp_path):
    assert next_version(tmp_path / "new") == str(tmp_path / "new" / "1")
    for name in ("1", "9", "10", "11.77.export.tmp", "notes", "-3", "²"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == str(tmp_path / "11")
    (tmp_path / "9" / "saved_model.pb").touch()
    for directory in (tmp_path / "9", tmp_path):
        with pytest.raises(InputError, match=f"exists already: export to {tmp_path}/11 instead"):
            export_saved_model(tiny.translator(), str(directory))


def test_of_two_parallel_exports_the_first_one_keeps_the_number(tmp_path):
    directory = str(tmp_path / "1")
    message = f"exists already: export to {tmp_path}/2 instead"
    with pytest.raises(InputError, match=message), new_version(directory):
        os.mkdir(directory)
        (tmp_path / "1" / "first").touch()
    assert os.listdir(tmp_path) == ["1"]
    assert os.listdir(directory) == ["first"]


def test_leftovers_are_looked_for_in_the_parent_of_a_relative_name(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.77.export.tmp").mkdir()
    with caplog.at_level("WARNING", logger="absl"), new_version("engine"):
        pass
    (record,) = caplog.records
    assert record.message.startswith(f"{tmp_path}/other.77.export.tmp belongs to an export")


def test_the_config_files_are_what_the_server_parses(tmp_path):
    from tensorflow_serving.config import model_server_config_pb2  # noqa: PLC0415

    config = text_format.Parse(model_config("en-de"), model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("en-de", "/models/en-de")
    assert model.model_platform == "tensorflow"
    # The package has no message for batching parameters; these are the fields of the server's
    # session_bundle_config.proto, the numbers each in a wrapper.
    numbers = "max_batch_size|batch_timeout_micros|max_enqueued_batches|num_batch_threads"
    form = rf"({numbers}) {{ value: [1-9]\d* }}|pad_variable_length_inputs: true|#.*"
    texts = [batching_parameters(device) for device in ("cpu", "gpu")]
    assert ["value: 4 }" in text for text in texts] == [True, False]
    assert all(re.fullmatch(form, line) for text in texts for line in text.splitlines())


@pytest.mark.parametrize(("options", "message"), [
    ({"signatures": ["best"]}, "no signature 'best': choose from serving_default, n_best"),
    ({"signatures": "n_best"}, "signatures is 'n_best': give a list"),
    ({"precision": "int4"}, "precision is 'int4': choose one of float32, bfloat16, int8"),
    ({"device": "tpu"}, "device is 'tpu': choose cpu or gpu"),
    ({"name": "a/b"}, "name is 'a/b': give a model name"),
    ({"name": None}, "name is None: give a model name"),
    ({"predictor": tiny.model()}, "predictor is a Transformer: give a Translator"),
    ({"lines": "hello"}, "lines is the string 'hello': give a list of strings"),
    ({"signatures": (name for name in ["n_best", "best"])}, "there is no signature 'best'"),
])  # fmt: skip
def test_mistakes_are_named_and_nothing_is_written(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        export_saved_model(
            **{"predictor": tiny.translator(), "directory": tmp_path / "1"} | options
        )
    assert not os.listdir(tmp_path)
