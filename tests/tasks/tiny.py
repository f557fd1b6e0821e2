"""A translator of a few thousand random weights, with a real tokenizer."""

import functools

import numpy as np

from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator

LINES = [
    "The old man sees a small dog.",
    "Der alte Mann sieht einen kleinen Hund.",
    "She does not know whether the train is coming.",
    "Sie weiß nicht, ob der Zug kommt.",
]

ODD = [
    "The dog.",
    "",
    "   ",
    "😀 ꙮ \u202eright to left\u202c e\u0301\u0000\x07",
    "word " * 700,
    "Der Hund, der Zug und der alte Mann!",
]


@functools.cache
def tokenizer(kind="bpe"):
    return train_tokenizer(kind, LINES * 3, 330)


def model(seed=1, **overrides):
    sizes = {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "model_dim": 16,
        "feed_forward_dim": 24,
    }
    config = TransformerConfig(tokenizer().vocab_size, num_heads=2, **(sizes | overrides))
    transformer = Transformer(config)
    rng = np.random.default_rng(seed)
    matrices = [w for w in transformer.weights if len(w.shape) > 1]
    for matrix in matrices:  # sharp enough that sentences and hypotheses differ
        matrix.assign(rng.normal(0, 0.5, matrix.shape))
    # The bias of the last norm makes the end likely: some sentences end, some do not.
    last_bias = transformer.decoder.layers[-1].feed_forward_residual.norm.beta
    last_bias.assign(1.5 * transformer.embedding.matrix[tokenizer().eos_id])
    return transformer


def multilingual_translator(**template):
    """A translator whose last three tokens are the languages de, en and fr.

    Args: those of `LanguageTemplate` beside the ids.
    """
    trained = train_tokenizer(
        "bpe", LINES * 3, tokenizer().vocab_size, languages=["de", "en", "fr"]
    )
    languages = LanguageTemplate(trained.languages.ids, **template)
    own = type(trained)("bpe", trained.model_bytes, languages=languages)
    return Translator(model(), own, max_extra_tokens=8, max_source_length=40)


def translator(seed=1, kind="bpe", **settings):
    return Translator(
        model(seed),
        tokenizer(kind),
        **({"max_extra_tokens": 8, "max_source_length": 40} | settings),
    )
