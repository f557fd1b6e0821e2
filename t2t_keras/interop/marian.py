"""MarianMT models (OPUS-MT), in Hugging Face's format, as a `Translator`.

`load_marian` is the place to start. Such a model is the paper's with biases in the attention, a
bias of the logits and, mostly, another activation. Three things differ in form only. Its position
encodings hold all sines and then all cosines: `alternating_channels` orders the channels. Its
special ids are elsewhere: `marian_tokenizer.py` permutes the vocabulary. Its padding is also the
decoder's first input: here these are two ids, and both are banned from the output by a bias of
-10,000, where Hugging Face bans its one by `bad_words_ids`.

An unsupported field of a folder is an error that names it, and so is a token that the tokenizer's
files add to those of vocab.json. The search is that of `generation_config.json`, or of config.json
where there is none, with Hugging Face's defaults (one beam, 20 tokens) for what it leaves out. Its
score is log P / length^α; see `Translator` for where it stops. Probabilities are those of
`renormalize_logits`, which leave out padding; in folders without this field Hugging Face's scores
include its probability. `</s>`, `<unk>` and `<pad>` within a text are text here, and tokens there.
"""

import pathlib

import numpy as np

from t2t_keras.data.vocabulary_tokenizer import VocabularyTokenizer
from t2t_keras.errors import InputError
from t2t_keras.interop.files import read_json, require_flag, require_known, require_number
from t2t_keras.interop.marian_tokenizer import MAX_POSITIONS, read_tokenizer, read_tokens
from t2t_keras.interop.weights import (
    Arrays,
    alternating_channels,
    read_safetensors,
    read_torch,
    set_linear,
    set_norm,
)
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}

_SIZES = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "vocab_size",
    "max_position_embeddings",
)

_DEFAULT_NEW_TOKENS = 20  # of Hugging Face's search

_FIXED = {
    "model_type": ["marian"],
    "is_encoder_decoder": [True],
    "is_decoder": [False],
    "add_cross_attention": [False],
    "normalize_before": [False],
    "normalize_embedding": [False],
    "add_final_layer_norm": [False],
    "add_bias_logits": [False],
    "static_position_embeddings": [True],
    "do_blenderbot_90_layernorm": [False],
    "encoder_layerdrop": [0],
    "decoder_layerdrop": [0],
    "pruned_heads": [{}],
    "quantization_config": [None],
    "chunk_size_feed_forward": [0],
    "tie_encoder_decoder": [False],
}
"""Fields of config.json, where it has them, that change the model, and the values it may have."""

_READ = {
    "activation_dropout",
    "activation_function",
    "attention_dropout",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_start_token_id",
    "decoder_vocab_size",
    "dropout",
    "eos_token_id",
    "pad_token_id",
    "scale_embedding",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    *_SIZES,
}
_WITHOUT_EFFECT = {
    "architectures",
    "bos_token_id",
    "classif_dropout",
    "classifier_dropout",
    "dtype",
    "extra_pos_embeddings",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "init_std",
    "label2id",
    "language_pair",
    "num_hidden_layers",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "prefix",
    "problem_type",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
}
"""Fields that do not affect translation; nor do fields that begin with an underscore."""

_SEARCH = {
    "num_beams",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "bad_words_ids",
    "forced_eos_token_id",
    # These change samples only.
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
}
_FIXED_SEARCH = {
    "do_sample": [False],
    "early_stopping": [False, True, "never"],
    "renormalize_logits": [False, True],
    "min_length": [0],
    "num_beam_groups": [1],
    "diversity_penalty": [0],
    "repetition_penalty": [1],
    "encoder_repetition_penalty": [1],
    "no_repeat_ngram_size": [0],
    "encoder_no_repeat_ngram_size": [0],
    "num_return_sequences": [1],
    "remove_invalid_values": [False, True],
    "cache_implementation": [None, "static", "dynamic"],
    "output_scores": [False, True],
    "output_logits": [False, True],
    "output_attentions": [False, True],
    "output_hidden_states": [False, True],
}
"""{field of generation_config.json: the values that are supported}"""


def load_marian(folder):
    """Loads a MarianMT (OPUS-MT) model.

    Args:
        folder: a folder as `save_pretrained` of Hugging Face writes it: config.json,
            model.safetensors or pytorch_model.bin, source.spm, target.spm, vocab.json, and where
            the model has them generation_config.json, tokenizer_config.json, target_vocab.json,
            special_tokens_map.json.

    Returns:
        `Translator` with the search that the folder describes.

    Raises:
        InputError: if a file is missing or damaged, files do not fit together, or a field of the
            folder is not supported.

    Example:
        >>> translator = t2t.load_marian("opus-mt-en-de")  # doctest: +SKIP
        >>> translator(["Hello world."])  # doctest: +SKIP
        ['Hallo Welt.']
    """
    folder = pathlib.Path(folder)
    config = _read_config(folder / "config.json")
    tokenizer = read_tokenizer(folder)
    settings = _read_search(folder, config, tokenizer)
    tokens = read_tokens(folder, config, tokenizer)
    arrays = Arrays(*_read_weights(folder))
    _require_sizes(config, arrays)
    model = _make_model(config, tokens)
    _set_weights(model, config, tokens, arrays)
    arrays.require_empty()
    return Translator(model, VocabularyTokenizer("vocabulary", tokens.pack()), **settings)


