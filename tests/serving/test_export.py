import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model, next_version
from tests.tasks import tiny

# What a user of the export runs; it knows nothing of this library.
SERVER = """
import json, sys
import tensorflow as tf, tensorflow_text
request = json.load(sys.stdin)
answers = []
for directory in sys.argv[1:]:
    model = tf.saved_model.load(directory)
    answers.append({})
    for name in ("serving_default", "n_best"):
        for size in (len(request), 1, 0):
            answer = model.signatures[name](text=tf.constant(request[:size], tf.string))
            answers[-1][f"{name} {size}"] = {
                key: value.numpy().astype(object).tolist() for key, value in answer.items()
            }
assert not [module for module in sys.modules if module.startswith(("t2t_keras", "pipelines"))]
json.dump(answers, sys.stdout, default=bytes.decode)
"""


def test_a_process_without_this_library_translates_as_the_translator_does(tmp_path):
    translators = [tiny.translator(), tiny.translator(kind="wordpiece", beam_size=1)]
    directories = [str(tmp_path / name / "1") for name in ("bpe", "wordpiece")]
    for translator, directory in zip(translators, directories, strict=True):
        export_saved_model(translator, directory)
        assert os.listdir(os.path.dirname(directory)) == ["1"]
    run = subprocess.run(
        [sys.executable, "-c", SERVER, *directories],
        input=json.dumps(tiny.ODD),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for translator, answers in zip(translators, json.loads(run.stdout), strict=True):
        expected = translator.n_best(tiny.ODD)
        for size in (len(tiny.ODD), 1, 0):
            best, beam = answers[f"serving_default {size}"], answers[f"n_best {size}"]
            assert best["translation"] == translator(tiny.ODD)[:size]
            assert len(beam["translations"]) == len(beam["scores"]) == len(best["score"]) == size
            for row, translations in enumerate(expected[:size]):
                texts, scores = beam["translations"][row], beam["scores"][row]
                assert texts == [t.text for t in translations]
                np.testing.assert_allclose(scores, [t.score for t in translations], 1e-4)
                np.testing.assert_allclose(best["score"][row], translations[0].score, 1e-4)


def test_signatures_are_those_of_the_design(tmp_path):
    export_saved_model(tiny.translator(), str(tmp_path / "1"))
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    found = {
        name: (signature.structured_input_signature[1], signature.structured_outputs)
        for name, signature in signatures.items()
    }
    text = {"text": tf.TensorSpec([None], tf.string, "text")}

    def outputs(**specs):
        return {name: tf.TensorSpec(*spec, name) for name, spec in specs.items()}

    assert found == {
        "serving_default": (
            text,
            outputs(translation=([None], tf.string), score=([None], tf.float32)),
        ),
        "n_best": (
            text,
            outputs(translations=([None, 4], tf.string), scores=([None, 4], tf.float32)),
        ),
    }


def test_a_failed_export_leaves_nothing_and_the_old_version_alone(tmp_path, monkeypatch):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "old").touch()

    def full_disk(module, folder, **_):
        with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
            file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        export_saved_model(tiny.translator(), str(tmp_path / "2"))
    assert os.listdir(tmp_path) == ["1"]
    assert os.listdir(tmp_path / "1") == ["old"]


def test_versions_count_up_and_are_never_overwritten(tmp_path):
    assert next_version(tmp_path / "new") == str(tmp_path / "new" / "1")
    for name in ("1", "9", "10", "11.77.tmp", "notes", "-3", "²"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == str(tmp_path / "11")
    (tmp_path / "9" / "saved_model.pb").touch()
    for directory in (tmp_path / "9", tmp_path):
        with pytest.raises(InputError, match=f"exists already: export to {tmp_path}/11 instead"):
            export_saved_model(None, str(directory))
