"""Pairs of text that fit in memory, as ids."""

import tensorflow as tf

from t2t_keras.data.options import steady
from t2t_keras.errors import InputError


def encode_pairs(pairs, tokenizer, target_tokenizer=None):
    """Makes pairs of text the examples that a `Batcher` takes.

    Args:
        pairs: list of (source, target), of str; all of them stay in memory as ids.
        tokenizer: `Tokenizer`; every source and target gets its end id.
        target_tokenizer: of the targets, where they are no text in the vocabulary of the sources,
            such as `Labels`; None: `tokenizer`.

    Returns:
        A dataset of `{"source": int32 [n], "target": int32 [m]}`.

    Raises:
        InputError: if there is no pair.

    Example:

    >>> examples = encode_pairs([("a house", "ein Haus")], tokenizer)
    >>> model.fit(LengthBuckets(tokens_per_batch=4096)(examples, seed=1))
    """
    if not pairs:
        raise InputError("there are no pairs: give at least one source with its target")
    sources, targets = zip(*pairs, strict=True)
    examples = {
        "source": encode_with_end(list(sources), tokenizer),
        "target": encode_with_end(list(targets), target_tokenizer or tokenizer),
    }
    return steady(tf.data.Dataset.from_tensor_slices(examples))


def encode_with_end(texts, tokenizer):
    """Cuts texts into ids with the end id behind.

    Args:
        texts: string `[batch]`.
        tokenizer: `Tokenizer`, or whatever has its `encode` and `end_id`.

    Returns:
        RaggedTensor int32 `[batch, (length)]`.
    """
    ids = tokenizer.encode(texts)
    end = tf.fill([ids.nrows(), 1], tokenizer.end_id)
    return tf.concat([ids, tf.cast(end, tf.int32)], axis=1)
