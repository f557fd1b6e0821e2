"""Predictors of a few thousand random weights, with a real tokenizer, and what they give."""

import functools
import re

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import FIRST_WORD
from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.protection import WordAlignment
from t2t_keras.tasks.shortlist import Shortlist
from t2t_keras.tasks.translation import Translator

LINES = [
    "The old man sees a small dog.",
    "Der alte Mann sieht einen kleinen Hund.",
    "She does not know whether the train is coming.",
    "Sie weiß nicht, ob der Zug kommt.",
]

LABELS = ["bad", "süß", "so so"]

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
    transformer = _sharpened(Transformer(config), seed)
    # The bias of the last norm makes the end likely: some sentences end, some do not.
    last_bias = transformer.decoder.layers[-1].feed_forward_residual.norm.beta
    last_bias.assign(1.5 * transformer.embedding.matrix[tokenizer().eos_id])
    return transformer


def _sharpened(model, seed):
    """Returns a model with random matrices, so sharp that sentences and hypotheses differ."""
    rng = np.random.default_rng(seed)
    for matrix in (w for w in model.weights if len(w.shape) > 1):
        matrix.assign(rng.normal(0, 0.5, matrix.shape))
    return model


def classifier_model(seed=1, **overrides):
    sizes = {"num_encoder_layers": 1, "model_dim": 16, "feed_forward_dim": 24, "num_heads": 2}
    config = TransformerConfig(tokenizer().vocab_size, **(sizes | overrides))
    return _sharpened(TransformerClassifier(config, len(LABELS)), seed)


def classifier(window=None, labels=LABELS, **settings):
    return Classifier(classifier_model(attention_window=window), tokenizer(), labels, **settings)


def shortlist(k=4, common=(), seed=0):
    """Random targets of each source id, beside bytes and special tokens."""
    vocab = tokenizer().vocab_size
    table = np.random.default_rng(seed).integers(FIRST_WORD, vocab, (vocab, k), np.int32)
    table[0] = 0
    common = np.union1d(np.arange(FIRST_WORD), common).astype(np.int32)
    return Shortlist(table, common, tokenizer().fingerprint())


def log_p(model, labels, source=None):
    """Returns log P of each label, float32 [length], by the model's logits of all positions."""
    inputs = {"target_ids": tf.constant([[tokenizer().bos_id, *labels[:-1]]])}
    if source is not None:
        inputs["source_ids"] = tf.constant([source])
    return tf.nn.log_softmax(model(inputs)[0]).numpy()[range(len(labels)), labels]


def word_alignment(sources, targets, pairs=None):
    """The `WordAlignment` of words and of other marks; the last tokens have none.

    Args: sources and targets, str; pairs, {target's word: source's word} of each; None: the same.
    """
    starts_and_ends, spans = [], []
    for row, texts in enumerate(zip(sources, targets, strict=True)):
        source, target = (
            [word.span() for word in re.finditer(r"[一-鿿]|\w+|[^\w\s]", text)] for text in texts
        )
        known = dict(enumerate(range(len(source)))) if pairs is None else pairs[row]
        starts_and_ends.append([*target, (0, 0)])
        spans.append([source[known[n]] if n in known else (0, 0) for n in range(len(target) + 1)])
    ends, spans = (
        tf.ragged.constant(x, tf.int32, ragged_rank=1, inner_shape=(2,)).to_tensor()
        for x in (starts_and_ends, spans)
    )
    return WordAlignment(ends[..., 0], ends[..., 1], spans)


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
