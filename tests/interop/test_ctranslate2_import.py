"""CTranslate2 models come in with the original's log-probabilities."""

import json

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.translation import Translator
from tests.interop import marian_folder
from tests.interop.ctranslate2_folder import (
    FORMS,
    assert_log_probabilities_agree,
    ctranslate2,
    random_spec,
    save,
    write_of_pieces,
)
from tests.interop.hugging_face_folder import LINES, change_json, write_json
from tests.tasks import tiny

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("form", FORMS)
def test_log_probabilities_are_the_engines(form, tmp_path):
    options, config = FORMS[form]
    spec = random_spec(**options)
    for name, value in config.items():
        setattr(spec.config, name, value)
    if form == "marian":
        spec.decoder.start_from_zero_embedding = True
    translator = assert_log_probabilities_agree(save(spec, tmp_path / "engine"))
    model = translator.model.config
    assert model.embedding_sharing == options["sharing"]
    assert model.norm == ("pre" if options["pre_norm"] else "post")
    assert model.position_embedding == ("sinusoidal" if form == "marian" else "learned")
    assert model.attention_bias == options.get("bias", True)
    assert model.scale_embedding == options.get("scale", True)


@pytest.mark.parametrize("quantization", ["float16", "int16", "int8"])
def test_stored_types_are_read(quantization, tmp_path):
    spec = random_spec(**FORMS["OpenNMT-tf"][0])
    folder = save(spec, tmp_path / "engine", quantization)
    # An engine that multiplies integers rounds its inputs as well, so that its float32 is compared.
    assert_log_probabilities_agree(folder, atol=1e-3)


@pytest.mark.parametrize("overrides", [
    {},
    {"norm": "pre", "position_embedding": "learned", "max_positions": 99, "fused_qkv": False},
    {"activation": "silu", "attention_bias": True, "output_bias": True},
])  # fmt: skip
def test_our_own_export_is_imported_with_equal_weights(overrides, tmp_path):
    model = tiny.model(seed=3, num_decoder_layers=2, **overrides)
    for index, weight in enumerate(model.weights):  # biases too
        weight.assign_add(np.random.default_rng(index).normal(0, 0.05, weight.shape))
    translator = Translator(model, tiny.tokenizer(), max_extra_tokens=8, max_source_length=40)
    export_ctranslate2(translator, tmp_path / "engine")
    back = load_ctranslate2(tmp_path / "engine")
    again = Translator(back.model, back.tokenizer, max_extra_tokens=8, max_source_length=40)
    texts = tf.constant(tiny.LINES), tf.constant(tiny.LINES[::-1])
    ours, theirs = (one.score(*texts).log_probabilities for one in (translator, again))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    if overrides.get("fused_qkv", True):
        for ours, theirs in zip(model.get_weights(), back.model.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_sentencepiece_models_make_text_of_tokens(tmp_path):
    folder, spms = write_of_pieces(tmp_path / "engine", separate=True)
    plain, text = load_ctranslate2(folder), load_ctranslate2(folder, *spms)
    ids = text.encode(tf.constant(LINES[:6]))
    split = [[p.decode() for p in text.tokenizer.pieces(row).numpy()] for row in ids]
    lines = [" ".join(pieces[: pieces.index("</s>")]) for pieces in split]
    np.testing.assert_array_equal(plain.encode(tf.constant(lines)), ids)
    target = plain.tokenizer.target
    found = tf.constant([[target.vocab_size - i for i in range(1, 30)]])
    [tokens], [words] = (
        [line.decode() for line in one.tokenizer.target.decode(found).numpy()]
        for one in (plain, text)
    )
    assert "▁" in tokens and "▁" not in words
    assert tokens.replace(" ", "").replace("<unk>", "").replace("▁", " ").strip() == words
    # As CTranslate2 converts from Hugging Face's format, whose tokenizer adds the end:
    change_json(folder / "config.json", add_source_eos=False)
    np.testing.assert_array_equal(load_ctranslate2(folder, *spms).encode(LINES[:6]), ids)
    lines = [f"{line} </s>" for line in lines]
    np.testing.assert_array_equal(load_ctranslate2(folder).encode(lines), ids)


@pytest.fixture
def converted(tmp_path):
    """A folder with codes in its vocabulary, and two SentencePiece models."""
    folder, spms = write_of_pieces(tmp_path / "engine")
    path = folder / "shared_vocabulary.json"
    pieces = json.loads(path.read_text())
    pieces[2:4] = [">>por<<", "__fr__"]
    pieces[-3:] = ["<2fr>", "[fr]", "fra_Latn"]
    path.write_text(json.dumps(pieces))
    return folder, spms


CODES = [">>por<<", "__fr__", "<2fr>", "[fr]", "fra_Latn"]


def test_language_codes_are_one_token_on_both_sides(converted, tmp_path):
    folder, spms = converted
    translator = load_ctranslate2(folder, *spms)
    text = "The old man sees a dog."
    texts = [text, *(f"{code} {text}" for code in CODES), f"{CODES[1]}{CODES[2]} {text}"]
    texts += [f"  {CODES[0]}{text}", f"{text} {CODES[0]}", ">>xyz<< A dog.", "", CODES[0]]
    codes = [[], *([code] for code in CODES), CODES[1:3], CODES[:1], [], [], [], CODES[:1]]
    plain = [text] * 8 + texts[8:-1] + [""]
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    expected = []
    for spm, tokenizer in zip(
        spms, (translator.tokenizer, translator.tokenizer.target), strict=True
    ):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(spm))
        pieces = [
            code + processor.encode(rest, out_type=str)
            for code, rest in zip(codes, plain, strict=True)
        ]
        known = set(tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy())
        shown = [[p if p.encode() in known else "<unk>" for p in row] for row in pieces]
        ids = tf.function(tokenizer.encode)(tf.constant(texts))
        assert tokenizer.pieces(ids).to_list() == [[p.encode() for p in row] for row in shown]
        expected.append(pieces)
    results = engine.score_batch(*expected)
    found = translator.score(tf.constant(texts), tf.constant(texts)).log_probabilities
    np.testing.assert_allclose(found, [sum(r.log_probs) for r in results], rtol=1e-5, atol=1e-4)
    prefixes = translator.targets.encode_prefix(tf.constant(CODES))[0].to_list()
    assert translator.tokenizer.target.decode(tf.constant(prefixes)).numpy().tolist() == [
        code.encode() for code in CODES
    ]
    offsets = translator.tokenizer.encode_with_offsets(tf.constant([f" {CODES[1]} {CODES[2]}The"]))
    assert offsets.starts[0, :3].numpy().tolist() == [1, 8, 13]
    assert offsets.ends[0, :2].numpy().tolist() == [7, 13]


