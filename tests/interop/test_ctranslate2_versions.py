"""Files of CTranslate2's converters from version 1 to 4 come in with the engine's answers."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.ctranslate2_files import find_vocabulary, read_vocabulary
from tests.interop.ctranslate2_folder import (
    DIM,
    FORMS,
    arrays_of,
    assert_log_probabilities_agree,
    ctranslate2,
    pack,
    random_spec,
    write_vocabularies,
)

pytestmark = pytest.mark.slow

GENUINE = pathlib.Path(__file__).parents[3] / "shared" / "data" / "ct2_versions"


def int8(value):
    return np.array(value, np.int8)


def token(text):
    return np.frombuffer(text.encode(), np.int8)


def layers(name, value):
    """Returns {attribute: value} of each attention of `random_spec`."""
    encoder = [f"encoder/layer_{i}/self_attention" for i in (0, 1)]
    decoder = [f"decoder/layer_0/{part}" for part in ("self_attention", "attention")]
    return {f"{layer}/{name}": value for layer in encoder + decoder}


SHARED = {"num_heads": int8(2), "pre_norm": int8(1), "activation": int8(0)}
FLAGS = {
    "with_source_bos": int8(0), "with_source_eos": int8(1), "with_target_bos": int8(1),
    "with_relative_position": int8(0), "embeddings_merge": int8(0),
    "layernorm_embedding": int8(0), "alignment_layer": np.array(-1, np.int16),
    "alignment_heads": np.array(1, np.int16),
}  # fmt: skip
VERSIONS = {  # binary version, revision, more arrays
    "0.5": (2, 3, SHARED),
    "1.20": (4, 3, {
        "num_heads": int8(2), "with_relative_position": int8(0),
        "encoder/embeddings/multiply_by_sqrt_depth": int8(0),
        "decoder/embeddings/multiply_by_sqrt_depth": int8(0),
        "with_source_bos": int8(0), "with_source_eos": int8(0),
    }),
    "2.17": (5, 4, SHARED | FLAGS | {
        "encoder/scale_embeddings": int8(1), "decoder/scale_embeddings": int8(1),
        "encoder/embeddings_0/multiply_by_sqrt_depth": int8(0),
        "decoder/embeddings/multiply_by_sqrt_depth": int8(0),
        "decoder/start_from_zero_embedding": int8(0), "user_decoder_start_tokens": int8(0),
        "bos_token": token("</s>"), "unk_token": token("w29"),
    }),
    "3.14": (6, 7, layers("multi_query", int8(0))),
    "4.8": (6, 7, layers("num_heads_kv", np.array(2, np.int32))
        | layers("head_dim", np.array(DIM // 2, np.int32))
        | layers("sliding_window", np.array(0, np.int32))
        | {
            "decoder/scale_outputs": np.array(1, np.float32),
            "decoder/final_logit_softcapping": np.array(0, np.float32),
            "decoder/layer_0/layer_scalar": np.array(1, np.float32),
        }),
}  # fmt: skip


def write(folder, version, revision, more, form="OpenNMT-tf"):
    """Writes a model as converters of a version did; their arrays, and `more`."""
    spec = random_spec(**FORMS[form][0])
    arrays = arrays_of(spec)
    if revision < 5:
        arrays = {
            name.replace("embeddings_0", "embeddings") if revision < 4 else name: array
            for name, array in arrays.items()
            if name.count("/") > 1 or name.endswith("layer_norm")
        }
    folder.mkdir()
    aliases = [("eos_token", "bos_token")] if "bos_token" in more else []  # equal arrays
    content = pack(arrays | more, version, revision, aliases=aliases)
    (folder / "model.bin").write_bytes(content)
    write_vocabularies(spec, folder, "json" if version > 5 else "txt")
    if version > 5:
        spec.config.add_source_eos = True
        (folder / "config.json").write_text(json.dumps(spec.config.to_dict()))
    return folder


@pytest.mark.parametrize("name", VERSIONS)
def test_log_probabilities_are_the_engines(name, tmp_path):
    translator = assert_log_probabilities_agree(write(tmp_path / "engine", *VERSIONS[name]))
    assert translator.model.config.scale_embedding == (name != "1.20")
    assert translator.tokenizer.adds_eos == (VERSIONS[name][0] > 4)


REFUSED = [  # arrays, and the name in the message
    *(({name: np.array(value, np.int16)}, name.rpartition("/")[2]) for name, value in (
        ("decoder/alibi", 1), ("decoder/layer_0/self_attention/merged_encoder_attention", 1),
        ("decoder/layer_0/attention/num_heads_kv", 1), ("encoder/layernorm_embedding", 1),
        ("encoder/layer_1/self_attention/rotary_dim", 0), ("unheard_of", 0),
        ("encoder/with_relative_position", 1), ("decoder/num_heads", 3),
    )),
    *(({name: np.array(value, np.float32)}, name.rpartition("/")[2]) for name, value in (
        ("decoder/final_logit_softcapping", 30.0), ("decoder/scale_outputs", 0.25),
        ("encoder/scale_embeddings", 3.0),
    )),
    *(({name: np.zeros([2, 2], np.float32)}, f"has the tensor {name}") for name in (
        "decoder/layer_0/ffn/linear_0_noact/weight", "encoder/memory",
        "encoder/layer_0/self_attention/relative_position_keys",
    )),
    ({f"{side}/activation": int8(5) for side in ("encoder", "decoder")}, "activation is 5: only 0"),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "message"), REFUSED)
def test_another_architecture_is_refused_by_name(arrays, message, tmp_path):
    with pytest.raises(InputError, match=message):
        load_ctranslate2(write(tmp_path / "engine", 6, 7, arrays))


SOURCES = [["w3", "w4", "w5"], ["w7"], [f"w{i}" for i in range(20)]]
TARGETS = [["w4", "w5"], [], [f"w{i}" for i in range(9, 0, -1)]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1.20.1", "2.17.0", "4.3.1-marian"])
def test_genuine_files_answer_as_in_the_engine(name):
    folder = GENUINE / name
    if not folder.exists():
        pytest.skip(f"there is no {folder}")
    known = read_vocabulary(find_vocabulary(folder, "source"))
    words = [piece for piece in known if piece not in ("<blank>", "<s>", "</s>", "<unk>")]
    sources, targets = (
        [[words[int(piece[1:])] for piece in row] for row in side] for side in (SOURCES, TARGETS)
    )
    translator = load_ctranslate2(folder)
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    texts = [tf.constant([" ".join(pieces) for pieces in side]) for side in (sources, targets)]
    expected = [sum(result.log_probs) for result in engine.score_batch(sources, targets)]
    found = translator.score(*texts).log_probabilities
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    translator.beam_size, translator.exhaustive = 1, True
    translator.max_target_length = translator.max_extra_tokens = 12
    results = engine.translate_batch(
        sources, beam_size=1, max_decoding_length=12, min_decoding_length=0, return_scores=True
    )
    search = translator.search(translator.encode(texts[0]))
    shown = translator.tokenizer.target.decode(search.ids[:, 0]).numpy()
    for row, result in enumerate(results):
        assert shown[row].decode() == " ".join(result.hypotheses[0])
        np.testing.assert_allclose(search.scores[row, 0], result.scores[0], atol=1e-4)


def test_vocabularies_are_read_as_the_engine_reads_them(tmp_path):
    spec = random_spec(**FORMS["OpenNMT-tf"][0])
    folder = write(tmp_path / "engine", *VERSIONS["3.14"])
    for side in ("source", "target"):
        [pieces] = spec._vocabularies[side]
        pieces[-1] = pieces[-2]  # twice
        content = "\ufeff" + json.dumps(pieces)
        (folder / f"{side}_vocabulary.json").write_text(content, encoding="utf-8")
    assert_log_probabilities_agree(folder)
    for lines, tokens in (
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\r\nb\n\r\n", ["a\r", "b", "\r"]),
        ("\ufeffa\x0b\n\u2028\n\nb", ["\ufeffa\x0b", "\u2028", "", "b"]),
        ("", []),
    ):
        path = tmp_path / "vocabulary.txt"
        path.write_bytes(lines.encode())
        assert read_vocabulary(path) == tokens


def test_sources_are_truncated_where_the_engine_does(tmp_path):
    folder = write(tmp_path / "engine", *VERSIONS["3.14"])
    ids = load_ctranslate2(folder).encode(["w3 " * 1100])
    assert ids.shape[1] == 1024
    assert ids[0, -1] == 1
