"""Computations with a given translation, by one pass of teacher forcing: log P and attention."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.batching import shift_right
from t2t_keras.data.text_parts import in_batches
from t2t_keras.decoding.token_records import attended_positions
from t2t_keras.tasks.results import source_spans

_MAX_POSITIONS = 4096
"""Target positions whose logits are in memory together: 0.5 GB for 32,000 tokens in float32."""

_VOCABULARY = 32_000
"""The size of a vocabulary for this limit; for a larger one the limit is lower."""


class Scores(NamedTuple):
    """Log-probabilities of given translations.

    Attributes:
        log_probabilities: float32 [batch], natural logarithm of P(target | source).
        lengths: int32 [batch], tokens of the target, including its end.
    """

    log_probabilities: tf.Tensor
    lengths: tf.Tensor


def sequence_log_prob(
    model, source_ids, target_ids, start_id, free_prefix=0, vocab_size=_VOCABULARY
):
    """Returns the `Scores` of targets: log P is summed over their tokens in float32.

    Args:
        model: function of a dict of source_ids and target_ids, to logits [batch, target, vocab].
        source_ids, target_ids: int32 [batch, source] and [batch, target], each row with its end
            token, then 0.
        start_id: int, the decoder's first input.
        free_prefix: int, the first tokens of each target that are certain, log P 0.
        vocab_size: int, the width of the logits; the larger, the fewer rows are computed together.
    """
    inputs = {"source_ids": source_ids, "target_ids": shift_right(target_ids, start_id)}
    counts = ops.is_token(target_ids) & (ops.arange(tf.shape(target_ids)[1]) >= free_prefix)
    log_probs = log_prob(model, inputs, target_ids, counts, vocab_size)
    return Scores(log_probs, tf.math.count_nonzero(target_ids, axis=1, dtype=tf.int32))


def log_prob(model, inputs, labels, counts, vocab_size=_VOCABULARY):
    """Returns the log-probability of some labels of each row, float32 [batch].

    Args:
        model, vocab_size: as for `sequence_log_prob`; inputs: of the model, int32 [batch, ...].
        labels: int32 [batch, length]; counts: bool [batch, length], whether a label is added up.
    """
    batch, length = tf.unstack(tf.shape(labels))
    positions = _MAX_POSITIONS * _VOCABULARY // max(vocab_size, _VOCABULARY)
    rows = tf.maximum(positions // tf.maximum(length, 1), 1)

    def score_rows(chosen):
        given, targets, counted = tf.nest.map_structure(
            lambda x: tf.gather(x, chosen), (inputs, labels, counts)
        )
        logits = tf.cast(model(given), tf.float32)
        log_p = tf.gather(logits, targets, axis=2, batch_dims=2)  # [rows, length]
        log_p -= tf.reduce_logsumexp(logits, axis=2)
        return tf.reduce_sum(tf.where(counted, log_p, 0.0), axis=1)

    return in_batches(score_rows, ops.arange(batch), rows, tf.float32)


class Alignment(NamedTuple):
    """Cross-attention between sources and translations.

    Attributes:
        source_pieces: string [batch, source], the source's tokens, "" on padding.
        target_pieces: string [batch, target], the target's tokens, "" on padding.
        attention: float32 [batch, layers, heads, target, source], the decoder's attention to the
            source when it predicts each target token; 0 on padding.
        spans: int32 [batch, target, 2], begin and end of the source characters that each target
            token attends to most, `text[begin:end]`. 0, 0 for the end and a language's token, for
            padding, and if the source has no characters.
    """

    source_pieces: tf.Tensor
    target_pieces: tf.Tensor
    attention: tf.Tensor
    spans: tf.Tensor


def align(model, tokenizer, source, target_ids):
    """Returns the `Alignment` of translations with their sources by cross-attention.

    Args:
        model: `Transformer`, or a model whose call returns `AttentionWeights`.
        tokenizer: `Tokenizer`.
        source: `TokenOffsets`, dense [batch, source], of the sources.
        target_ids: int32 [batch, target], each target with its end token, then 0.
    """
    decoder_ids = shift_right(target_ids, tokenizer.bos_id)
    inputs = {"source_ids": source.ids, "target_ids": decoder_ids}
    attention = tf.cast(model(inputs, return_attention_weights=True)[1].cross, tf.float32)
    # The end and padding have no characters, whatever their weight.
    attended = attended_positions(attention[:, -1], source.ends > source.starts)
    real = tf.cast(ops.is_token(target_ids), tf.float32)  # [batch, target]
    attention *= real[:, tf.newaxis, tf.newaxis, :, tf.newaxis]
    return Alignment(
        tokenizer.pieces(source.ids),
        tokenizer.target.pieces(target_ids),
        attention,
        source_spans(attended, source, target_ids, tokenizer),
    )
