"""Small M2M-100 and NLLB-200 folders with random weights, made without PyTorch; what they compute.

`write` makes a folder, and `logits` computes in float64 what its model says.
"""

import functools
import io
import random

import numpy as np
import sentencepiece

from t2t_keras.interop.m2m100_tokenizer import _LANGUAGE_CODES
from tests import reference
from tests.interop.marian_folder import LINES, pieces_of, safetensors, write_json

DIM, INNER, HEADS = 16, 24, 2
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
NLLB_CODES = ["fra_Latn", "deu_Latn", "eng_Latn", "zho_Hans"]  # not sorted, as there
M2M100_CODES = _LANGUAGE_CODES["m2m100"].split()


@functools.cache
def spm():
    """Returns a SentencePiece model of all lines, bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type="bpe",
        vocab_size=90,
        num_threads=1,  # the same model at every run
        minloglevel=2,
    )
    return model.getvalue()


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


def weights(kind, seed=1):
    """Returns the tensors of a model, {name: float32 array}."""
    rng = np.random.default_rng(seed)
    arrays = {"model.shared.weight": rng.normal(0, 0.5, [len(tokens(kind)), DIM])}

    def linear(name, outputs, inputs):
        arrays[f"{name}.weight"] = rng.normal(0, 0.4, [outputs, inputs])
        arrays[f"{name}.bias"] = rng.normal(0, 0.3, [outputs])

    def norm(name):
        arrays[f"{name}.weight"] = rng.uniform(0.5, 1.5, [DIM])
        arrays[f"{name}.bias"] = rng.normal(0, 0.2, [DIM])

    for side, layers in (("encoder", 1), ("decoder", 2)):
        for layer in range(layers):
            name = f"model.{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{name}.{attention}.{part}", DIM, DIM)
                norm(f"{name}.{attention}_layer_norm")
            linear(f"{name}.fc1", INNER, DIM)
            linear(f"{name}.fc2", DIM, INNER)
            norm(f"{name}.final_layer_norm")
        norm(f"model.{side}.layer_norm")
    arrays["model.shared.weight"][1] = 0  # padding
    # Some sentences end.
    arrays["model.decoder.layer_norm.bias"] = 3.0 * arrays["model.shared.weight"][2]
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def config(kind):
    """Returns the fields of config.json as released models have them."""
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("attention_heads", HEADS), ("ffn_dim", INNER), ("layerdrop", 0.05))
    }
    return sizes | {
        "activation_dropout": 0.0, "activation_function": "relu",
        "architectures": ["M2M100ForConditionalGeneration"], "attention_dropout": 0.1,
        "bos_token_id": 0, "d_model": DIM, "decoder_layers": 2, "decoder_start_token_id": 2,
        "dropout": 0.1, "encoder_layers": 1, "eos_token_id": 2, "init_std": 0.02,
        "is_encoder_decoder": True, "max_position_embeddings": 64, "model_type": "m2m_100",
        "num_hidden_layers": 1, "pad_token_id": 1, "scale_embedding": True,
        "transformers_version": "4.57.6", "use_cache": True, "vocab_size": len(tokens(kind)),
    }  # fmt: skip


def write(folder, kind="m2m100", seed=1):
    """Writes a folder of "m2m100" or "nllb", in the form of 2021 and 2022; returns it."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors(weights(kind, seed)))
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


def logits(kind, source, target, seed=1):
    """Returns the logits [target, rows] of a model, by the equations in float64.

    Args:
        source: rows of the source, with language and end.
        target: rows that the decoder reads.
    """
    arrays = {name: array.astype(np.float64) for name, array in weights(kind, seed).items()}

    def linear(name, x):
        return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]

    def norm(name, x):
        return reference.layer_norm(x, arrays[f"{name}.weight"], arrays[f"{name}.bias"], 1e-5)

    def attention(name, x, memory, mask=None):
        inputs = {"q": x, "k": memory, "v": memory}
        q, k, v = (linear(f"{name}.{part}_proj", y) for part, y in inputs.items())
        heads = [
            reference.attention(*(y[:, i : i + DIM // HEADS] for y in (q, k, v)), mask)
            for i in range(0, DIM, DIM // HEADS)
        ]
        return linear(f"{name}.out_proj", np.concatenate(heads, axis=1))

    def embed(rows):
        rates = 10_000.0 ** (-np.arange(DIM // 2) / (DIM // 2 - 1))
        angles = np.outer(np.arange(2, 2 + len(rows)), rates)
        positions = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return DIM**0.5 * arrays["model.shared.weight"][rows] + positions

    def stack(side, layers, x, memory=None):
        mask = None if memory is None else np.tri(len(x), dtype=bool)
        for layer in range(layers):
            name = f"model.{side}.layers.{layer}"
            y = norm(f"{name}.self_attn_layer_norm", x)
            x = x + attention(f"{name}.self_attn", y, y, mask)
            if memory is not None:
                y = norm(f"{name}.encoder_attn_layer_norm", x)
                x = x + attention(f"{name}.encoder_attn", y, memory)
            y = norm(f"{name}.final_layer_norm", x)
            x = x + linear(f"{name}.fc2", np.maximum(0, linear(f"{name}.fc1", y)))
        return norm(f"model.{side}.layer_norm", x)

    hidden = stack("decoder", 2, embed(target), stack("encoder", 1, embed(source)))
    return hidden @ arrays["model.shared.weight"].T