# Configuration -----------------------------------------------------------------------------------


def _read_config(path):
    """Returns the fields of config.json, defaults included, checked."""
    config = read_json(path)
    require_known(config, path, _FIXED, _READ | _WITHOUT_EFFECT | _SEARCH | set(_FIXED_SEARCH))
    for name in (*_SIZES, "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        value = config.get(name)
        if type(value) is not int or value < (name in _SIZES):
            raise InputError(f"{path}: {name} is {value!r}: a whole number is needed.")
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
    if config.get("activation_function") not in list(_ACTIVATIONS):  # it may be unhashable
        raise InputError(
            f"{path}: activation_function is {config.get('activation_function')!r}: only "
            f"{', '.join(_ACTIVATIONS)} are supported."
        )
    if config["d_model"] % 2 or config["d_model"] % config["encoder_attention_heads"]:
        raise InputError(
            f"{path}: d_model is {config['d_model']} for {config['encoder_attention_heads']} heads:"
            " only an even multiple of the heads is supported."
        )
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        require_number(path, name, config.setdefault(name, 0.0))
    flags = {
        "scale_embedding": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    }
    for name, default in flags.items():
        require_flag(path, name, config.setdefault(name, default))
    if config.get("decoder_vocab_size") is None:
        config["decoder_vocab_size"] = config["vocab_size"]
    return config


def _read_search(folder, config, tokenizer):
    """Returns the arguments of `Translator`."""
    path = folder / "generation_config.json"
    if path.exists():
        fields = read_json(path)
    else:
        names = _SEARCH | set(_FIXED_SEARCH)
        path, fields = folder / "config.json", {name: config.get(name) for name in names}
    fields = {name: value for name, value in fields.items() if value is not None}
    ids = ("eos_token_id", "pad_token_id", "decoder_start_token_id")
    require_known(fields, path, _FIXED_SEARCH, _SEARCH | _WITHOUT_EFFECT | set(ids))
    expected = {name: config[name] for name in ids}
    expected["forced_eos_token_id"] = config["eos_token_id"]
    for name, value in expected.items():
        if fields.get(name, value) not in (value, [value]):
            raise InputError(f"{path}: {name} is {fields[name]!r}, and in config.json {value}.")
    if fields.get("bad_words_ids", [[config["pad_token_id"]]]) != [[config["pad_token_id"]]]:
        raise InputError(
            f"{path}: bad_words_ids is {fields['bad_words_ids']}: only that of padding, "
            f"[[{config['pad_token_id']}]], is supported."
        )
    for name in ("num_beams", "max_length", "max_new_tokens"):
        if type(fields.get(name, 1)) is not int or fields.get(name, 1) < 1:
            raise InputError(f"{path}: {name} is {fields[name]!r}: a whole number is needed.")
    length_penalty = fields.get("length_penalty", 1.0)
    require_number(path, "length_penalty", length_penalty)
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
        "max_source_length": int(min(tokenizer["model_max_length"], longest)),
    }


# Weights -----------------------------------------------------------------------------------------


def _read_weights(folder):
    """Returns the arrays of a folder, and the name of their file."""
    for name, read in (("model.safetensors", read_safetensors), ("pytorch_model.bin", read_torch)):
        if (folder / name).exists():
            return read(folder / name), str(folder / name)
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / f"{name}.index.json").exists():
            raise InputError(
                f"{folder} has {name} in shards, which are not supported: save the model again "
                'with save_pretrained(folder, max_shard_size="100GB").'
            )
    raise InputError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")


