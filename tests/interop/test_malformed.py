"""A malformed folder of a pretrained model is refused by one sentence that names what is wrong."""

import json
import shutil
import struct

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.interop.pretrained import load_pretrained
from tests.interop import m2m100_folder, marian_folder
from tests.interop.hugging_face_folder import change_json, safetensors, write_json

CONFIG, SEARCH, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
WEIGHTS, SPECIAL, ADDED = "model.safetensors", "special_tokens_map.json", "added_tokens.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A function of a kind to a whole folder."""
    place, made = tmp_path_factory.mktemp("whole"), {}

    def ctranslate2(folder):
        from tests.interop import ctranslate2_folder  # noqa: PLC0415  skips without ctranslate2

        spec = ctranslate2_folder.random_spec(**ctranslate2_folder.FORMS["OpenNMT-tf"][0])
        return ctranslate2_folder.save(spec, folder)

    makers = {"marian": marian_folder.write, "ctranslate2": ctranslate2}

    def get(kind):
        if kind not in made:
            write = makers.get(kind, lambda folder: m2m100_folder.write(folder, kind))
            made[kind] = write(place / kind)
        return made[kind]

    return get


# Changes of a folder, functions of its path.


def changed(file, **changes):
    return lambda folder: change_json(folder / file, **changes)


def removed(file):
    return lambda folder: (folder / file).unlink()


def written(file, content):
    return lambda folder: (folder / file).write_bytes(content)


def edited(file, edit):
    return lambda folder: (folder / file).write_bytes(edit((folder / file).read_bytes()))


def vocabulary(edit):
    """`edit` returns the changed {piece: row} of vocab.json."""
    return edited("vocab.json", lambda content: json.dumps(edit(json.loads(content))).encode())


def with_tensors(kind, edit):
    """`edit` returns the tensors of {name: array} that are other or new."""
    arrays = marian_folder.weights() if kind == "marian" else m2m100_folder.weights(kind)
    arrays = arrays | edit(arrays)
    return written(WEIGHTS, safetensors({n: a for n, a in arrays.items() if a is not None}))


def with_weights_as(name):
    return lambda folder: (folder / WEIGHTS).rename(folder / name)


def half_downloaded(folder):
    place = folder / ".cache" / "huggingface" / "download"
    place.mkdir(parents=True)
    (folder / WEIGHTS).rename(place / "x.1a.incomplete")


