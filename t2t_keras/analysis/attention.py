"""Attention of a trained translator: of one sentence, over a corpus, and as word alignment.

`sentence_attention` gives all weights of one sentence and its translation, with the tokens' names;
`plots.py` draws them. `head_statistics` measures each head over a corpus: entropy and distance of
its attention, and weights of single positions. `align_texts` aligns source words with target words
by cross-attention, in Pharaoh format: one line for each pair of sentences, `i-j` for source word i
and target word j, counted from 0. A word is a run of characters between ASCII spaces.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.base_tokenizer import TokenOffsets
from t2t_keras.data.batching import shift_right
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import as_str, language_codes
from t2t_keras.tasks.translation import Translator

_SPECIAL = {"</s>": "end", "<s>": "start", "<unk>": "unknown", "<pad>": "padding"}


class AttentionMap(NamedTuple):
    """One kind of attention."""

    name: str  # such as "encoder self-attention"
    queries: list[str]  # tokens that attend: the rows
    keys: list[str]  # tokens attended to: the columns
    weights: np.ndarray  # float32 [layers, heads, query, key], each row sums to 1


class SentenceAttention(NamedTuple):
    """All attention of a model for one pair of texts."""

    encoder: AttentionMap  # source to source
    decoder: AttentionMap  # its input (start token and target without its end) to itself
    cross: AttentionMap  # decoder to source; row t predicts target token t


def sentence_attention(
    translator: Translator,
    text: str,
    translation: str,
    source_language: str | None = None,
    target_language: str | None = None,
) -> SentenceAttention:
    """Returns all attention of a text and any translation of it; languages as for a translator."""
    tokenizer = translator.tokenizer
    languages = source_language, target_language
    [batch] = _batches(translator, [text], [translation], 1, languages)

    def tokens(tokenizer, ids):
        return [as_str(token) for token in tokenizer.pieces(ids[0]).numpy()]

    source = tokens(tokenizer, batch.source.ids)
    shifted_ids = shift_right(batch.target.ids, tokenizer.bos_id)
    target, shifted = (tokens(tokenizer.target, ids) for ids in (batch.target.ids, shifted_ids))
    encoder, decoder, cross = (weights[0].numpy() for weights in batch.weights)
    return SentenceAttention(
        AttentionMap("encoder self-attention", source, source, encoder),
        AttentionMap("decoder self-attention", shifted, shifted, decoder),
        AttentionMap("cross-attention", target, source, cross),
    )


class _Batch(NamedTuple):
    sides: list  # lists of the texts and of the translations
    source: TokenOffsets
    target: TokenOffsets
    weights: Any  # what the model returns: encoder, decoder, cross


def _batches(translator, texts, translations, batch_size, languages):
    """Yields the attention of a model for batches of pairs, `_Batch`es.

    Raises InputError if there is not one translation for each text.
    """
    if len(texts) != len(translations):
        raise InputError(
            f"there are {len(texts)} texts and {len(translations)} translations: give one "
            "translation for each text."
        )
    for begin in range(0, len(texts), batch_size):
        sides = [side[begin : begin + batch_size] for side in (texts, translations)]
        codes = language_codes(translator.languages, len(sides[0]), *languages)
        readers, first = (translator.sources, translator.targets), translator.first_ids(*codes)
        source, target = (
            reader.encode_with_offsets(tf.constant(side), ids)
            for reader, side, ids in zip(readers, sides, first, strict=True)
        )
        decoder_ids = shift_right(target.ids, translator.tokenizer.bos_id)
        inputs = {"source_ids": source.ids, "target_ids": decoder_ids}
        _, weights = translator.model(inputs, return_attention_weights=True)
        yield _Batch(sides, source, target, weights)


def readable(token):
    """Returns a token as plots show it, without the marks of a word's beginning or middle."""
    if token in _SPECIAL:
        return _SPECIAL[token]
    letters = re.sub("^▁|^##(?=.)", "", token).replace("▁", " ")
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in letters)
    return shown.strip() or "space"


class HeadStatistics(NamedTuple):
    """Means over all query positions, the end token included; float64 [layers, heads].

    Attributes:
        entropy: of the weights, in nats: 0 if one position has all weight, log n if n are equal.
        distance: mean of |i - j| between query i and key j, weighted by attention.
        previous, same, next: weight on the positions i - 1, i and i + 1.
    """

    entropy: np.ndarray
    distance: np.ndarray
    previous: np.ndarray
    same: np.ndarray
    next: np.ndarray


