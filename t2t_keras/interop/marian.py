"""MarianMT models (OPUS-MT), in Hugging Face's format, as a `Translator`.

Start with `load_marian`. Such a model is the paper's with biases in attention and logits
and, usually, another activation. Three differences concern only the order of numbers. Its
position encodings are all sines, then all cosines: `alternating_channels` orders the channels. Its
special tokens have other ids: `marian_tokenizer.py` permutes the vocabulary. Its padding is also
the decoder's first input: here these are two ids, and a bias of -10,000 bans both from the output;
Hugging Face bans its one id by `bad_words_ids`.

The score is log P / length^α; see `Translator` for the stopping rule. Probabilities leave out
padding, as with `renormalize_logits`; in folders without this field Hugging Face's scores include
padding. `</s>`, `<unk>` and `<pad>` within a text are plain text here; Hugging Face reads them as
tokens.
"""

import pathlib

import numpy as np

from t2t_keras.data.files import local_path
from t2t_keras.data.vocabulary_tokenizer import VocabularyTokenizer
from t2t_keras.errors import InputError
from t2t_keras.interop.hugging_face import (
    EMBEDDINGS,
    drop_positions,
    model_fields,
    read_config,
    read_search,
    read_weights,
    require_sizes,
    set_layers,
)
from t2t_keras.interop.marian_tokenizer import read_tokenizer, read_tokens
from t2t_keras.interop.weights import Arrays, alternating_channels
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator
from t2t_keras.types import StrPath

_FIXED = {
    "model_type": ["marian"],
    "encoder_layerdrop": [0],
    "decoder_layerdrop": [0],
}
"""As `hugging_face._FIXED`."""

_FLAGS = {
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}


def load_marian(folder: StrPath) -> Translator:
    """Loads a MarianMT (OPUS-MT) model.

    Args:
        folder: a folder as `save_pretrained` of Hugging Face writes it: config.json,
            model.safetensors, tf_model.h5 or pytorch_model.bin, also in shards, source.spm,
            target.spm, vocab.json, and if there are any generation_config.json,
            tokenizer_config.json, target_vocab.json, special_tokens_map.json.

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
    folder = pathlib.Path(local_path(folder))
    config = read_config(folder / "config.json", _FIXED, ["decoder_vocab_size"], _FLAGS)
    if config.get("decoder_vocab_size") is None:
        config["decoder_vocab_size"] = config["vocab_size"]
    tokenizer = read_tokenizer(folder)
    settings = read_search(
        folder, config, tokenizer["model_max_length"], banned=config["pad_token_id"]
    )
    tokens = read_tokens(folder, config, tokenizer)
    arrays = Arrays(*read_weights(folder))
    require_sizes(config, arrays)
    tied, shared = config["tie_word_embeddings"], config["share_encoder_decoder_embeddings"]
    if shared and not tied:
        raise InputError(
            f"{folder}/config.json: tie_word_embeddings is False and "
            "share_encoder_decoder_embeddings True: only a shared embedding that is also the "
            "output projection is supported."
        )
    model = Transformer(
        TransformerConfig(
            vocab_size=len(tokens.rows[1]),
            source_vocab_size=None if shared else len(tokens.rows[0]),
            embedding_sharing="all" if shared else "target" if tied else "none",
            **model_fields(config),
        )
    )
    drop_positions(model, config, arrays, "weight")
    _set_embeddings(model, config, tokens, arrays)
    set_layers(model, arrays)
    arrays.require_empty()
    return Translator(model, VocabularyTokenizer("vocabulary", tokens.packed), **settings)


def _set_embeddings(model, config, tokens, arrays):
    channels = alternating_channels(config["d_model"])
    model_dim, sizes = config["d_model"], (config["vocab_size"], config["decoder_vocab_size"])
    if config["share_encoder_decoder_embeddings"]:
        target = output = arrays.take_equal(EMBEDDINGS, sizes[1], model_dim)
    else:
        _, encoder, *names = EMBEDDINGS
        source = arrays.take(encoder, sizes[0], model_dim)
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