def renamed_to_folder(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def with_index(files):
    def change(folder):
        (folder / WEIGHTS).rename(folder / "part.safetensors")
        write_json(folder / f"{WEIGHTS}.index.json", {"weight_map": files})

    return change


def all_of(*changes):
    return lambda folder: [change(folder) for change in changes]


NLLB = m2m100_folder.tokens("nllb")
OTHER_IDS = {piece: row for row, piece in enumerate(NLLB[:-7])} | {"▁a": 4}
BIAS, SHARED = "model.encoder.layers.0.fc1.bias", "model.shared.weight"
without_languages = changed(SPECIAL, additional_special_tokens=None)
OF_MARIAN = {
    "empty spm": (written("source.spm", b""), "source.spm is not a SentencePiece model"),
    "no spm": (removed("target.spm"), "has no target.spm"),
    "sharded": (with_index({}), "weight_map does not map weights to files"),
    "adapter": (written("adapter_model.bin", b""),
     "has the PEFT adapter adapter_model.bin beside its weights"),
    "ONNX": (with_weights_as("encoder_model.onnx"), "has none of .*: encoder_model.onnx .* ONNX"),
    "Flax": (with_weights_as("flax_model.msgpack"), "weights for Flax or Rust alone: get model"),
    "half": (half_downloaded, "has none of .*: x.1a.incomplete is the part of a file: start its"),
    "HDF5": (with_weights_as("tf_model.h5"), "tf_model.h5 is damaged"),
    "folder": (renamed_to_folder, "model.safetensors cannot be read"),
    "Git LFS": (written(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid"),
     "is a pointer of Git LFS"),
    "surrogate": (written("vocab.json", b'{"\\ud800": 0}'), "vocab.json is not JSON .*surrogates"),
    "nan": (written(SEARCH, b'{"length_penalty": NaN}'), "is not JSON"),
    "begin": (changed(TOKENIZER, bos_token="<s>"), "bos_token is '<s>': only null or false is"),
    "special tokens": (changed(TOKENIZER, additional_special_tokens=["<mt>"]),
     r"additional_special_tokens is \['<mt>'\]"),
    "added": (changed(ADDED, **{"<mt>": 99}), "adds the token '<mt>' with id 99"),
    "decoder of added": (changed(TOKENIZER, added_tokens_decoder={"99": {"content": "<mt>"}}),
     "adds the token '<mt>' with id '99'"),
    "layers": (changed(CONFIG, encoder_layers=10**9), "has 1 layers model.encoder.*1000000000"),
    "missing tensor": (with_tensors("marian", lambda a: {BIAS: None}), f"has no tensor {BIAS}"),
    "wrong shape": (with_tensors("marian", lambda a: {BIAS: a[BIAS][:3]}),
     rf"{BIAS} of shape \[3\].*\[24\]"),
    "duplicates": (with_tensors("marian", lambda a: {"lm_head.weight": a[SHARED] + 1}),
     "model.shared.weight and lm_head.weight.*differ"),
    "not finite": (with_tensors("marian", lambda a: {BIAS: a[BIAS] * np.float32("nan")}),
     "not finite"),
    "another tensor": (with_tensors("marian", lambda a: {"model.adapter.weight": a[SHARED]}),
     "model.adapter.weight"),
    "other positions": (with_tensors("marian",
     lambda a: {"model.encoder.embed_positions.weight": np.zeros([64, 16], np.float32)}),
     "other positions than"),
    "truncated": (edited(WEIGHTS, lambda b: b[:-7]), "is damaged"),
    "header of 2^62": (edited(WEIGHTS, lambda b: (1 << 62).to_bytes(8, "little") + b[8:]),
     "a header of 4611686018427387904 bytes"),
    "bytes behind": (edited(WEIGHTS, lambda b: b + b"x"), "belong to no tensor"),
    "no unknown": (vocabulary(lambda v: {{"<unk>": "<unk!>"}.get(p, p): i for p, i in v.items()}),
     "has no '<unk>'"),
    "size": (changed(CONFIG, vocab_size=7, decoder_vocab_size=7), "pieces, and config.json says 7"),
    "pre-norm": (changed(CONFIG, normalize_before=True), "normalize_before is True"),
    "activation": (changed(CONFIG, activation_function="gelu_new"),
     "activation_function is 'gelu_new'"),
    "unknown field": (changed(CONFIG, rotary_base=10_000), "rotary_base is 10000: only null or f"),
    "heads and width": (changed(CONFIG, encoder_attention_heads=3, decoder_attention_heads=3),
     "d_model is 16 for 3 heads"),
    "separate": (changed(CONFIG, share_encoder_decoder_embeddings=False),
     "separate_vocabs is False"),
    "search": (changed(SEARCH, no_repeat_ngram_size=3), "no_repeat_ngram_size is 3"),
    "sampling": (changed(SEARCH, do_sample=True), "do_sample is True"),
}  # fmt: skip
OF_M2M100 = {
    "post-norm": (changed(CONFIG, normalize_before=False), "normalize_before is False"),
    "untied": (changed(CONFIG, tie_word_embeddings=False), "tie_word_embeddings is"),
    "too narrow": (changed(CONFIG, d_model=2, encoder_attention_heads=1,
     decoder_attention_heads=1), "fc1.weight of shape"),
    "fewer rows than languages": (all_of(changed(CONFIG, vocab_size=150),
     with_tensors("m2m100", lambda a: {SHARED: a[SHARED][:150]})),
     "the token of language .* has id .* below vocab_size of config.json, 150"),
    "tokenizer": (changed(TOKENIZER, tokenizer_class="MBart50Tokenizer"),
     "tokenizer_class is 'MBart50Tokenizer'"),
    "added token": (changed(ADDED, **{"<mt>": 5}), "adds the token '<mt>' with id 5: only langu"),
    "no vocab.json": (removed("vocab.json"), "has no vocab.json, which M2M-100 needs"),
    "positions": (with_tensors("m2m100",
     lambda a: {"model.decoder.embed_positions.weights": np.zeros([66, 16], np.float32)}),
     "embed_positions.weights holds other positions"),
    "index of elsewhere": (with_index({SHARED: "../part.safetensors"}),
     "weight_map does not map weights to files"),
    "missing array": (with_index({"other": "part.safetensors"}),
     "names other, which its file lacks"),
}  # fmt: skip
OF_NLLB = {
    "mixture of experts": (changed(CONFIG, model_type="nllb-moe"),
     "model_type is 'nllb-moe': only marian and m2m_100"),
    "padding": (changed(CONFIG, pad_token_id=4), "pad_token_id is 4 in config.json, and 1"),
    "minimum": (changed(SEARCH, min_length=3), "min_length is 3: only 0 is supported"),
    "banned": (changed(SEARCH, bad_words_ids=[[1]]), r"bad_words_ids is \[\[1\]\]: none"),
    "forced": (changed(SEARCH, forced_bos_token_id=7),
     "forced_bos_token_id is 7: only the id of a language is supported"),
    "legacy": (changed(TOKENIZER, legacy_behaviour=True), "legacy_behaviour is True"),
    "special token": (changed(TOKENIZER, extra_special_tokens=["<mt>"]),
     "the special token '<mt>' is neither in the vocabulary"),
    "taken id": (changed(ADDED, tyv_Cyrl=len(NLLB) - 6),
     "gives the language 'deu_Latn' no id, and another token the id"),
    "only a new language": (all_of(without_languages, changed(ADDED, tyv_Cyrl=len(NLLB) - 1)),
     "does not name the languages of NLLB-200"),
    "no languages": (without_languages, "does not name the languages of NLLB-200"),
    "other ids": (changed("tokenizer.json", model={"vocab": OTHER_IDS}),
     "tokenizer.json does not give .* the id"),
}  # fmt: skip
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0"
OF_CTRANSLATE2 = {
    "Git LFS": (written("model.bin", LFS_POINTER), "is a pointer of Git LFS"),
    "old version": (edited("model.bin", lambda b: struct.pack("<I", 1) + b[4:]),
     "has version 1: 2 to 6 can be read"),
    "truncated": (edited("model.bin", lambda b: b[:-9]), "is damaged"),
    "version": (edited("model.bin", lambda b: struct.pack("<I", 9) + b[4:]),
     "has version 9: 2 to 6 can be read"),
    "another model": (edited("model.bin",
     lambda b: b.replace(b"TransformerSpec", b"TransformerDeco")), "holds a 'TransformerDeco'"),
    "revision": (edited("model.bin", lambda b: b.replace(b"Spec\0\7", b"Spec\0\11")),
     "revision 9: only"),
    "short vocabulary": (written("target_vocabulary.json", b'["<s>", "</s>", "<unk>"]'),
     "has 3 tokens, and the embedding"),
    "no end": (changed(CONFIG, eos_token="<end>"), "has no '<end>'"),
    "unknown setting": (changed(CONFIG, lookahead=3), "lookahead is 3"),
    "epsilon": (changed(CONFIG, layer_norm_epsilon="x"), "is 'x': a number from 0 to 1 is needed"),
}  # fmt: skip
MALFORMED = {
    f"{kind}, {name}": (kind, *row)
    for kind, table in {
        "marian": OF_MARIAN,
        "m2m100": OF_M2M100,
        "nllb": OF_NLLB,
        "ctranslate2": OF_CTRANSLATE2,
    }.items()
    for name, row in table.items()
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_folder_is_refused_by_one_sentence(name, whole, tmp_path):
    kind, change, message = MALFORMED[name]
    folder = shutil.copytree(whole(kind), tmp_path / "hf")
    change(folder)
    with pytest.raises(InputError, match=message) as error:
        load_pretrained(folder)
    assert "\n" not in str(error.value)
