"""Common parts of Hugging Face's translation models: MarianMT, M2M-100 and NLLB resemble BART.

`read_config` and `read_search` read fields and check them, `read_weights` reads the arrays, and
`set_layers` moves them into the layers of a `Transformer`. `marian.py` and `m2m100.py` call them.
An unsupported field of a folder is an error that names it.
"""

import pathlib

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.interop import weights
from t2t_keras.interop.files import read_json, require_kind, require_known
from t2t_keras.interop.hugging_face_tokenizers import MAX_POSITIONS
from t2t_keras.interop.other_formats import explain
from t2t_keras.interop.weights import alternating_channels, read_keras, read_safetensors, read_torch

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}

SPECIAL_IDS = ("eos_token_id", "pad_token_id", "decoder_start_token_id")

_SIZES = (
    *("d_model", "encoder_ffn_dim", "encoder_attention_heads"),
    *("encoder_layers", "decoder_layers", "vocab_size", "max_position_embeddings"),
)

_DEFAULT_NEW_TOKENS = 20  # of Hugging Face's search

_FIXED = {
    "is_encoder_decoder": [True],
    "static_position_embeddings": [True],
    "pruned_heads": [{}],
    "chunk_size_feed_forward": [0],
}
"""Fields of config.json, where it has them, that change the model, and the values it may have.

Any other field that is not known may be null or false.
"""

_READ = {
    *("activation_function", "scale_embedding", "tie_word_embeddings"),
    *("dropout", "attention_dropout", "activation_dropout"),
    *("decoder_attention_heads", "decoder_ffn_dim", *SPECIAL_IDS, *_SIZES),
}
_WITHOUT_EFFECT = {
    # What made the file, and with which types.
    *("architectures", "dtype", "finetuning_task", "tokenizer_class", "torch_dtype", "torchscript"),
    *("language_pair", "task_specific_params", "transformers_version", "use_bfloat16"),
    # Of training, and of classifiers.
    *("classif_dropout", "classifier_dropout", "gradient_checkpointing", "init_std"),
    *("id2label", "label2id", "num_labels", "problem_type"),
    # What `generate` returns beside translations, and how it computes.
    *("output_attentions", "output_hidden_states", "return_dict", "return_dict_in_generate"),
    "use_cache",
    # Not of these models: no text has a prefix, and other fields say the layers.
    *("bos_token_id", "extra_pos_embeddings", "num_hidden_layers", "prefix", "sep_token_id"),
}
"""Fields that do not affect translation; nor do fields that begin with an underscore."""

_SEARCH = {
    *("num_beams", "length_penalty", "max_length", "max_new_tokens"),
    *("bad_words_ids", "forced_bos_token_id", "forced_eos_token_id"),
    # These change samples only.
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),
    # Hypotheses and their order are the same; see `marian.py` for scores.
    *("renormalize_logits", "remove_invalid_values", "output_scores", "output_logits"),
}
_FIXED_SEARCH = {
    "do_sample": [False],
    "early_stopping": [False, True, "never"],
    "min_length": [0],
    "num_beam_groups": [1],
    "diversity_penalty": [0],
    "repetition_penalty": [1],
    "encoder_repetition_penalty": [1],
    "no_repeat_ngram_size": [0],
    "encoder_no_repeat_ngram_size": [0],
    "num_return_sequences": [1],
    "cache_implementation": [None, "static", "dynamic"],
}
"""{field of generation_config.json: the values that are supported}"""


# Configuration -----------------------------------------------------------------------------------


def read_config(path, fixed, known=(), flags=None):
    """Returns the fields of config.json, defaults included; raises InputError for others.

    Args:
        path: the file.
        fixed: {field: the values it may have}, for this kind of model.
        known: further fields, which may have any value.
        flags: {field: default} of fields that are true or false.
    """
    config, flags = read_json(path), flags or {}
    known = {*known, *flags, *_READ, *_WITHOUT_EFFECT, *_SEARCH, *_FIXED_SEARCH}
    require_known(config, path, _FIXED | fixed, known)
    if isinstance(config.get("eos_token_id"), list) and len(config["eos_token_id"]) == 1:
        [config["eos_token_id"]] = config["eos_token_id"]
    for least, names in ((1, _SIZES), (0, SPECIAL_IDS)):
        require_kind(path, "a whole number", least, **{name: config.get(name) for name in names})
    if config["max_position_embeddings"] > MAX_POSITIONS:
        raise InputError(
            f"{path}: max_position_embeddings is {config['max_position_embeddings']}: at most "
            f"{MAX_POSITIONS:,} are supported."
        )
    for name in ("attention_heads", "ffn_dim"):
        ours, other = config[f"encoder_{name}"], config.get(f"decoder_{name}")
        if ours != other:
            raise InputError(
                f"{path}: encoder_{name} is {ours} and decoder_{name} {other}: only equal ones are "
                "supported."
            )
    if config.get("activation_function") not in list(ACTIVATIONS):  # it may be unhashable
        raise InputError(
            f"{path}: activation_function is {config.get('activation_function')!r}: only "
            f"{', '.join(ACTIVATIONS)} are supported."
        )
    if config["d_model"] % 2 or config["d_model"] % config["encoder_attention_heads"]:
        raise InputError(
            f"{path}: d_model is {config['d_model']} for {config['encoder_attention_heads']} heads:"
            " only an even multiple of the heads is supported."
        )
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    config = rates | flags | config
    require_kind(path, "a number", **{name: config[name] for name in rates})
    require_kind(path, "true or false", **{name: config[name] for name in flags})
    return config


