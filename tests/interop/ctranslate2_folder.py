"""CTranslate2 folders with random weights, by its own converters' classes and in older versions."""

import json
import struct

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.interop.ctranslate2 import load_ctranslate2
from tests.interop import marian_folder

ctranslate2 = pytest.importorskip("ctranslate2")
DIM = 16
SPECIAL = ["<blank>", "<s>", "</s>", "<unk>"]
WORDS = [f"w{number}" for number in range(30)]
SOURCES = [["w3", "w4", "w5"], ["w7", "</s>"], ["w1", "unheard", *WORDS[10:25]], WORDS * 4]
TARGETS = [["w4", "w5"], ["w9", "w2", "w2"], [], WORDS[::2]]


def random_spec(
    pre_norm, table, sharing, bias=True, scale=True, activation="RELU", queries_scale=None,
    vocabularies=None,
):  # fmt: skip
    """Returns a `TransformerSpec` with random weights; of words, if no vocabularies are given."""
    specs = ctranslate2.specs
    rng = np.random.default_rng(1)
    spec = specs.TransformerSpec.from_config(
        (2, 1), 2, pre_norm=pre_norm, activation=getattr(specs.Activation, activation)
    )
    source, target = ([*SPECIAL, *words] for words in (WORDS, WORDS[::-1]))
    source, target = (source, source) if sharing == "all" else ([*source, "more"], target)
    source, target = vocabularies or (source, target)
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
                if queries_scale is not None:
                    attention.queries_scale = np.float32(queries_scale)
                    queries_scale += 0.2  # another one for each
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


def write_of_pieces(folder, separate=False):
    """Writes a model of Marian's kind with the pieces of `marian_folder`; its tokenizer's paths.

    Returns:
        The folder, and the paths of the two SentencePiece models beside it.
    """
    pieces = [side[:-1] for side in marian_folder.vocabularies(separate)]  # no padding
    options = FORMS["marian"][0] | {"sharing": "target" if separate else "all"}
    spec = random_spec(**options, vocabularies=pieces)
    spec.config.add_source_eos = spec.decoder.start_from_zero_embedding = True
    return save(spec, folder), marian_folder.write_spms(folder.parent)


RANDOM_TABLE = np.random.default_rng(2).normal(0, 0.5, [150, DIM]).astype(np.float32)
ANGLES = np.arange(200)[:, None] / 10_000 ** (np.arange(0, DIM, 2) / DIM)
HALVES = np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], axis=1)
FORMS = {
    "OpenNMT-tf": ({"pre_norm": True, "table": None, "sharing": "none"}, {}),
    "fairseq": ({"pre_norm": False, "table": RANDOM_TABLE, "sharing": "target",
     "activation": "GELU"}, {"decoder_start_token": "</s>", "add_source_eos": True}),
    "marian": ({"pre_norm": False, "table": HALVES.astype(np.float32), "sharing": "all"},
     {"add_source_eos": True, "layer_norm_epsilon": 1e-3}),
    "scaled queries": ({"pre_norm": True, "table": None, "sharing": "target", "queries_scale": 0.1},
     {"add_source_eos": True}),
    "no bias": ({"pre_norm": True, "table": None, "sharing": "all", "bias": False, "scale": False},
     {"add_source_bos": True, "add_source_eos": True}),
}  # fmt: skip


def arrays_of(spec):
    """Returns {name: array} of a spec, without aliases."""
    spec.validate()
    return {
        name: variable.numpy() if hasattr(variable, "numpy") else variable
        for name, variable in spec.variables(ordered=True)
    }


def write_vocabularies(spec, folder, ending="txt"):
    for side in ("source", "target"):
        [pieces] = spec._vocabularies[side]
        path = folder / f"{side}_vocabulary.{ending}"
        if ending == "json":
            path.write_text(json.dumps(pieces))
        else:
            path.write_text("".join(f"{piece}\n" for piece in pieces), newline="")


def pack(arrays, version, revision, name="TransformerSpec", aliases=()):
    """Returns the bytes of a model.bin."""
    codes = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}

    def string(text):
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    content = struct.pack("<I", version) + string(name) + struct.pack("<I", revision)
    content += struct.pack("<I", len(arrays))
    for key, array in arrays.items():
        content += string(key) + struct.pack("<B", array.ndim)
        content += b"".join(struct.pack("<I", size) for size in array.shape)
        if version >= 4:
            content += struct.pack("<BI", codes[array.dtype.name], array.nbytes)
        else:
            content += struct.pack("<BI", array.itemsize, array.size)
        content += array.tobytes()
    if version >= 3:
        content += struct.pack("<I", len(aliases))
        content += b"".join(string(alias) + string(key) for alias, key in aliases)
    return content


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
