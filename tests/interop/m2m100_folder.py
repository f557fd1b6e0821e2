"""Small M2M-100 and NLLB-200 folders with random weights, made without PyTorch."""

import functools
import random

import numpy as np
import sentencepiece

from t2t_keras.interop.m2m100_tokenizer import _LANGUAGE_CODES
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

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
NLLB_CODES = ["fra_Latn", "deu_Latn", "eng_Latn", "zho_Hans"]  # not sorted, as there
M2M100_CODES = _LANGUAGE_CODES["m2m100"].split()


@functools.cache
def spm():
    """Returns a SentencePiece model of all lines, bytes."""
    return train_spm(LINES, model_type="bpe", vocab_size=90)


@functools.cache
def tokens(kind):
    """Returns the token of each row of the embedding, list of str."""
    pieces = pieces_of(spm())[3:]
    if kind == "nllb":
        return [*SPECIAL, *pieces, *NLLB_CODES, "<mask>", "spare 1", "spare 2"]
    random.Random(1).shuffle(pieces)
    # The first ones are missing in vocab.json.
    languages = [f"__{code}__" for code in M2M100_CODES]
    return [*SPECIAL, *pieces[5:], *languages, *(f"spare {i}" for i in range(8))]


def weights(kind):
    """Returns the tensors of a model, {name: float32 array}."""
    rng = np.random.default_rng(1)
    matrix = rng.normal(0, 0.5, [len(tokens(kind)), DIM])
    arrays = {"model.shared.weight": matrix} | hugging_face_folder.draw_layers(rng)
    for side in hugging_face_folder.LAYERS:
        arrays |= hugging_face_folder.draw_norm(rng, f"model.{side}.layer_norm")
    matrix[1] = 0  # padding
    arrays["model.decoder.layer_norm.bias"] = 3.0 * matrix[2]  # some sentences end
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def config(kind):
    """Returns the fields of config.json as released models have them."""
    return sizes_of_config(layerdrop=0.05) | {
        "activation_dropout": 0.0, "activation_function": "relu",
        "architectures": ["M2M100ForConditionalGeneration"], "attention_dropout": 0.1,
        "bos_token_id": 0, "decoder_start_token_id": 2, "dropout": 0.1, "eos_token_id": 2,
        "init_std": 0.02, "is_encoder_decoder": True, "max_position_embeddings": 64,
        "model_type": "m2m_100", "num_hidden_layers": 1, "pad_token_id": 1,
        "scale_embedding": True, "transformers_version": "4.57.6", "use_cache": True,
        "vocab_size": len(tokens(kind)),
    }  # fmt: skip


def write(folder, kind="m2m100"):
    """Writes a folder of "m2m100" or "nllb", in the form of 2021 and 2022; returns it."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors(weights(kind)))
    write_json(folder / "config.json", config(kind))
    search = {"num_beams": 4, "early_stopping": True} if kind == "m2m100" else {}
    ids = {"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    write_json(folder / "generation_config.json", ids | search | {"max_length": 16})
    (folder / "sentencepiece.bpe.model").write_bytes(spm())
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    if kind == "nllb":
        named |= {"mask_token": {"content": "<mask>", "lstrip": True}, "cls_token": "<s>"}
        languages, tokenizer = NLLB_CODES, "NllbTokenizer"
    else:
        count = len(tokens(kind)) - len(M2M100_CODES) - 8
        write_json(folder / "vocab.json", {t: i for i, t in enumerate(tokens(kind)[:count])})
        languages, tokenizer = [f"__{code}__" for code in M2M100_CODES], "M2M100Tokenizer"
    settings = {"tokenizer_class": tokenizer, "model_max_length": 1024, "src_lang": None}
    write_json(folder / "tokenizer_config.json", settings)
    special = named | {"additional_special_tokens": languages}
    write_json(folder / "special_tokens_map.json", special)
    return folder


def ids_of(kind, text):
    """Returns the rows of a text, without language and end, list of int."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=spm())
    if kind == "nllb":
        return [i + 1 if i else 3 for i in processor.encode(text)]
    rows = {piece: row for row, piece in enumerate(tokens(kind))}
    return [rows.get(piece, 3) for piece in processor.encode(text, out_type=str)]


def logits(kind, source, target):
    """Returns the logits [target, rows] of rows, see `hugging_face_folder.logits`."""
    rates = 10_000.0 ** (-np.arange(DIM // 2) / (DIM // 2 - 1))
    return hugging_face_folder.logits(
        weights(kind), source, target, pre_norm=True, activation=lambda x: np.maximum(0, x),
        angles=lambda length: np.outer(np.arange(2, 2 + length), rates),
    )  # fmt: skip
