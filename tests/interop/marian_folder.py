"""Small MarianMT folders with random weights, made without PyTorch; what they compute."""

import functools
import re

import numpy as np

from tests.interop import hugging_face_folder
from tests.interop.hugging_face_folder import (
    DIM,
    LINES,
    pieces_of,
    safetensors,
    sizes_of_config,
    train_spm,
    write_json,
)


@functools.cache
def spm(language):
    """Returns a SentencePiece model, bytes, trained on half of the lines."""
    lines = LINES[language::2] + LINES[:2]
    return train_spm(lines, model_type="unigram", vocab_size=55, hard_vocab_limit=False)


def vocabularies(separate):
    """Returns the pieces of each side, in the order of OPUS-MT: end, unknown, …, padding."""
    sides = [[p for p in pieces_of(spm(i)) if not re.match(r"<.*>$", p)] for i in (0, 1)]
    if not separate:
        sides = [list(dict.fromkeys([">>deu<<", ">>fra<<", *sides[0], *sides[1]]))] * 2
    size = min(map(len, sides))
    return [["</s>", "<unk>", *side[:size], "<pad>"] for side in sides]


def weights(separate=False, tied=True):
    """Returns the tensors of a MarianMT model, {name: float32 array}."""
    rng, size = np.random.default_rng(1), len(vocabularies(separate)[1])
    sides = ("encoder", "decoder")
    names = [f"model.{side}.embed_tokens.weight" for side in sides if separate]
    names = [*(names or ["model.shared.weight"]), *["lm_head.weight"] * (not tied)]
    arrays = {name: rng.normal(0, 0.5, [size, DIM]) for name in names}
    for matrix in arrays.values():
        matrix[-1] = 0  # padding
    some_end = 4 * arrays[names[-1]][0]
    arrays |= hugging_face_folder.draw_layers(rng)
    arrays["model.decoder.layers.1.final_layer_norm.bias"] = some_end
    arrays["final_logits_bias"] = rng.normal(0, 0.2, [1, size])
    arrays["final_logits_bias"][0, -1] = 0
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def config(separate=False, tied=True, activation="swish"):
    """Returns the fields of config.json as OPUS-MT models have them."""
    last = len(vocabularies(separate)[1]) - 1
    return sizes_of_config(layerdrop=0.0) | {
        "architectures": ["MarianMTModel"], "model_type": "marian",
        "activation_function": activation, "add_bias_logits": False,
        "add_final_layer_norm": False, "bad_words_ids": [[last]], "bos_token_id": 0,
        "decoder_start_token_id": last, "decoder_vocab_size": last + 1, "dropout": 0.1,
        "eos_token_id": 0, "is_encoder_decoder": True, "max_length": 40,
        "max_position_embeddings": 64, "normalize_before": False, "normalize_embedding": False,
        "num_beams": 4, "pad_token_id": last, "scale_embedding": True,
        "share_encoder_decoder_embeddings": not separate, "static_position_embeddings": True,
        "tie_word_embeddings": tied, "transformers_version": "4.57.6", "vocab_size": last + 1,
    }  # fmt: skip


def write(folder, separate=False, tied=True, activation="swish"):
    """Writes a folder; returns it."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors(weights(separate, tied)))
    write_json(folder / "config.json", config(separate, tied, activation))
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    write_json(folder / "tokenizer_config.json", settings)
    files = ("vocab", "target_vocab")[: 1 + separate]
    for name, side in zip(files, vocabularies(separate), strict=False):
        write_json(folder / f"{name}.json", {piece: row for row, piece in enumerate(side)})
    write_spms(folder)
    return folder


def write_spms(folder):
    """Writes source.spm and target.spm; returns their paths."""
    paths = [folder / f"{name}.spm" for name in ("source", "target")]
    for language, path in enumerate(paths):
        path.write_bytes(spm(language))
    return paths


def logits(source, target, separate=False, tied=True, activation="swish"):
    """Returns the logits [target, rows]; the padding is banned, as by `bad_words_ids`.

    Args: rows, see `hugging_face_folder.logits`, and those of `write`.
    """
    functions = {"relu": lambda x: np.maximum(0, x), "swish": lambda x: x / (1 + np.exp(-x))}
    rates = 10_000.0 ** (-np.arange(0, DIM, 2) / DIM)
    found = hugging_face_folder.logits(
        weights(separate, tied), source, target, pre_norm=False,
        activation=functions[activation], angles=lambda length: np.outer(np.arange(length), rates),
    )  # fmt: skip
    found[:, -1] = -1e4
    return found
