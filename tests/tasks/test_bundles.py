"""What is saved loads in one line and answers alike."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.tasks.bundles import Predictor
from t2t_keras.tasks.search_settings import TranslatorSettings
from tests.tasks import tiny
from tests.tasks.parsers import make_parser

SIZES = {"model_dim": 16, "feed_forward_dim": 24, "num_heads": 2}


def classifier():
    config = TransformerConfig(tiny.tokenizer().vocab_size, 1, 1, **SIZES)
    model = TransformerClassifier(config, classes=3, pooling="attention", head_dropout=0.3)
    return t2t.Classifier(model, tiny.tokenizer(), ["a", "b", "ü"], max_source_length=9)


@pytest.mark.parametrize("make", [
    lambda: tiny.translator(beam_size=2, length_penalty_offset=0.0),
    classifier,
    lambda: make_parser(beam_size=2, max_extra_tokens=9, max_opened=3),
], ids=["translator", "classifier", "parser"])  # fmt: skip
def test_a_loaded_predictor_is_the_saved_one(make, tmp_path):
    saved = make()
    (tmp_path / "[b]\\undle").mkdir()  # what TensorFlow takes for a pattern
    (tmp_path / "link").symlink_to("[b]\\undle")
    (tmp_path / f"[b]\\undle.{os.getpid()}.tmp").mkdir()  # of the user, as a process may be 1
    saved.save(tmp_path / "link")
    loaded = t2t.load(tmp_path / "[b]\\undle")
    assert type(loaded) is type(saved)
    assert loaded.settings == saved.settings
    assert loaded.model.config == saved.model.config
    assert loaded.tokenizer.fingerprint() == saved.tokenizer.fingerprint()
    for weight, expected in zip(loaded.model.weights, saved.model.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)
    if make is classifier:  # whose graph is small
        assert loaded.n_best(tiny.LINES) == saved.n_best(tiny.LINES)
    names = ["[b]\\undle", f"[b]\\undle.{os.getpid()}.tmp", "link"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_what_cannot_be_saved_leaves_nothing_and_a_folder_that_is_not_empty_is_kept(tmp_path):
    class Mine(t2t.Transformer):
        pass

    mine = Mine(tiny.model().config)
    with pytest.raises(t2t.InputError, match="of a Mine can't be saved"):
        t2t.Translator(mine, tiny.tokenizer()).save(tmp_path / "bundle")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(t2t.InputError, match="exists already"):
        tiny.translator().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "bundle"
    tiny.translator().save(folder)
    return folder


def description(**changes):
    def change(folder):
        path = folder / "predictor.json"
        fields = json.loads(path.read_text()) | changes
        del fields["checksum"]
        path.write_text(json.dumps(fields))

    return change


DAMAGE = {
    "no description": (lambda f: (f / "predictor.json").unlink(), "has no predictor.json"),
    "no JSON": (lambda f: (f / "predictor.json").write_text("{"), "is damaged"),
    "a list": (lambda f: (f / "predictor.json").write_text("[]"), "is damaged"),
    "version": (description(version=99), "has version 99"),
    "task": (
        description(task="os.system"),
        "has the task 'os.system', not one of .*translation.*: import the module",
    ),
    "model field": (description(model={"vocab_size": 3, "code": "x"}), "has no field 'code'"),
    "setting": (description(settings={"beams": 4}), "does not fit this version"),
    "sizes": (description(model={"vocab_size": 330}), "weights"),
    "no tokenizer": (lambda f: shutil.rmtree(f / "vocabulary"), "holds no tokenizer"),
    "no weights": (lambda f: shutil.rmtree(f / "weights"), "holds no checkpoint"),
    "cut weights": (
        lambda f: (f / "weights" / "variables.data-00000-of-00001").write_bytes(b"x"),
        "is damaged",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_refused_by_one_sentence(name, bundle, tmp_path):
    change, message = DAMAGE[name]
    folder = shutil.copytree(bundle, tmp_path / "bundle")
    change(folder)
    with pytest.raises(t2t.InputError, match=message) as error:
        t2t.load(folder)
    assert "\n" not in str(error.value)


def test_a_predictor_of_the_users_own_takes_text_and_any_attributes():
    class Own(Predictor):
        settings_type = TranslatorSettings

    own = Own(tiny.model(), tiny.tokenizer())
    own.sources = "the user's"
    assert own.sources == "the user's"
    assert own.saved_inputs == [tf.TensorSpec([None], tf.string, "text")]


@pytest.mark.parametrize(
    "make", [classifier, pytest.param(tiny.translator, marks=pytest.mark.slow)]
)
def test_tensorflow_saves_a_predictor_with_a_signature(make, tmp_path):
    predictor = make()
    tf.saved_model.save(predictor, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    found = loaded.signatures["serving_default"](text=tf.constant(tiny.LINES))
    texts = found.get("texts", found.get("labels"))[:, 0].numpy()
    assert [text.decode() for text in texts] == predictor(tiny.LINES)
