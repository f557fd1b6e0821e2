"""M2M-100, NLLB-200 and SMaLL-100 models, in Hugging Face's format, as a `Translator`.

Start with `load_m2m100`. Such a model is a pre-norm Transformer with biases in the attention and
fairseq's sinusoids; one matrix embeds all languages and gives the logits. Two differences concern
only the order: `alternating_channels` orders the channels of its positions, and
`m2m100_tokenizer.py` its vocabulary. The model's padding token can be an output and counts in its
softmax, so it gets a second id here that is not masked. The model's end token is also the first
input of the decoder, so it also gets a second id, that of the start.

The first token of a target is its language, which is certain. A score is log P / length^α; the
length includes this token and log P does not, as in Hugging Face with `forced_bos_token_id`. See
`marian.py` for the rest of the search.
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
from t2t_keras.interop.m2m100_tokenizer import TEMPLATES, read_tokenizer, read_tokens, template_of
from t2t_keras.interop.weights import BANNED, Arrays, alternating_channels
from t2t_keras.layers.variants.positions import FairseqSinusoidalPositions
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator
from t2t_keras.types import StrPath

_FIXED = {
    "model_type": ["m2m_100"],
    "normalize_before": [True],
    "add_final_layer_norm": [True],
    "share_encoder_decoder_embeddings": [True],
    "tie_word_embeddings": [True],
}
"""As `hugging_face._FIXED`."""

_LAYERDROP = ("encoder_layerdrop", "decoder_layerdrop")  # of training alone


def load_m2m100(folder: StrPath, template: str | None = None) -> Translator:
    """Loads an M2M-100, NLLB-200 (dense) or SMaLL-100 model.

    Args:
        folder: a folder as `save_pretrained` of Hugging Face writes it: config.json,
            model.safetensors, tf_model.h5 or pytorch_model.bin, also in shards,
            sentencepiece.bpe.model, for M2M-100 vocab.json, and if there are any
            generation_config.json, tokenizer_config.json, special_tokens_map.json, tokenizer.json,
            added_tokens.json.
        template: "m2m100" (source and target each begin with their own language) or "small100"
            (the source begins with the target language); None: "small100" if the folder contains
            tokenization_small100.py or names its tokenizer, else "m2m100".

    Returns:
        `Translator` with the search that the folder describes.

    Raises:
        InputError: if a file is missing or damaged, files do not fit together, or a field of the
            folder is not supported.

    Example:
        >>> translator = t2t.load_m2m100("nllb-200-distilled-600M")  # doctest: +SKIP
        >>> translator(
        ...     ["Hello."], source_language="eng_Latn", target_language="deu_Latn"
        ... )  # doctest: +SKIP
        ['Hallo.']
    """
    folder = pathlib.Path(local_path(folder))
    config = read_config(folder / "config.json", _FIXED, _LAYERDROP, {"scale_embedding": True})
    settings = read_tokenizer(folder)
    template = template_of(folder, settings) if template is None else template
    if template not in TEMPLATES:
        raise InputError(f"template is {template!r}: give one of {', '.join(TEMPLATES)}.")
    arrays = Arrays(*read_weights(folder))
    require_sizes(config, arrays)
    first = next((name for name in EMBEDDINGS if name in arrays), EMBEDDINGS[0])
    arrays.shape(first, config["vocab_size"], config["d_model"])
    tokens = read_tokens(folder, config, settings, template)
    search = read_search(
        folder, config, settings["model_max_length"], first_ids=tokens.language_rows
    )
    FairseqSinusoidalPositions().build((None, None, config["d_model"]))  # refuses the width, or not
    model = Transformer(
        TransformerConfig(
            vocab_size=len(tokens.rows),
            position_embedding="fairseq_sinusoidal",
            norm="pre",
            **model_fields(config),
        )
    )
    # Row 0 is that of padding, rows 1 and 2 of position 0 and before.
    drop_positions(
        model, config, arrays, "weights", first=FairseqSinusoidalPositions.first_position
    )
    matrix = arrays.take_equal(EMBEDDINGS, config["vocab_size"], config["d_model"])
    channels = alternating_channels(config["d_model"])
    model.embedding.matrix.assign(matrix[np.ix_(tokens.rows, channels)])
    del matrix
    bias = np.zeros(len(tokens.rows), np.float32)
    bias[[0, 3]] = BANNED
    model.output_bias.assign(bias)
    set_layers(model, arrays)
    arrays.require_empty()
    tokenizer = VocabularyTokenizer("vocabulary", tokens.packed, languages=tokens.languages)
    return Translator(model, tokenizer, **search)
