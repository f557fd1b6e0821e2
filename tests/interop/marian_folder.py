"""Small MarianMT folders with random weights, made without PyTorch; the same as Marian's npz."""

import functools
import io
import json
import re

import numpy as np
import sentencepiece

from tests.tasks import tiny

DIM, INNER, HEADS = 16, 24, 2
LINES = [*tiny.LINES, "A train, a dog and a man.", "Der Hund sieht, ob der Mann kommt!"] * 4


@functools.cache
def spm(language):
    """Returns a SentencePiece model, bytes, trained on half of the lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES[language::2] + LINES[:2]),
        model_writer=model,
        model_type="unigram",
        vocab_size=55,
        hard_vocab_limit=False,
        num_threads=1,  # the same model at every run
        minloglevel=2,
    )
    return model.getvalue()


def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def vocabularies(separate):
    """Returns the pieces of each side, in the order of OPUS-MT: end, unknown, …, padding."""
    sides = [[p for p in pieces_of(spm(i)) if not re.match(r"<.*>$", p)] for i in (0, 1)]
    if not separate:
        sides = [list(dict.fromkeys([">>deu<<", ">>fra<<", *sides[0], *sides[1]]))] * 2
    size = min(map(len, sides))
    return [["</s>", "<unk>", *side[:size], "<pad>"] for side in sides]


def weights(vocabulary, separate=False, tied=True, seed=1):
    """Returns the tensors of a MarianMT model, {name: float32 array}."""
    rng = np.random.default_rng(seed)
    arrays = {}

    def linear(name, outputs, inputs):
        arrays[f"{name}.weight"] = rng.normal(0, 0.4, [outputs, inputs])
        arrays[f"{name}.bias"] = rng.normal(0, 0.3, [outputs])

    def norm(name):
        arrays[f"{name}.weight"] = rng.uniform(0.5, 1.5, [DIM])
        arrays[f"{name}.bias"] = rng.normal(0, 0.2, [DIM])

    def embedding():
        matrix = rng.normal(0, 0.5, [len(vocabulary), DIM])
        matrix[-1] = 0  # padding
        return matrix

    if separate:
        arrays["model.encoder.embed_tokens.weight"] = embedding()
        target = arrays["model.decoder.embed_tokens.weight"] = embedding()
    else:
        target = arrays["model.shared.weight"] = embedding()
    if not tied:
        target = arrays["lm_head.weight"] = embedding()
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
    arrays["model.decoder.layers.1.final_layer_norm.bias"] = 4 * target[0]  # some sentences end
    bias = rng.normal(0, 0.2, [1, len(vocabulary)])
    bias[0, -1] = 0
    arrays["final_logits_bias"] = bias
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def config(vocabulary, separate=False, tied=True, activation="swish"):
    """Returns the fields of config.json as OPUS-MT models have them."""
    last = len(vocabulary) - 1
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("attention_heads", HEADS), ("ffn_dim", INNER), ("layerdrop", 0.0))
    }
    return sizes | {
        "architectures": ["MarianMTModel"], "model_type": "marian",
        "activation_function": activation, "add_bias_logits": False,
        "add_final_layer_norm": False, "bad_words_ids": [[last]], "bos_token_id": 0,
        "d_model": DIM, "decoder_layers": 2, "decoder_start_token_id": last,
        "decoder_vocab_size": last + 1, "dropout": 0.1, "encoder_layers": 1, "eos_token_id": 0,
        "is_encoder_decoder": True, "max_length": 40, "max_position_embeddings": 64,
        "normalize_before": False, "normalize_embedding": False, "num_beams": 4,
        "pad_token_id": last, "scale_embedding": True,
        "share_encoder_decoder_embeddings": not separate, "static_position_embeddings": True,
        "tie_word_embeddings": tied, "transformers_version": "4.57.6", "vocab_size": last + 1,
    }  # fmt: skip


def safetensors(arrays):
    """Returns the bytes of a safetensors file of {name: array}."""
    names = {"float32": "F32", "float16": "F16"}
    header, content = {}, b""
    for name, array in arrays.items():
        end = len(content) + array.nbytes
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(content), end],
        }
        content += array.tobytes()
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + content


def write(folder, separate=False, tied=True, activation="swish", dtype="float32", seed=1):
    """Writes a folder; returns it."""
    sides = vocabularies(separate)
    folder.mkdir()
    arrays = weights(sides[1], separate, tied, seed)
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    (folder / "model.safetensors").write_bytes(safetensors(arrays))
    write_json(folder / "config.json", config(sides[1], separate, tied, activation))
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    write_json(folder / "tokenizer_config.json", settings)
    for name, side in zip(("vocab", "target_vocab")[: 1 + separate], sides, strict=False):
        numbers = {piece: number for number, piece in enumerate(side)}
        write_json(folder / f"{name}.json", numbers)
    for language, name in enumerate(("source", "target")):
        (folder / f"{name}.spm").write_bytes(spm(language))
    return folder


def write_json(path, fields):
    path.write_text(json.dumps(fields), encoding="utf-8")


def change_json(path, **changes):
    """Sets fields of a JSON file; None removes one."""
    fields = json.loads(path.read_text()) if path.exists() else {}
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    write_json(path, fields)


def write_npz(folder, separate=False, activation="swish", seed=1):
    """Writes the model of `write` as Marian itself would: model.npz and vocabularies."""
    folder.mkdir()
    sides = vocabularies(separate)
    arrays = weights(sides[1], separate, seed=seed)
    if separate:
        own = {
            "encoder_Wemb": arrays["model.encoder.embed_tokens.weight"][:-1],
            "decoder_Wemb": arrays["model.decoder.embed_tokens.weight"][:-1],
        }
    else:
        own = {"Wemb": arrays["model.shared.weight"][:-1]}
    own["decoder_ff_logit_out_b"] = arrays["final_logits_bias"][:, :-1]
    for side, layers in (("encoder", 1), ("decoder", 2)):
        for layer in range(layers):
            name, scope = f"model.{side}.layers.{layer}", f"{side}_l{layer + 1}"
            for attention, short in (("self_attn", "self"), ("encoder_attn", "context")):
                for part in "qkvo" if f"{name}.{attention}.q_proj.weight" in arrays else "":
                    theirs = f"{name}.{attention}.{'out' if part == 'o' else part}_proj"
                    own[f"{scope}_{short}_W{part}"] = arrays[f"{theirs}.weight"].T
                    own[f"{scope}_{short}_b{part}"] = arrays[f"{theirs}.bias"][None]
                    norm = f"{name}.{attention}_layer_norm"
                    own[f"{scope}_{short}_Wo_ln_scale"] = arrays[f"{norm}.weight"][None]
                    own[f"{scope}_{short}_Wo_ln_bias"] = arrays[f"{norm}.bias"][None]
            for number in "12":
                own[f"{scope}_ffn_W{number}"] = arrays[f"{name}.fc{number}.weight"].T
                own[f"{scope}_ffn_b{number}"] = arrays[f"{name}.fc{number}.bias"][None]
            own[f"{scope}_ffn_ffn_ln_scale"] = arrays[f"{name}.final_layer_norm.weight"][None]
            own[f"{scope}_ffn_ffn_ln_bias"] = arrays[f"{name}.final_layer_norm.bias"][None]
    options = {
        "type": "transformer",
        "transformer-decoder-autoreg": "self-attention",
        "transformer-no-projection": False,
        "transformer-ffn-activation": activation,
        "transformer-postprocess-emb": "d",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-guided-alignment-layer": "last",
        "enc-depth": 1,
        "dec-depth": 2,
        "transformer-heads": HEADS,
    }
    text = json.dumps(options).encode() + b"\0"  # JSON is YAML
    own["special:model.yml"] = np.frombuffer(text, np.int8)
    np.savez(folder / "model.npz", **own)
    paths = []
    for side, name in zip(sides, ("source", "target"), strict=True):
        lines = [f"{json.dumps(p, ensure_ascii=False)}: {i}\n" for i, p in enumerate(side[:-1])]
        (folder / f"{name}.yml").write_text("".join(lines), encoding="utf-8")
        paths.append(str(folder / f"{name}.yml"))
    return folder / "model.npz", paths
