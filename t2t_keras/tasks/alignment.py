"""Which part of a source each piece of its translation looks at."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.tasks.scoring import shifted_right


class Alignment(NamedTuple):
    """Cross-attention between sources and translations.

    Attributes:
        source_pieces: string [batch, source], "" on padding.
        target_pieces: string [batch, target], "" on padding.
        attention: float32 [batch, layers, heads, target, source], what the decoder looks at as it
            predicts each target piece; 0 on padding.
        spans: int32 [batch, target, 2], begin and end of the characters of the source text that
            each piece looks at most: `text[begin:end]`. 0, 0 for the end piece, for padding, and
            where the source has no characters.
    """

    source_pieces: tf.Tensor
    target_pieces: tf.Tensor
    attention: tf.Tensor
    spans: tf.Tensor


def align(model, tokenizer, source, target_ids):
    """Aligns translations with their sources.

    Args:
        model: `Transformer`, or whatever has its `attention`.
        tokenizer: `Tokenizer`.
        source: `TokenOffsets`, dense [batch, source], of the sources.
        target_ids: int32 [batch, target], each target with its end token, then 0.

    Returns:
        `Alignment`.
    """
    read = shifted_right(target_ids, tokenizer.bos_id)
    attention = model.attention({"source_ids": source.ids, "target_ids": read}).cross
    real = target_ids != tokenizer.pad_id
    attention *= tf.cast(real, tf.float32)[:, tf.newaxis, tf.newaxis, :, tf.newaxis]
    return Alignment(
        tokenizer.pieces(source.ids),
        tokenizer.pieces(target_ids),
        attention,
        _spans(attention, source, real & (target_ids != tokenizer.eos_id)),
    )


def _spans(attention, source, spoken):
    """Returns int32 [batch, target, 2]; spoken: bool [batch, target], who has a span at all."""
    looks = tf.reduce_mean(attention[:, -1], axis=1)  # [batch, target, source], the last layer's
    # The end and the padding have no characters to point at, however much they are looked at.
    covers = (source.ends > source.starts)[:, tf.newaxis]  # [batch, 1, source]
    place = tf.argmax(tf.where(covers, looks, -1.0), axis=2)  # [batch, target]
    spans = tf.stack([source.starts, source.ends], axis=2)  # [batch, source, 2]
    spans = tf.gather(spans, place, batch_dims=1)
    return tf.where(spoken[..., tf.newaxis], spans, 0)