def _require_sizes(config, arrays):
    """Refuses sizes that are not those of the arrays, before a model of such sizes is made."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.layers."
        found, expected = arrays.count(name), config[f"{side}_layers"]
        if found != expected:
            raise InputError(
                f"{arrays.place} has {found} layers {name}*, and config.json says {expected}."
            )
        arrays.shape(f"{name}0.fc1.weight", config["encoder_ffn_dim"], config["d_model"])


def _make_model(config, tokens):
    tied = config["tie_word_embeddings"]
    shared = config["share_encoder_decoder_embeddings"]
    if shared and not tied:
        raise InputError(
            "config.json: tie_word_embeddings is False and share_encoder_decoder_embeddings True: "
            "only a shared embedding that is also the output projection is supported."
        )
    return Transformer(
        TransformerConfig(
            vocab_size=len(tokens.rows[1]),
            source_vocab_size=None if shared else len(tokens.rows[0]),
            num_encoder_layers=config["encoder_layers"],
            num_decoder_layers=config["decoder_layers"],
            model_dim=config["d_model"],
            feed_forward_dim=config["encoder_ffn_dim"],
            num_heads=config["encoder_attention_heads"],
            dropout=config["dropout"],
            attention_dropout=config["attention_dropout"],
            activation_dropout=config["activation_dropout"],
            norm_epsilon=1e-5,
            activation=_ACTIVATIONS[config["activation_function"]],
            attention_bias=True,
            embedding_sharing="all" if shared else "target" if tied else "none",
            scale_embedding=config["scale_embedding"],
            output_bias=True,
        )
    )


def _set_weights(model, config, tokens, arrays):
    """Moves the arrays into the model."""
    model_dim, channels = config["d_model"], alternating_channels(config["d_model"])
    _drop_positions(arrays, config, channels)
    _set_embeddings(model, config, tokens, arrays, channels)

    def linear(name, outputs, inputs):
        weight = arrays.take(f"{name}.weight", outputs, inputs)
        return weight.T, arrays.take(f"{name}.bias", outputs)

    def set_attention(name, inputs, output):
        """Sets projections: `inputs` is {layer: names of the projections that it fuses}."""
        for layer, parts in inputs.items():
            projections = [linear(f"{name}.{part}_proj", model_dim, model_dim) for part in parts]
            set_linear(layer, projections, rows=channels)
        set_linear(output, [linear(f"{name}.out_proj", model_dim, model_dim)], columns=channels)

    def set_residual(residual, name):
        gamma, beta = (arrays.take(f"{name}.{part}", model_dim) for part in ("weight", "bias"))
        set_norm(residual.norm, gamma, beta, channels)

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            name = f"model.{side}.layers.{number}"
            attention = layer.attention if side == "encoder" else layer.self_attention
            set_attention(
                f"{name}.self_attn", {attention.qkv_projection: "qkv"}, attention.output_projection
            )
            residual = layer.attention_residual if side == "encoder" else layer.self_residual
            set_residual(residual, f"{name}.self_attn_layer_norm")
            if side == "decoder":
                cross = layer.cross_attention
                inputs = {cross.query_projection: "q", cross.kv_projection: "kv"}
                set_attention(f"{name}.encoder_attn", inputs, cross.output_projection)
                set_residual(layer.cross_residual, f"{name}.encoder_attn_layer_norm")
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            feed_forward_dim = config["encoder_ffn_dim"]
            set_linear(inner, [linear(f"{name}.fc1", feed_forward_dim, model_dim)], rows=channels)
            part = linear(f"{name}.fc2", model_dim, feed_forward_dim)
            set_linear(outer, [part], columns=channels)
            set_residual(layer.feed_forward_residual, f"{name}.final_layer_norm")


def _set_embeddings(model, config, tokens, arrays, channels):
    model_dim, sizes = config["d_model"], (config["vocab_size"], config["decoder_vocab_size"])
    encoder, decoder = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    if config["share_encoder_decoder_embeddings"]:
        names = ["model.shared.weight", encoder, decoder, "lm_head.weight"]
        target = output = arrays.take_equal(names, sizes[1], model_dim)
    else:
        source = arrays.take_equal([encoder], sizes[0], model_dim)
        names = [decoder, "lm_head.weight"]
        if config["tie_word_embeddings"]:
            target = output = arrays.take_equal(names, sizes[1], model_dim)
        else:
            target, output = (arrays.take(name, sizes[1], model_dim) for name in names)
        model.source_embedding.matrix.assign(source[tokens.rows[0]][:, channels])
    rows = tokens.rows[1]
    model.embedding.matrix.assign(target[rows][:, channels])
    model.output_projection.matrix.assign(output[rows][:, channels])
    bias = np.zeros([1, sizes[1]], np.float32)
    if "final_logits_bias" in arrays:
        bias = arrays.take("final_logits_bias", 1, sizes[1])
    bias = np.where(tokens.banned, tokens.banned, bias[0, rows])
    model.output_projection.bias.assign(bias)


def _drop_positions(arrays, config, channels):
    """Takes stored position encodings, which older files have, if they are those of the formula."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if name not in arrays:
            continue
        length = config["max_position_embeddings"]
        found = arrays.take(name, length, config["d_model"])[:, channels]
        expected = SinusoidalPositions().encode(np.arange(length), config["d_model"]).numpy()
        if np.max(np.abs(found - expected)) > 2e-3:  # float16
            raise InputError(f"{name} holds other positions than the sinusoids of the paper.")