def model_fields(config):
    """Returns the arguments of `TransformerConfig` that follow from config.json, a dict."""
    return {
        "num_encoder_layers": config["encoder_layers"],
        "num_decoder_layers": config["decoder_layers"],
        "model_dim": config["d_model"],
        "feed_forward_dim": config["encoder_ffn_dim"],
        "num_heads": config["encoder_attention_heads"],
        "dropout": config["dropout"],
        "attention_dropout": config["attention_dropout"],
        "activation_dropout": config["activation_dropout"],
        "norm_epsilon": 1e-5,
        "activation": ACTIVATIONS[config["activation_function"]],
        "attention_bias": True,
        "scale_embedding": config["scale_embedding"],
        "output_bias": True,
    }


def read_search(folder, config, max_source_length, banned=None, first_ids=()):
    """Returns the arguments of `Translator`; raises InputError for a field that is not supported.

    They come from generation_config.json, or from config.json if there is none, with Hugging
    Face's defaults (one beam, 20 tokens) for missing fields.

    Args:
        folder, config: path, and result of `read_config`.
        max_source_length: the tokenizer's limit.
        banned: the id that `bad_words_ids` may ban; None: none.
        first_ids: allowed values of `forced_bos_token_id`, which is otherwise ignored.
    """
    path = folder / "generation_config.json"
    if path.exists():
        fields = read_json(path)
    else:
        names = _SEARCH | set(_FIXED_SEARCH)
        path, fields = folder / "config.json", {name: config.get(name) for name in names}
    fields = {name: value for name, value in fields.items() if value is not None}
    require_known(fields, path, _FIXED_SEARCH, {*_SEARCH, *_WITHOUT_EFFECT, *SPECIAL_IDS})
    expected = {name: config[name] for name in SPECIAL_IDS}
    expected["forced_eos_token_id"] = config["eos_token_id"]
    for name, value in expected.items():
        if fields.get(name, value) not in (value, [value]):
            raise InputError(
                f"{path}: {name} is {fields[name]!r}, and in config.json {value}: only equal ones "
                "are supported."
            )
    if "bad_words_ids" in fields and fields["bad_words_ids"] not in ([[banned]], []):
        wanted = "none is" if banned is None else f"only that of padding, [[{banned}]], is"
        raise InputError(f"{path}: bad_words_ids is {fields['bad_words_ids']}: {wanted} supported.")
    forced = fields.get("forced_bos_token_id")
    if forced is not None and (type(forced) is not int or forced not in first_ids):
        raise InputError(
            f"{path}: forced_bos_token_id is {forced!r}: only the id of a language is supported."
        )
    counts = [name for name in ("num_beams", "max_length", "max_new_tokens") if name in fields]
    require_kind(path, "a whole number", 1, **{name: fields[name] for name in counts})
    length_penalty = fields.get("length_penalty", 1.0)
    require_kind(path, "a number", length_penalty=length_penalty)
    longest = config["max_position_embeddings"]
    limit = fields.get("max_length", _DEFAULT_NEW_TOKENS + 1) - 1  # with the decoder's first input
    limit = min(fields.get("max_new_tokens", limit), longest)
    if limit < 1:
        raise InputError(f"{path}: max_length is {fields['max_length']}: at least 2 is needed.")
    return {
        "beam_size": fields.get("num_beams", 1),
        "length_penalty": float(length_penalty),
        "length_penalty_offset": 0.0,
        "max_extra_tokens": limit,
        "max_target_length": limit,
        "max_source_length": int(min(max_source_length, longest)),
        "exhaustive": fields.get("early_stopping") == "never",
    }


# Weights -----------------------------------------------------------------------------------------


