"""Which word of a source each word of its translation comes from, by cross-attention.

A word is what stands between spaces. Alignments are in Pharaoh format: one line a pair of
sentences, `i-j` for each pair of a source word i and a target word j, counted from 0.
"""

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.tasks.scoring import shifted_right


def words_of_pieces(text, begins, ends):
    """Returns the number of each piece's word, int [pieces]; -1 for a piece without characters.

    Args:
        text: str.
        begins: int [pieces], the piece's first character in the text.
        ends: int [pieces], the one after its last.
    """
    words, number, inside = [], -1, False
    for character in text:  # the number of the word that each character belongs to
        number += not character.isspace() and not inside
        inside = not character.isspace()
        words.append(number if inside else -1)
    # A piece may begin with the space before its word.
    return np.array(
        [max(words[begin:end], default=-1) for begin, end in zip(begins, ends, strict=True)], int
    )


def align_words(weights, source_words, target_words):
    """Aligns each target word with the source word that its pieces look at most.

    Args:
        weights: float [target, source], attention between pieces.
        source_words: int [source], each piece's word, -1 for none.
        target_words: int [target], likewise.

    Returns:
        Sorted list of (source word, target word), one for each target word; empty if there are no
        source words.
    """
    sources, targets = (
        (words[:, np.newaxis] == np.arange(words.max(initial=-1) + 1)).astype(np.float64)
        for words in (np.asarray(source_words), np.asarray(target_words))
    )  # [pieces, words]
    by_words = targets.T @ weights @ sources  # [target words, source words]
    if not by_words.shape[1]:
        return []
    return sorted((int(source), target) for target, source in enumerate(by_words.argmax(axis=1)))


def pharaoh(pairs):
    """Returns pairs of word numbers as a line, `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def align_texts(translator, texts, translations, layer=-1, batch_size=32):
    """Yields the word alignment of each text and its translation.

    The weights are the mean over a layer's heads; those on the end of the source count for no word.

    Args:
        translator: `Translator`.
        texts: list of str.
        translations: list of str, one for each text.
        layer: int, of the decoder; negative ones count from the last.
        batch_size: pairs at a time.

    Yields:
        Sorted lists of (source word, target word).

    Raises:
        InputError: if the decoder has no such layer, or the lists are of unequal length.
    """
    layers = translator.model.config.decoder_layers
    if not -layers <= layer < layers:
        raise InputError(f"layer is {layer}: give one from {-layers} to {layers - 1}.")
    if len(texts) != len(translations):
        raise InputError(
            f"there are {len(texts)} texts and {len(translations)} translations: give one "
            "translation for each text."
        )
    for begin in range(0, len(texts), batch_size):
        sources, targets = (side[begin : begin + batch_size] for side in (texts, translations))
        source = translator.sources.locate(tf.constant(sources))
        target = translator.targets.locate(tf.constant(targets))
        read_ids = shifted_right(target.ids, translator.tokenizer.bos_id)
        found = translator.model.attention({"source_ids": source.ids, "target_ids": read_ids})
        weights = tf.reduce_mean(found.cross[:, layer], axis=1).numpy()
        for row, (text, translation) in enumerate(zip(sources, targets, strict=True)):
            words = (
                words_of_pieces(t, located.starts[row].numpy(), located.ends[row].numpy())
                for t, located in ((text, source), (translation, target))
            )
            yield align_words(weights[row], *words)