def test_a_tokenizer_file_of_somebody_else_does_not_hide_the_sentencepiece_models(converted):
    folder, spms = converted
    write_json(folder / "tokenizer.json", {"version": "1.0", "model": {}})
    assert load_ctranslate2(folder, *spms).encode(["A dog."]).shape[1] > 2
    exported = folder.with_name("exported")
    export_ctranslate2(load_ctranslate2(folder, *spms), exported)
    assert load_ctranslate2(exported).tokenizer.kind == "vocabulary"
    with pytest.raises(InputError, match="has a tokenizer: leave out"):
        load_ctranslate2(exported, *spms)


FOUND = {
    "both": (["source.spm", "target.spm"], [0, 1], "SentencePiece models: source.spm, target.spm"),
    "one": (["sentencepiece.bpe.model"], [0, 0], "sentencepiece.bpe.model, sentencepiece.bpe.mod"),
    "none": (["bpe.codes"], None, "texts are tokens with spaces between, and bpe.codes are not"),
    "source": (["source.spm"], "has source.spm: give the SentencePiece models of both", ""),
    "unnamed": (["de.model", "en.model"], "has de.model, en.model: give the SentenceP", ""),
}


@pytest.mark.parametrize("name", FOUND)
def test_sentencepiece_models_in_the_folder_are_its_tokenizer(name, converted, caplog):
    (folder, spms), (names, expected, said) = converted, FOUND[name]
    for number, file in enumerate(names):
        (folder / file).write_bytes(marian_folder.spm(number))
    caplog.set_level("INFO")
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            load_ctranslate2(folder)
        return
    found = load_ctranslate2(folder).tokenizer
    assert said in caplog.text
    given = [spms[number] for number in expected or []]
    (folder / names[0]).rename(folder.with_name("moved"))
    (folder / names[-1]).unlink(missing_ok=True)
    assert found.fingerprint() == load_ctranslate2(folder, *given).tokenizer.fingerprint()


def test_sentencepiece_models_of_another_vocabulary_are_noticed(tmp_path, caplog):
    folder = save(random_spec(**FORMS["OpenNMT-tf"][0]), tmp_path / "engine")
    (folder / "spm.model").write_bytes(marian_folder.spm(0))
    load_ctranslate2(folder)
    assert "it is probably another model's" in caplog.text
