"""MarianMT folders: their logits and scores by the equations, their vocabularies and settings."""

import functools
import json
import pathlib
import random
import shutil

import h5py
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import vocabulary_tokenizer
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.hugging_face import read_weights
from t2t_keras.interop.marian import load_marian
from t2t_keras.interop.weights import read_safetensors
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from tests.interop import marian_folder
from tests.interop.hugging_face_folder import (
    TEXTS,
    change_json,
    check_logits,
    check_scores,
    write_json,
)

SETTINGS = {
    "length_penalty": 1.0, "length_penalty_offset": 0.0, "max_source_length": 64,
    "exhaustive": False, "text_language": "", "protected_pattern": "",
    "min_target_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
}  # fmt: skip
FORMS = {"joint": {}, "separate": {"separate": True, "activation": "relu"}}
FORMS["untied"] = {"separate": True, "tied": False}


@pytest.mark.parametrize("form", FORMS)
def test_logits_and_scores_are_those_of_the_equations(form, tmp_path):
    translator = load_marian(marian_folder.write(tmp_path / "hf", **FORMS[form]))
    last = translator.model.config.vocab_size - 2  # two ids are the padding's
    rows = [last, 0, 1, last, *range(2, last)]
    expected = functools.partial(marian_folder.logits, **FORMS[form])
    check_logits(translator, rows, expected)
    check_scores(translator, rows, expected)


def test_the_vocabulary_is_permuted_and_padding_is_banned(tmp_path):
    translator = load_marian(marian_folder.write(tmp_path / "hf"))
    pieces = marian_folder.vocabularies(separate=False)[0]
    shown = translator.tokenizer.pieces(tf.range(translator.tokenizer.vocab_size)).numpy()
    expected = ["", "</s>", "<unk>", "<pad>", *pieces[2:-1]]
    assert [piece.decode() for piece in shown] == expected
    bias = translator.model.output_bias.numpy()
    assert list(np.flatnonzero(bias < -1000)) == [0, 3]
    assert vars(translator.settings) == SETTINGS | {
        "beam_size": 4, "max_extra_tokens": 39, "max_target_length": 39,
    }  # fmt: skip


@pytest.mark.parametrize(("longest", "expected"), [(20, 20), (1e30, 64), (None, 64)])
def test_the_tokenizers_limit_is_the_longest_source(longest, expected, tmp_path):
    folder = marian_folder.write(tmp_path / "hf")
    path = folder / "tokenizer_config.json"
    write_json(path, json.loads(path.read_text()) | {"model_max_length": longest})
    translator = load_marian(folder)
    assert translator.settings.max_source_length == expected
    assert translator.encode(["word " * 70]).shape == (1, expected)


@pytest.mark.parametrize("form", ["joint", "separate"])
def test_exported_to_ctranslate2_and_back_the_weights_are_equal(form, tmp_path):
    pytest.importorskip("ctranslate2")
    translator = load_marian(marian_folder.write(tmp_path / "hf", **FORMS[form]))
    export_ctranslate2(translator, tmp_path / "engine")
    back = load_ctranslate2(tmp_path / "engine")
    for ours, theirs in zip(translator.model.get_weights(), back.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(translator.encode(TEXTS), back.encode(TEXTS))


def test_a_generation_config_takes_no_field_from_config(tmp_path):
    folder = marian_folder.write(tmp_path / "hf")
    change_json(folder / "config.json", length_penalty=0.5, no_repeat_ngram_size=3)
    write_json(folder / "generation_config.json", {"forced_eos_token_id": 0})
    settings = vars(load_marian(folder).settings)
    # Hugging Face's defaults, beside the limits of the tokenizer and of the positions.
    defaults = {"beam_size": 1, "max_extra_tokens": 20, "max_target_length": 20}
    assert settings == SETTINGS | defaults


@pytest.mark.parametrize(("stops", "exhaustive"), [("never", True), (True, False), (False, False)])
def test_a_search_that_never_stops_early_is_exhaustive(stops, exhaustive, tmp_path):
    folder = marian_folder.write(tmp_path / "hf")
    change_json(folder / "generation_config.json", early_stopping=stops)
    assert load_marian(folder).exhaustive is exhaustive


def cleaned(text):
    """Returns what Hugging Face's `clean_up_tokenization` makes of a text."""
    for part in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
        text = text.replace(part, part.strip())
    return text


def test_all_rules_of_the_clean_up_are_hugging_faces():
    rng = random.Random(2)
    parts = [" ", "'", ".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re", "a", "n", "é"]
    texts = ["".join(rng.choice(parts) for _ in range(25)) for _ in range(3000)]
    found = vocabulary_tokenizer._without_spaces(tf.constant(texts)).numpy()
    assert [text.decode() for text in found] == [cleaned(text) for text in texts]


@pytest.mark.parametrize("cleans", [False, True])
def test_a_folder_says_whether_spaces_are_cleaned_up(cleans, tmp_path):
    folder = marian_folder.write(tmp_path / "hf")
    change_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=cleans)
    tokenizer = load_marian(folder).tokenizer.target
    ids = tokenizer.encode(tf.constant(["A ."]))
    assert tokenizer.decode(ids).numpy() == [b"A." if cleans else b"A ."]


def test_a_vocabulary_of_version_1_keeps_its_codes(tmp_path):
    tokenizer = load_marian(marian_folder.write(tmp_path / "hf")).tokenizer
    fields = json.loads(tokenizer.model_bytes)
    fields["version"] = 1
    fields["source"]["has_codes"] = True
    for name in ("codes", "cleans_up_spaces"):
        del fields["source"][name]
    old = vocabulary_tokenizer.VocabularyTokenizer("vocabulary", json.dumps(fields).encode())
    texts = [">>deu<< A dog.", " >>deu<< A dog.", ">>a b<<>>deu<< A dog."]
    assert old.encode(texts).to_list() == tokenizer.encode(texts).to_list()


TENSORFLOW = pathlib.Path(__file__).parent / "tf_marian"
"""One random model by transformers 4.57.6 (2026-11-29): tf_model.h5 by `save_pretrained` of
TFMarianMTModel, with TensorFlow 2.21 and tf-keras 2.21, and model.safetensors by its
`load_tf2_model_in_pytorch_model`, which leaves out the bias of the logits (set by hand), and
MarianMTModel; both classes gave the same logits (1e-7). The width is 4, with 1 layer a side, 3
hidden units, 6 pieces and 5 positions."""


@pytest.mark.parametrize("older", [False, True])
def test_weights_of_hugging_faces_tensorflow_class_are_pytorchs(older, tmp_path):
    shutil.copy(TENSORFLOW / "tf_model.h5", tmp_path)
    if older:  # with the matrix as a weight of its own class
        with h5py.File(tmp_path / "tf_model.h5", "a") as file:
            file.move("model/model.shared/model.shared/embeddings:0", "model/model.shared/weight:0")
    found, place = read_weights(tmp_path)
    assert place.endswith("tf_model.h5")
    expected = read_safetensors(TENSORFLOW / "model.safetensors")
    positions = [name for name in found if "embed_positions" in name]
    assert len(positions) == 2 and len(expected) == 44
    assert found.keys() - positions == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