WEIGHTS = {
    "model.safetensors": read_safetensors,
    "tf_model.h5": read_keras,
    "pytorch_model.bin": read_torch,
}
"""{file: its reader}, the ones that need no PyTorch first; each may be in shards with an index."""

ADAPTERS = ("adapter_config.json", "adapter_model.*")


def read_weights(folder):
    """Returns the arrays in a folder, and the name of their file.

    Raises:
        InputError: if there is no file of weights, it is damaged, or an adapter is beside it.
    """
    for pattern in ADAPTERS:
        for file in folder.glob(pattern):
            raise InputError(
                f"{folder} has the PEFT adapter {file.name} beside its weights, and adapters are "
                "not read: merge it by merge_and_unload of peft and save that, or move it away to "
                "import the model without it."
            )
    for name, read in WEIGHTS.items():
        if (folder / name).exists():
            return read(folder / name), str(folder / name)
        index = folder / f"{name}.index.json"
        if index.exists():
            return _read_shards(index, read), str(index)
    raise InputError(
        f"{folder} has none of {', '.join(WEIGHTS)}: {explain(folder) or 'copy the model again'}."
    )


def _read_shards(index, read):
    """Returns the arrays of the files that an index names."""
    files = read_json(index).get("weight_map")
    names = files.values() if isinstance(files, dict) else [files]
    if not names or not all(
        isinstance(name, str) and name == pathlib.PurePath(name).name for name in names
    ):
        raise InputError(
            f"{index}: weight_map does not map weights to files in its folder: copy it again."
        )
    arrays = {}
    for name in sorted(set(names)):
        shard = read(index.parent / name)
        if twice := sorted(arrays.keys() & shard.keys()):
            raise InputError(
                f"{index.parent / name} has {twice[0]}, and so has another shard: copy the model "
                "again."
            )
        arrays |= shard
    if missing := sorted(files.keys() - arrays.keys()):
        raise InputError(f"{index} names {missing[0]}, which its file lacks: copy the model again.")
    return arrays


def require_sizes(config, arrays):
    """Raises InputError, before a model is made, if the sizes of config and arrays differ."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.layers."
        count, expected = arrays.count(name), config[f"{side}_layers"]
        if count != expected:
            raise InputError(
                f"{arrays.place} has {count} layers {name}*, and config.json says {expected}: "
                "copy both files of one model."
            )
        arrays.shape(f"{name}0.fc1.weight", config["encoder_ffn_dim"], config["d_model"])


_LINEAR = {
    "self_attention": (
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        ("self_attn.out_proj",),
    ),
    "attention": (
        ("encoder_attn.q_proj",),
        ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        ("encoder_attn.out_proj",),
    ),
    "ffn": (("fc1",), ("fc2",)),
}
"""{sub-layer: for each of its linear layers the names of the matrices that it fuses}"""

_NORMS = {
    "self_attention": "self_attn_layer_norm",
    "attention": "encoder_attn_layer_norm",
    "ffn": "final_layer_norm",
}


def set_layers(model, arrays):
    """Moves the arrays of the layers, and of the norms after them, into the model."""

    def linear(side, number, sub_layer, index, inputs, outputs):
        parts = _LINEAR[sub_layer][index]
        names = [f"model.{side}.layers.{number}.{part}" for part in parts]
        outputs //= len(parts)
        return [
            (arrays.take(f"{n}.weight", outputs, inputs).T, arrays.take(f"{n}.bias", outputs))
            for n in names
        ]

    def norm(side, number, sub_layer):
        name = f"layers.{number}.{_NORMS[sub_layer]}" if sub_layer else "layer_norm"
        return (arrays.take(f"model.{side}.{name}.{x}", model_dim) for x in ("weight", "bias"))

    model_dim = model.config.model_dim
    weights.set_layers(model, alternating_channels(model_dim), linear, norm)


def drop_positions(model, config, arrays, suffix, first=0):
    """Removes stored position encodings, which older files contain, if they equal the model's.

    Args:
        model, config, arrays: `Transformer`, result of `read_config`, `Arrays`.
        suffix: the array's name after `embed_positions`.
        first: rows before the first position, which are not compared.

    Raises:
        InputError: if they differ.
    """
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.{suffix}"
        if name not in arrays:
            continue
        length, model_dim = config["max_position_embeddings"], config["d_model"]
        stored = arrays.take(name, length + first, model_dim)[
            first:, alternating_channels(model_dim)
        ]
        expected = model.source_positions.encode(np.arange(length), model_dim).numpy()
        if np.max(np.abs(stored - expected)) > 2e-3:  # float16
            raise InputError(
                f"{arrays.place}: {name} holds other positions than sinusoids: such models are not "
                "supported."
            )


EMBEDDINGS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
"""Names of the one matrix of a model that shares it."""
