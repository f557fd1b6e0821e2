"""A MarianMT folder translates as CTranslate2 does from the same weights in Marian's own format."""

import json
import pathlib
import random
import shutil

import h5py
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import vocabulary_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.hugging_face import read_weights
from t2t_keras.interop.marian import load_marian
from t2t_keras.interop.weights import read_safetensors
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from tests.interop import marian_folder

LINES = [
    "The old man sees a small dog.", ">>deu<< Does the train know?", ">>xyz<< 😀 unknown code",
    "She, the old dog, is coming; ê漢字.", "word " * 20, "A",
]  # fmt: skip
SETTINGS = {
    "length_penalty": 1.0, "length_penalty_offset": 0.0, "max_source_length": 64,
    "exhaustive": False, "text_language": "", "protected_pattern": "",
    "min_target_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
}  # fmt: skip
FORMS = {"joint": {}, "separate": {"separate": True, "activation": "relu"}}


def engine(folder, options):
    """Returns CTranslate2's engine of the same model by its own converter."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    npz, paths = marian_folder.write_npz(folder / "npz", **options)
    output = folder / "engine"
    ctranslate2.converters.MarianConverter(str(npz), paths).convert(str(output))
    return ctranslate2.Translator(str(output), compute_type="float32", intra_threads=1)


def translations(engine, pieces, beam_size):
    """Returns CTranslate2's (log P / length, tokens with the end), best first."""
    [result] = engine.translate_batch(
        [pieces],  # its converter says that it adds the end
        beam_size=beam_size, patience=beam_size, num_hypotheses=beam_size**2, length_penalty=1,
        max_decoding_length=30, min_decoding_length=0, return_scores=True, return_end_token=True,
    )  # fmt: skip
    return sorted(zip(result.scores, result.hypotheses, strict=True), reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_translations_and_scores_are_ctranslate2s(form, tmp_path):
    theirs = engine(tmp_path, FORMS[form])
    translator = load_marian(marian_folder.write(tmp_path / "hf", **FORMS[form]))
    translator.max_extra_tokens = translator.max_target_length = 30
    translator.exhaustive = True
    source_ids = translator.encode(tf.constant(LINES))
    shown = translator.tokenizer.pieces(source_ids).numpy()
    sources = [[p.decode() for p in row if p not in (b"", b"</s>")] for row in shown]
    target = translator.tokenizer.target
    for beam_size in (1, 4):
        translator.beam_size = beam_size
        found = tf.function(translator.search, autograph=False)(source_ids)
        for row, pieces in enumerate(sources):
            score, expected = translations(theirs, pieces, beam_size)[0]
            ids = found.ids[row, 0, : found.lengths[row, 0]]
            ours = [piece.decode() for piece in target.pieces(ids).numpy()]
            # With a beam, ours prefers any sentence that ends to one that is cut, and theirs stops
            # at a number of sentences that end, where ours may find a better one later.
            better = beam_size > 1 and (
                expected[-1] != "</s>" or found.scores[row, 0] > score + 1e-4
            )
            if not better:
                assert ours == expected
                np.testing.assert_allclose(found.scores[row, 0], score, atol=1e-4)
    targets = LINES[::-1]
    scores = translator.score(tf.constant(LINES), tf.constant(targets))
    for row, ids in enumerate(translator.targets.encode(tf.constant(targets)).ids):
        pieces = [p.decode() for p in target.pieces(ids).numpy() if p not in (b"", b"</s>")]
        [result] = theirs.score_batch([sources[row]], [pieces])
        np.testing.assert_allclose(
            scores.log_probabilities[row], sum(result.log_probs), rtol=1e-5, atol=1e-4
        )


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
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": longest}))
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
    np.testing.assert_array_equal(translator.encode(LINES[:4]), back.encode(LINES[:4]))


def test_a_generation_config_takes_no_field_from_config(tmp_path):
    folder = marian_folder.write(tmp_path / "hf")
    marian_folder.change_json(folder / "config.json", length_penalty=0.5, no_repeat_ngram_size=3)
    marian_folder.write_json(folder / "generation_config.json", {"forced_eos_token_id": 0})
    settings = vars(load_marian(folder).settings)
    # Hugging Face's defaults, beside the limits of the tokenizer and of the positions.
    defaults = {"beam_size": 1, "max_extra_tokens": 20, "max_target_length": 20}
    assert settings == SETTINGS | defaults


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
    marian_folder.change_json(folder / "tokenizer_config.json", clean_up_tokenization_spaces=cleans)
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return marian_folder.write(tmp_path_factory.mktemp("whole") / "hf")


def changed(file="config.json", **changes):
    return lambda folder: marian_folder.change_json(folder / file, **changes)


def generation(**changes):
    return changed("generation_config.json", **changes)


def tokenizer_config(**changes):
    return changed("tokenizer_config.json", **changes)


def remove(name):
    return lambda folder: (folder / name).unlink()


def rewritten(edit):
    """Returns a change of the tensors, by a function of {name: array}."""

    def change(folder):
        arrays = marian_folder.weights(marian_folder.vocabularies(False)[1])
        edit(arrays)
        (folder / "model.safetensors").write_bytes(marian_folder.safetensors(arrays))

    return change


def with_bytes(name, edit):
    def change(folder):
        path = folder / name
        path.write_bytes(edit(path.read_bytes()))

    return change


def vocabulary(edit):
    def change(folder):
        ids = json.loads((folder / "vocab.json").read_text())
        edit(ids)
        marian_folder.write_json(folder / "vocab.json", ids)

    return change


def reshape(arrays):
    arrays["model.encoder.layers.0.fc1.weight"] = np.zeros([3, 4], np.float32)


def disagree(arrays):
    arrays["lm_head.weight"] = arrays["model.shared.weight"] + 1


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def sharded(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    marian_folder.write_json(folder / "model.safetensors.index.json", {"weight_map": {}})


def with_adapter(folder):
    (folder / "adapter_model.bin").write_bytes(b"")


def with_weights_of(name):
    def change(folder):
        (folder / "model.safetensors").rename(folder / name)

    return change


def half_downloaded(folder):
    place = folder / ".cache" / "huggingface" / "download"
    place.mkdir(parents=True)
    (folder / "model.safetensors").rename(place / "x.1a.incomplete")


def renamed_to_folder(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


BIAS, SHARED = "model.encoder.layers.0.fc1.bias", "model.shared.weight"
POSITIONS = {"model.encoder.embed_positions.weight": np.zeros([64, 16], np.float32)}
MALFORMED = {
    "empty spm": (written("source.spm", b""), "source.spm is not a SentencePiece model"),
    "sharded": (sharded, "weight_map does not map weights to files"),
    "adapter": (with_adapter, "has the PEFT adapter adapter_model.bin beside its weights"),
    "ONNX": (with_weights_of("encoder_model.onnx"), "has none of .*: encoder_model.onnx .* ONNX"),
    "Flax": (with_weights_of("flax_model.msgpack"), "weights for Flax or Rust alone: get model"),
    "half": (half_downloaded, "has none of .*: x.1a.incomplete is the part of a file: start its"),
    "HDF5": (with_weights_of("tf_model.h5"), "tf_model.h5 is damaged"),
    "folder": (renamed_to_folder, "model.safetensors cannot be read"),
    "Git LFS": (written("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid"),
     "is a pointer of Git LFS"),
    "surrogate": (written("vocab.json", b'{"\\ud800": 0}'), "vocab.json is not JSON .*surrogates"),
    "nan": (written("generation_config.json", b'{"length_penalty": NaN}'), "is not JSON"),
    "begin": (tokenizer_config(bos_token="<s>"), "bos_token is '<s>': this field is not supported"),
    "special tokens": (tokenizer_config(additional_special_tokens=["<mt>"]),
     r"additional_special_tokens is \['<mt>'\]"),
    "added": (written("added_tokens.json", b'{"<mt>": 99}'), "adds the token '<mt>' with id 99"),
    "decoder of added": (tokenizer_config(added_tokens_decoder={"99": {"content": "<mt>"}}),
     "adds the token '<mt>' with id '99'"),
    "layers": (changed(encoder_layers=10**9), "has 1 layers model.encoder.layers.*1000000000"),
    "no config": (remove("config.json"), "has no config.json"),
    "no spm": (remove("target.spm"), "has no target.spm"),
    "missing tensor": (rewritten(lambda a: a.pop(BIAS)), f"has no tensor {BIAS}"),
    "wrong shape": (rewritten(reshape), r"fc1.weight of shape \[3, 4\].*\[24, 16\]"),
    "duplicates": (rewritten(disagree), "model.shared.weight and lm_head.weight.*differ"),
    "not finite": (rewritten(lambda a: a[SHARED].__setitem__((0, 0), np.nan)), "not finite"),
    "another tensor": (rewritten(lambda a: a.update({"model.adapter.weight": a[SHARED]})),
     "model.adapter.weight"),
    "other positions": (rewritten(lambda a: a.update(POSITIONS)), "other positions than"),
    "truncated": (with_bytes("model.safetensors", lambda b: b[:-7]), "is damaged"),
    "header of 2^62": (with_bytes("model.safetensors",
     lambda b: (1 << 62).to_bytes(8, "little") + b[8:]), "a header of 4611686018427387904 bytes"),
    "bytes behind": (with_bytes("model.safetensors", lambda b: b + b"x"), "belong to no tensor"),
    "no unknown": (vocabulary(lambda v: v.update({"<unk!>": v.pop("<unk>")})), "has no '<unk>'"),
    "size": (changed(vocab_size=7, decoder_vocab_size=7), "pieces, and config.json says 7"),
    "pre-norm": (changed(normalize_before=True), "normalize_before is True"),
    "activation": (changed(activation_function="gelu_new"), "activation_function is 'gelu_new'"),
    "unknown field": (changed(rotary_base=10_000), "rotary_base is 10000: this field is not supp"),
    "heads and width": (changed(encoder_attention_heads=3, decoder_attention_heads=3),
     "d_model is 16 for 3 heads"),
    "separate": (changed(share_encoder_decoder_embeddings=False), "separate_vocabs is False"),
    "search": (generation(no_repeat_ngram_size=3), "no_repeat_ngram_size is 3"),
    "sampling": (generation(do_sample=True), "do_sample is True"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_folder_is_refused_by_one_sentence(name, whole, tmp_path):
    change, message = MALFORMED[name]
    folder = shutil.copytree(whole, tmp_path / "hf")
    change(folder)
    with pytest.raises(InputError, match=message) as error:
        load_marian(folder)
    assert "\n" not in str(error.value)


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
