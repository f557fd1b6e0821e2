"""CTranslate2 models come in with the original's log-probabilities."""

import json
import struct

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.translation import Translator
from tests.interop import marian_folder
from tests.tasks import tiny

ctranslate2 = pytest.importorskip("ctranslate2")
DIM = 16
SPECIAL = ["<blank>", "<s>", "</s>", "<unk>"]
WORDS = [f"w{number}" for number in range(30)]
SOURCES = [["w3", "w4", "w5"], ["w7", "</s>"], ["w1", "unheard", *WORDS[10:25]], WORDS * 4]
TARGETS = [["w4", "w5"], ["w9", "w2", "w2"], [], WORDS[::2]]


def random_spec(pre_norm, table, sharing, bias=True, scale=True, activation="RELU"):
    """Returns a `TransformerSpec` with random weights."""
    specs = ctranslate2.specs
    rng = np.random.default_rng(1)
    spec = specs.TransformerSpec.from_config(
        (2, 1), 2, pre_norm=pre_norm, activation=getattr(specs.Activation, activation)
    )
    source, target = ([*SPECIAL, *words] for words in (WORDS, WORDS[::-1]))
    source, target = (source, source) if sharing == "all" else ([*source, "more"], target)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)

    def normal(*shape, scale=0.5):
        return rng.normal(0, scale, shape).astype(np.float32)

    def fill(item, outputs, inputs):
        item.weight = normal(outputs, inputs)
        if bias:
            item.bias = normal(outputs, scale=0.2)

    def norm(item):
        item.gamma, item.beta = 1 + normal(DIM, scale=0.2), normal(DIM, scale=0.2)

    spec.encoder.embeddings[0].weight = normal(len(source), DIM)
    spec.decoder.embeddings.weight = (
        spec.encoder.embeddings[0].weight if sharing == "all" else normal(len(target), DIM)
    )
    fill(spec.decoder.projection, len(target), DIM)
    if sharing != "none":
        spec.decoder.projection.weight = spec.decoder.embeddings.weight
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = scale
        if table is not None:
            side.position_encodings.encodings = table
        if pre_norm:
            norm(side.layer_norm)
        for layer in side.layer:
            attentions = [layer.self_attention]
            attentions += [layer.attention] if side is spec.decoder else []
            for attention in attentions:
                norm(attention.layer_norm)
                widths = [3 * DIM, DIM] if len(attention.linear) == 2 else [DIM, 2 * DIM, DIM]
                for item, width in zip(attention.linear, widths, strict=True):
                    fill(item, width, DIM)
            norm(layer.ffn.layer_norm)
            fill(layer.ffn.linear_0, 24, DIM)
            fill(layer.ffn.linear_1, DIM, 24)
    return spec


def save(spec, folder, quantization=None):
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir()
    spec.save(str(folder))
    return folder


def assert_log_probabilities_agree(folder, atol=1e-4):
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    translator = load_ctranslate2(folder)
    texts = [[" ".join(tokens) for tokens in side] for side in (SOURCES, TARGETS)]
    found = translator.score(*map(tf.constant, texts))  # eagerly, without making a graph
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        [result] = engine.score_batch([source], [target])
        np.testing.assert_allclose(
            found.log_probabilities[row], sum(result.log_probs), rtol=1e-5, atol=atol
        )
        assert found.lengths[row] == len(target) + 1
    return translator


RANDOM_TABLE = np.random.default_rng(2).normal(0, 0.5, [150, DIM]).astype(np.float32)
ANGLES = np.arange(200)[:, None] / 10_000 ** (np.arange(0, DIM, 2) / DIM)
HALVES = np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], axis=1)
FORMS = {
    "OpenNMT-tf": ({"pre_norm": True, "table": None, "sharing": "none"}, {}),
    "fairseq": (
        {"pre_norm": False, "table": RANDOM_TABLE, "sharing": "target", "activation": "GELU"},
        {"decoder_start_token": "</s>", "add_source_eos": True},
    ),
    "marian": (
        {"pre_norm": False, "table": HALVES.astype(np.float32), "sharing": "all"},
        {"add_source_eos": True, "layer_norm_epsilon": 1e-3},
    ),
    "no bias": (
        {"pre_norm": True, "table": None, "sharing": "all", "bias": False, "scale": False},
        {"add_source_bos": True, "add_source_eos": True},
    ),
}


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


