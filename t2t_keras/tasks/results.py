"""Results of a translator: translations in Python, and those of a batch in a graph, as tensors.

With the records of a search each token has its text, its log P and its source.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.tasks.text_io import as_str


class Translation(NamedTuple):
    """One translation of one sentence.

    Attributes:
        text: str.
        score: float, log P / length penalty: higher is better, 0 is certain. If a sentence has no
            further translation, the text is empty and the score -inf.
    """

    text: str
    score: float


class TranslationBatch(NamedTuple):
    """The translations of a batch, as tensors."""

    texts: tf.Tensor  # string [batch, n_best], best first
    scores: tf.Tensor  # float32 [batch, n_best]; -inf if a sentence has no further translation
    # bool [batch], whether the source was longer than the translator's limit, or the prefix longer
    # than the longest translation
    truncated: tf.Tensor


class TranslatedToken(NamedTuple):
    """A token of a translation.

    Attributes:
        start, end: int, its part of the translation, `text[start:end]` in characters (Unicode code
            points); 0, 0 for the end token and a language token.
        log_probability: float, natural logarithm of its probability, given the tokens before it.
        source_start, source_end: int, the part of the source that it attends to most, as in
            `align`; 0, 0 for the end token and a language token.
    """

    start: int
    end: int
    log_probability: float
    source_start: int
    source_end: int


class DetailedTranslation(NamedTuple):
    """A `Translation` with its tokens.

    Attributes:
        text, score: as of `Translation`; log P is the sum over the tokens.
        tokens: list of `TranslatedToken`, the end token last unless the maximum length cut it off.
    """

    text: str
    score: float
    tokens: list


class TokenTranslations(NamedTuple):
    """The translations of a batch with their tokens, as tensors.

    Spans are begin and end in characters, 0, 0 for the end, a language's token, padding, and for
    `source_spans` if the source has no characters.
    """

    texts: tf.Tensor  # string [batch, n_best], best first
    scores: tf.Tensor  # float32 [batch, n_best]; -inf if a sentence has no further translation
    lengths: tf.Tensor  # int32 [batch, n_best], tokens of each translation, its end included
    spans: tf.Tensor  # int32 [batch, n_best, length, 2], of each token in its translation
    log_probabilities: tf.Tensor  # float32 [batch, n_best, length], of each token; 0 on padding
    source_spans: tf.Tensor  # int32 [batch, n_best, length, 2], that each token attends to most
    truncated: tf.Tensor  # bool [batch], as in `TranslationBatch`


def describe_tokens(hypotheses, source, tokenizer, truncated):
    """Returns the `TokenTranslations` of `Hypotheses` [batch, n_best] that have `TokenRecords`.

    Args: source, the `TokenOffsets` of the sources, dense; tokenizer, that of the targets.
    """
    batch, n_best, length = tf.unstack(tf.shape(hypotheses.ids))
    flat = tf.reshape(hypotheses.ids, [batch * n_best, length])
    texts, *offsets = tokenizer.decode_with_offsets(flat)
    spans = tf.reshape(tf.stack(offsets, axis=2), [batch, n_best, length, 2])
    records = hypotheses.records
    sources, ids = (tf.reshape(x, [batch, -1]) for x in (records.sources, hypotheses.ids))
    in_source = source_spans(sources, source, ids, tokenizer)
    return TokenTranslations(
        tf.reshape(texts, [batch, n_best]),
        hypotheses.scores,
        hypotheses.lengths,
        spans,
        records.log_probabilities(hypotheses.lengths),
        tf.reshape(in_source, [batch, n_best, length, 2]),
        truncated,
    )


def source_spans(positions, source, ids, tokenizer):
    """Returns the characters of the source positions of a target's ids, int32 [batch, target, 2].

    They are 0, 0 for the end, a language and padding; source: dense `TokenOffsets`.
    """
    has_span = ops.is_token(ids) & (ids != tokenizer.eos_id)
    if getattr(tokenizer, "languages", None) is not None:
        has_span &= ~tokenizer.languages.is_language(ids)
    spans = tf.stack([source.starts, source.ends], axis=2)  # [batch, source, 2]
    spans = tf.gather(spans, positions, batch_dims=1)
    return tf.where(has_span[..., tf.newaxis], spans, 0)


def detailed_translations(outputs):
    """Returns the outputs of `n_best_tokens`, {name: tensor}, as lists of `DetailedTranslation`."""
    names = ("translations", "scores", "tokens", "spans", "log_probabilities", "source_spans")
    columns = [outputs[name].numpy() for name in names]
    return [
        [_detailed(*hypothesis) for hypothesis in zip(*row, strict=True)]
        for row in zip(*columns, strict=True)
    ]


def _detailed(text, score, length, spans, log_probabilities, source_spans):
    tokens = [
        TranslatedToken(*map(int, span), float(log_probability), *map(int, source_span))
        for span, log_probability, source_span in zip(
            spans[:length], log_probabilities[:length], source_spans[:length], strict=True
        )
    ]
    return DetailedTranslation(as_str(text), float(score), tokens)
