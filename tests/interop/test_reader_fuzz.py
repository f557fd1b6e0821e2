"""Whatever a folder of a pretrained model holds, it loads or is refused by one sentence.

FUZZ_SEED=3 takes other samples of the mutations. The slow test takes all of them.
"""

import os
import random

import pytest

from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.translation import Translator
from tests.interop import fuzz, m2m100_folder, marian_folder
from tests.tasks import tiny

SEED = os.environ.get("FUZZ_SEED", "1")


def marian(path):
    """Returns a folder with all files and fields that `load_marian` reads."""
    folder = marian_folder.write(path)
    config = marian_folder.config(marian_folder.vocabularies(False)[1])
    marian_folder.change_json(
        folder / "generation_config.json",
        bad_words_ids=config["bad_words_ids"],
        early_stopping=True,
        eos_token_id=0,
        forced_eos_token_id=0,
        length_penalty=1.0,
        max_length=30,
        num_beams=2,
        renormalize_logits=True,
    )
    tokens = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    marian_folder.change_json(
        folder / "tokenizer_config.json",
        added_tokens_decoder={"0": {"content": "</s>"}},
        additional_special_tokens=[],
        clean_up_tokenization_spaces=True,
        model_max_length=512,
        sp_model_kwargs={},
        **tokens,
    )
    marian_folder.write_json(folder / "special_tokens_map.json", tokens)
    return folder


def m2m100(path):
    """Returns a folder with all files and fields that `load_m2m100` reads, but tokenizer.json."""
    folder = m2m100_folder.write(path)
    first = len(m2m100_folder.tokens("m2m100")) - 108
    marian_folder.write_json(folder / "added_tokens.json", {"__af__": first, "__am__": first + 1})
    marian_folder.change_json(
        folder / "tokenizer_config.json",
        added_tokens_decoder={"1": {"content": "<pad>"}},
        language_codes="m2m100",
        clean_up_tokenization_spaces=True,
    )
    marian_folder.change_json(
        folder / "generation_config.json",
        forced_bos_token_id=first,
        length_penalty=1.0,
        num_beams=2,
    )
    return folder


def nllb(path):
    folder = m2m100_folder.write(path, "nllb")
    tokens = m2m100_folder.tokens("nllb")[:-2]
    marian_folder.write_json(
        folder / "tokenizer.json",
        {
            "model": {"vocab": {token: row for row, token in enumerate(tokens)}},
            "added_tokens": [
                {"id": row, "content": token}
                for row, token in enumerate(tokens)
                if row < 4 or token[3:4] == "_" or token == "<mask>"
            ],
        },
    )
    marian_folder.change_json(folder / "tokenizer_config.json", legacy_behaviour=False)
    return folder


def ctranslate2(path):
    """Returns a folder as CTranslate2's converter writes it, and two SentencePiece models there."""
    converters = pytest.importorskip("ctranslate2").converters
    npz, paths = marian_folder.write_npz(path.with_name("npz"))
    converters.MarianConverter(str(npz), paths).convert(str(path))
    for language, name in enumerate(("source", "target")):
        (path / f"{name}.spm").write_bytes(marian_folder.spm(language))
    return path


def load_with_spms(folder):
    return load_ctranslate2(folder, folder / "source.spm", folder / "target.spm")


def ours(path):
    """Returns a folder with a tokenizer as we export it."""
    pytest.importorskip("ctranslate2")
    export_ctranslate2(Translator(tiny.model(), tiny.tokenizer()), path)
    return path


READERS = {
    "marian": (marian, load_marian, "model.safetensors"),
    "m2m100": (m2m100, load_m2m100, "model.safetensors"),
    "nllb": (nllb, load_m2m100, "model.safetensors"),
    "ctranslate2": (ctranslate2, load_with_spms, "model.bin"),
    "ours": (ours, load_ctranslate2, "model.bin"),
}


def load_all(reader, tmp_path, count=None):
    make, load, weights = READERS[reader]
    rng = random.Random(SEED)  # so that no other reader changes the sample
    folder = make(tmp_path / "whole")
    load(folder)
    groups = [
        fuzz.field_mutations(folder),
        fuzz.file_mutations(folder),
        fuzz.byte_mutations(weights, 3000, 200, rng),
    ]
    loaded = refused = 0
    for group in groups:
        for label, mutate in rng.sample(group, min(count or len(group), len(group))):
            error = fuzz.outcome(load, folder, mutate, tmp_path / "copy")
            assert error is None or isinstance(error, InputError), (label, error)
            assert "\n" not in str(error), label
            loaded, refused = loaded + (error is None), refused + (error is not None)
    assert refused and (loaded or count)  # the whole folder has loaded
    print(reader, loaded, "load,", refused, "are refused")


@pytest.mark.parametrize("reader", ["marian", "m2m100", "ctranslate2"])
def test_a_mutated_folder_loads_or_is_refused(reader, tmp_path):
    load_all(reader, tmp_path, count=6)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_every_mutation_of_a_folder_loads_or_is_refused(reader, tmp_path):
    load_all(reader, tmp_path)