def save_old(spec, folder, version):
    """Writes a model as CTranslate2 did at first: other names, flags of the whole model."""
    folder.mkdir()
    names = {"source": spec._vocabularies["source"][0], "target": spec._vocabularies["target"][0]}
    for side, pieces in names.items():
        (folder / f"{side}_vocabulary.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    codes = {"float32": 0, "int8": 1, "int16": 2, "int32": 3}
    arrays = {}
    for name, variable in spec.variables(ordered=True):
        side, _, rest = name.partition("/")
        array = variable.numpy() if hasattr(variable, "numpy") else variable
        if "/" in rest:
            arrays[name.replace("embeddings_0", "embeddings")] = array
        elif side == "encoder" and rest in ("pre_norm", "activation", "num_heads"):
            arrays[rest] = array.astype(np.int8)

    def string(text):
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    content = struct.pack("<I", version) + string("TransformerSpec") + struct.pack("<I", 3)
    content += struct.pack("<I", len(arrays))
    for name, array in arrays.items():
        content += string(name) + struct.pack("<B", array.ndim)
        content += b"".join(struct.pack("<I", size) for size in array.shape)
        if version >= 4:
            content += struct.pack("<BI", codes[array.dtype.name], array.nbytes)
        else:
            content += struct.pack("<BI", array.itemsize, array.size)
        content += array.tobytes()
    if version >= 3:
        content += struct.pack("<I", 0)
    (folder / "model.bin").write_bytes(content)
    return folder


@pytest.mark.parametrize("version", [2, 3, 4])
def test_files_of_older_versions_are_read(version, tmp_path):
    spec = random_spec(**FORMS["OpenNMT-tf"][0])
    spec.validate()
    assert_log_probabilities_agree(save_old(spec, tmp_path / "engine", version))


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"norm": "pre", "position_embedding": "learned", "max_positions": 99, "fused_qkv": False},
        {"activation": "silu", "attention_bias": True, "output_bias": True},
    ],
)
def test_what_we_exported_comes_back_with_equal_weights(overrides, tmp_path):
    model = tiny.model(seed=3, num_decoder_layers=2, **overrides)
    for index, weight in enumerate(model.weights):  # biases too
        weight.assign_add(np.random.default_rng(index).normal(0, 0.05, weight.shape))
    translator = Translator(model, tiny.tokenizer(), max_extra_tokens=8, max_source_length=40)
    export_ctranslate2(translator, tmp_path / "engine")
    back = load_ctranslate2(tmp_path / "engine")
    again = Translator(back.model, back.tokenizer, max_extra_tokens=8, max_source_length=40)
    texts = tf.constant(tiny.LINES), tf.constant(tiny.LINES[::-1])
    ours, theirs = (one.score(*texts).log_probabilities for one in (translator, again))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    if not overrides:
        assert again(tiny.LINES) == translator(tiny.LINES)
    if overrides.get("fused_qkv", True):
        for ours, theirs in zip(model.get_weights(), back.model.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_sentencepiece_models_make_text_of_tokens(tmp_path):
    npz, paths = marian_folder.write_npz(tmp_path / "npz", separate=True)
    ctranslate2.converters.MarianConverter(str(npz), paths).convert(str(tmp_path / "engine"))
    for language, name in enumerate(("source", "target")):
        (tmp_path / f"{name}.spm").write_bytes(marian_folder.spm(language))
    plain = load_ctranslate2(tmp_path / "engine")
    spms = tmp_path / "source.spm", tmp_path / "target.spm"
    text = load_ctranslate2(tmp_path / "engine", *spms)
    ids = text.encode(tf.constant(marian_folder.LINES[:6]))
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
    marian_folder.change_json(tmp_path / "engine" / "config.json", add_source_eos=False)
    np.testing.assert_array_equal(
        load_ctranslate2(tmp_path / "engine", *spms).encode(marian_folder.LINES[:6]), ids
    )
    lines = [f"{line} </s>" for line in lines]
    np.testing.assert_array_equal(load_ctranslate2(tmp_path / "engine").encode(lines), ids)


def corrupted(folder, edit):
    path = folder / "model.bin"
    path.write_bytes(edit(path.read_bytes()))


MALFORMED = {
    "truncated": (lambda f: corrupted(f, lambda b: b[:-9]), "is damaged"),
    "bytes behind": (lambda f: corrupted(f, lambda b: b + b"x"), "follow its end"),
    "version": (
        lambda f: corrupted(f, lambda b: struct.pack("<I", 9) + b[4:]),
        "version 9: 2 to 6",
    ),
    "another model": (
        lambda f: corrupted(f, lambda b: b.replace(b"TransformerSpec", b"TransformerDeco")),
        "TransformerDeco",
    ),
    "no model": (lambda f: (f / "model.bin").unlink(), "has no model.bin"),
    "no vocabulary": (
        lambda f: (f / "source_vocabulary.json").unlink(),
        "has no source_vocabulary.json",
    ),
    "short vocabulary": (
        lambda f: (f / "target_vocabulary.json").write_text(json.dumps(["<s>", "</s>", "<unk>"])),
        "has 3 tokens, and the embedding",
    ),
    "no end": (
        lambda f: marian_folder.change_json(f / "config.json", eos_token="<end>"),
        "has no '<end>'",
    ),
    "prefix": (
        lambda f: marian_folder.write_json(f / "config.json", {"decoder_start_token": None}),
        "decoder_start_token is null",
    ),
    "unknown setting": (
        lambda f: marian_folder.change_json(f / "config.json", lookahead=3),
        "lookahead is 3",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_folder_is_refused_by_one_sentence(name, tmp_path):
    change, message = MALFORMED[name]
    folder = save(random_spec(**FORMS["OpenNMT-tf"][0]), tmp_path / "engine")
    change(folder)
    with pytest.raises(InputError, match=message) as error:
        load_ctranslate2(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"with_relative_position": True}, "relative_position"),
        ({"layernorm_embedding": True}, "layernorm_embedding"),
        ({"ffn_glu": True}, "linear_0_noact"),
        ({"activation": "Tanh"}, "activation has number 5"),
    ],
)
def test_another_architecture_is_refused_by_name(options, message, tmp_path, monkeypatch):
    specs = ctranslate2.specs
    make = specs.TransformerSpec.from_config
    form = FORMS["OpenNMT-tf"][0]
    if "activation" in options:
        form = form | options
    else:
        monkeypatch.setattr(
            specs.TransformerSpec, "from_config", lambda *a, **kw: make(*a, **kw, **options)
        )
    spec = random_spec(**form)
    specs.model_spec.visit_spec(spec, _fill_missing)
    with pytest.raises(InputError, match=message):
        load_ctranslate2(save(spec, tmp_path / "engine"))


def _fill_missing(item, name, value):
    if value is None:
        setattr(item, name.rpartition("/")[2], np.zeros([DIM, DIM], np.float32))
