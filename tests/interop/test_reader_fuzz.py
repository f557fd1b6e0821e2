"""Whatever a folder of a pretrained model holds, it loads or is refused by one sentence."""

import contextlib
import functools
import json
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.errors import InputError
from t2t_keras.interop import hugging_face
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.translation import Translator
from tests.interop import m2m100_folder, marian_folder
from tests.interop.hugging_face_folder import change_json, write_json
from tests.tasks import tiny

TOKENS = {"eos_token", "unk_token", "pad_token", "additional_special_tokens"}
FIELDS = {  # that readers read, beside those that folders have
    "config.json": hugging_face._READ,
    "generation_config.json": {*hugging_face._SEARCH, *hugging_face._FIXED_SEARCH},
    "tokenizer_config.json": {
        *("added_tokens_decoder", "clean_up_tokenization_spaces", "model_max_length"),
        *("language_codes", "legacy_behaviour", "sp_model_kwargs", "tokenizer_class", *TOKENS),
    },
    "special_tokens_map.json": TOKENS,
    "added_tokens.json": {"__af__", "deu_Latn", "</s>"},
    "tokenizer.json": {"model", "added_tokens"},
}


def marian(path):
    """Returns a folder with all files and fields that `load_marian` reads."""
    folder, names = marian_folder.write(path), ("eos_token", "unk_token", "pad_token")
    tokens = dict(zip(names, ("</s>", "<unk>", "<pad>"), strict=True))
    change_json(
        folder / "generation_config.json", bad_words_ids=marian_folder.config()["bad_words_ids"],
        early_stopping=True, eos_token_id=0, forced_eos_token_id=0, length_penalty=1.0,
        max_length=30, num_beams=2, renormalize_logits=True,
    )  # fmt: skip
    change_json(
        folder / "tokenizer_config.json", added_tokens_decoder={"0": {"content": "</s>"}},
        additional_special_tokens=[], clean_up_tokenization_spaces=True, model_max_length=512,
        sp_model_kwargs={}, **tokens,
    )  # fmt: skip
    write_json(folder / "special_tokens_map.json", tokens)
    return folder


def m2m100(path):
    """Returns a folder with all files and fields that `load_m2m100` reads, but tokenizer.json."""
    folder, tokens = m2m100_folder.write(path), m2m100_folder.tokens("m2m100")
    first = tokens.index("__af__")
    write_json(folder / "added_tokens.json", {"__af__": first, "__am__": first + 1})
    change_json(
        folder / "tokenizer_config.json", added_tokens_decoder={"1": {"content": "<pad>"}},
        language_codes="m2m100", clean_up_tokenization_spaces=True,
    )  # fmt: skip
    search = {"forced_bos_token_id": first, "length_penalty": 1.0, "num_beams": 2}
    change_json(folder / "generation_config.json", **search)
    return folder


def nllb(path):
    """Returns a folder with tokenizer.json."""
    folder, tokens = m2m100_folder.write(path, "nllb"), m2m100_folder.tokens("nllb")[:-2]
    added = {*m2m100_folder.SPECIAL, *m2m100_folder.NLLB_CODES, "<mask>"}
    rows = {token: row for row, token in enumerate(tokens)}
    added = [{"id": rows[token], "content": token} for token in tokens if token in added]
    write_json(folder / "tokenizer.json", {"model": {"vocab": rows}, "added_tokens": added})
    change_json(folder / "tokenizer_config.json", legacy_behaviour=0)  # as false
    return folder


def ctranslate2(path):
    """Returns a folder of CTranslate2 with two SentencePiece models in it."""
    from tests.interop import ctranslate2_folder  # noqa: PLC0415  skips without ctranslate2

    folder, _ = ctranslate2_folder.write_of_pieces(path)
    marian_folder.write_spms(folder)
    return folder


def ours(path):
    """Returns a folder with a tokenizer as we export it."""
    pytest.importorskip("ctranslate2")
    export_ctranslate2(Translator(tiny.model(), tiny.tokenizer()), path)
    return path


READERS = {
    "marian": (marian, load_marian, "model.safetensors"),
    "m2m100": (m2m100, load_m2m100, "model.safetensors"),
    "nllb": (nllb, load_m2m100, "model.safetensors"),
    "ctranslate2": (ctranslate2, load_ctranslate2, "model.bin"),
    "ours": (ours, load_ctranslate2, "model.bin"),
}


MISSING = object()
VALUES = st.just(MISSING) | st.recursive(
    st.none() | st.booleans() | st.integers(-1, 5) | st.integers() | st.floats()
    | st.text(max_size=5) | st.sampled_from(["512", "</s>", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=3,
)  # fmt: skip
DAMAGES = {
    "missing": None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "pointer": lambda content: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "zeros": lambda content: bytes(len(content)),
    "null": lambda content: b"null",
    "deep": lambda content: b"[" * 100_000,
}


def set_field(place, value, folder):
    """Gives a field of a JSON file, or an element of its list, another value."""
    file, key = place
    path = folder / file
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if value is not MISSING:
        content[key] = value
    else:
        with contextlib.suppress(LookupError):
            del content[key]
    path.write_text(json.dumps(content))


def damage(name, kind, folder):
    path = folder / name
    if DAMAGES[kind]:
        path.write_bytes(DAMAGES[kind](path.read_bytes()))
    else:
        path.unlink()


def set_bytes(name, changes, folder):
    content = bytearray((folder / name).read_bytes())
    for place, byte in changes.items():
        content[place] = byte
    (folder / name).write_bytes(content)


def mutations(folder, weights):
    """A strategy of functions that change a copy of the folder."""
    fields = []
    if "tokenizer_config.json" in os.listdir(folder):  # of Hugging Face
        fields = [(file, key) for file, keys in FIELDS.items() for key in sorted(keys)]
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        keys = range(min(3, len(content))) if isinstance(content, list) else [*content][:60]
        fields += [(path.name, key) for key in keys]
        fields += [(path.name, "unheard_of")] if isinstance(content, dict) else []
    names = st.sampled_from(sorted(path.name for path in folder.iterdir()))
    changes = st.dictionaries(st.integers(0, 2999), st.integers(0, 255), min_size=1, max_size=3)
    return st.one_of(
        st.builds(functools.partial, st.just(set_field), st.sampled_from(fields), VALUES),
        st.builds(functools.partial, st.just(damage), names, st.sampled_from([*DAMAGES])),
        st.builds(functools.partial, st.just(set_bytes), st.just(weights), changes),
    )


@pytest.mark.parametrize(("reader", "count"), [
    *((reader, 12) for reader in ("marian", "m2m100", "ctranslate2")),
    *(pytest.param(reader, 60, marks=pytest.mark.slow) for reader in READERS),
])  # fmt: skip
def test_a_mutated_folder_loads_or_is_refused(reader, count, tmp_path):
    make, load, weights = READERS[reader]
    whole, copy = make(tmp_path / "whole"), tmp_path / "copy"
    load(whole)
    found = []

    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    @given(mutations(whole, weights))
    def loads_or_is_refused(mutate):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        mutate(copy)
        try:
            load(copy)
            found.append("loaded")
        except InputError as error:
            assert "\n" not in str(error)
            found.append("refused")

    loads_or_is_refused()
    assert "refused" in found