def row_statistics(weights):
    """Computes `HeadStatistics` for each row, float64 [..., query], instead of means.

    Args:
        weights: float [..., query, key], each row sums to 1.
    """
    weights = np.asarray(weights, np.float64)
    queries, keys = weights.shape[-2:]
    offsets = np.arange(keys) - np.arange(queries)[:, np.newaxis]  # [query, key]
    logs = np.log(np.where(weights > 0, weights, 1.0))

    def weight_at(offset):
        return np.sum(weights * (offsets == offset), axis=-1)

    return HeadStatistics(
        entropy=-np.sum(weights * logs, axis=-1),
        distance=np.sum(weights * np.abs(offsets), axis=-1),
        previous=weight_at(-1),
        same=weight_at(0),
        next=weight_at(1),
    )


def head_statistics(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[str],
    batch_size: int = 32,
    source_language: str | None = None,
    target_language: str | None = None,
) -> dict[str, HeadStatistics]:
    """Measures the heads of a model over a corpus: {"encoder", "decoder", "cross": statistics}.

    The languages are codes for all texts, as in a call of a `Translator`.

    Raises:
        InputError: if there are no pairs, or the lists have different lengths.
    """
    if not texts:
        raise InputError("there are no texts: give at least one text, and its translation.")
    sums, counts = {}, {}
    languages = source_language, target_language
    for batch in _batches(translator, texts, translations, batch_size, languages):
        # Rows of padding do not count. Real rows never attend to padding.
        queries = {"encoder": batch.source, "decoder": batch.target, "cross": batch.target}
        for name, located in queries.items():
            rows = row_statistics(getattr(batch.weights, name))  # [batch, layers, heads, query]
            mask = ops.is_token(located.ids).numpy()[:, np.newaxis, np.newaxis].astype(np.float64)
            totals = [np.sum(values * mask, axis=(0, 3)) for values in rows]
            sums[name] = np.add(sums.get(name, 0.0), totals)
            counts[name] = counts.get(name, 0) + mask.sum()
    return {name: HeadStatistics(*(sums[name] / counts[name])) for name in sums}


def words_of_tokens(text, starts, ends):
    """Returns the index of each token's word, int [tokens]; -1 for a token without characters.

    Only the ASCII space separates words, as for Marian: a no-break or ideographic space is part of
    its word. A token's characters in the text are those from `starts` up to `ends`, int [tokens].
    """
    words, index, inside = [], -1, False
    for character in text:  # the word that each character belongs to
        index += character != " " and not inside
        inside = character != " "
        words.append(index if inside else -1)
    # A token may begin with the space before its word.
    return np.array(
        [max(words[begin:end], default=-1) for begin, end in zip(starts, ends, strict=True)], int
    )


def align_words(
    weights: np.ndarray,
    source_words: np.ndarray | Sequence[int],
    target_words: np.ndarray | Sequence[int],
) -> list[tuple[int, int]]:
    """Aligns each target word with the source word that its tokens attend to most.

    Args:
        weights: float [target, source], attention between tokens.
        source_words, target_words: int [tokens], each token's word, -1 for none.

    Returns:
        Sorted (source word, target word), one for each target word; none without source words.
    """
    sources, targets = (
        (words[:, np.newaxis] == np.arange(words.max(initial=-1) + 1)).astype(np.float64)
        for words in (np.asarray(source_words), np.asarray(target_words))
    )  # [tokens, words]
    by_words = targets.T @ weights @ sources  # [target words, source words]
    if not by_words.shape[1]:
        return []
    return sorted((int(source), target) for target, source in enumerate(by_words.argmax(axis=1)))


def pharaoh(pairs):
    """Returns pairs of word indices as a line, `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def align_texts(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[str],
    layer: int = -1,
    batch_size: int = 32,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Iterator[list[tuple[int, int]]]:
    """Yields the word alignment of each text and its translation.

    The weights are the mean over the heads of a decoder layer; negative ones count from the last.
    Weight on the source's end token is ignored. The languages are as for `head_statistics`.

    Yields:
        Sorted lists of (source word, target word).

    Raises:
        InputError: if the decoder has no such layer, or the lists have different lengths.
    """
    layers = translator.model.config.num_decoder_layers
    if not -layers <= layer < layers:
        raise InputError(f"layer is {layer}: give one from {-layers} to {layers - 1}.")
    languages = source_language, target_language
    for batch in _batches(translator, texts, translations, batch_size, languages):
        cross = batch.weights.cross[:, layer]  # [batch, heads, target, source]
        weights = tf.reduce_mean(cross, axis=1).numpy()
        for row, pair in enumerate(zip(*batch.sides, strict=True)):
            words = (
                words_of_tokens(text, located.starts[row].numpy(), located.ends[row].numpy())
                for text, located in zip(pair, (batch.source, batch.target), strict=True)
            )
            yield align_words(weights[row], *words)
