"""Greedy search and sampling (temperature, top-k, top-p): one token at a time, without a beam.

Both use the step functions and states of beam search. `_generate` is their loop.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.hypotheses import (
    NEG_INF,
    LengthPenalty,
    forced_ids,
    score_hypotheses,
    while_loop,
)
from t2t_keras.settings import check_settings


def greedy_search(
    step, state, *, bos_ids, eos_id, max_lengths, length_penalty=0.6, prefix_ids=None
):
    """Takes the most likely token at every step, of equal ones the lowest id.

    Args:
        step: function (ids int32 [batch, 1], state) → (logits [batch, 1, vocab], state).
        state: nest of tensors [batch, 1, ...], as for `beam_search`.
        bos_ids: int32 [batch], the tokens that the first step reads.
        eos_id: int, the token that ends a sequence.
        max_lengths: int32 [batch], the maximum length of each output, the end counted.
        length_penalty: float α or `LengthPenalty` of the score; it does not change the output.
        prefix_ids: int32 [batch, prefix] or None, how each output must begin; 0 leaves a position
            free.

    Returns:
        `Hypotheses` [batch, 1], those that `beam_search` finds with a beam of 1.
    """

    def most_likely(logits, _):
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    return _generate(
        most_likely, step, state, bos_ids, eos_id, max_lengths, length_penalty, prefix_ids
    )


def sample(
    step,
    state,
    *,
    bos_ids,
    eos_id,
    max_lengths,
    seed,
    samples=1,
    temperature=1.0,
    top_k=None,
    top_p=None,
    length_penalty=0.6,
    prefix_ids=None,
):
    """Draws every token from softmax(logits / temperature), or from its most likely tokens.

    Args:
        step: function (ids int32 [batch, samples], state) → (logits [batch, samples, vocab],
            state).
        state: nest of tensors [batch, samples, ...], as for `beam_search`.
        bos_ids: int32 [batch], the tokens that the first step reads.
        eos_id: int, the token that ends a sequence.
        max_lengths: int32 [batch], the maximum length of each output, the end counted.
        seed: int, or int32 [2]; the same seed draws the same samples from the same batch.
        samples: int, independent outputs of each sentence.
        temperature: float above 0; near 0 sampling becomes greedy search.
        top_k: int or None, draw from the k most likely tokens only (Fan et al. 2018).
        top_p: float or None, nucleus sampling: draw from the fewest tokens whose probabilities
            reach top_p together (Holtzman et al. 2020); applied within top_k and after the
            temperature.
        length_penalty: float α or `LengthPenalty` of the score; it does not change the output.
        prefix_ids: int32 [batch, prefix] or None, how each output must begin; 0 leaves a position
            free.

    Returns:
        `Hypotheses` [batch, samples] in the order drawn; log P is the model's own, whatever the
        temperature.

    Raises:
        InputError: if a setting is out of its range, see `DECODING`.
    """
    check_settings({"samples": samples, "temperature": temperature, "top_k": top_k, "top_p": top_p})
    seed = tf.convert_to_tensor([seed, 0] if isinstance(seed, int) else seed, tf.int32)

    def draw(logits, steps):
        step_seed = tf.random.experimental.stateless_fold_in(seed, steps)
        logits /= temperature
        if top_k is None and top_p is None:
            return _draw(logits, step_seed)
        vocab = logits.shape[-1]
        logits, ids = tf.math.top_k(logits, min(top_k or vocab, vocab))  # most likely first
        if top_p is not None:
            before = tf.cumsum(tf.nn.softmax(logits), axis=-1, exclusive=True)
            logits = tf.where(before < top_p, logits, NEG_INF)
        return tf.gather(ids, _draw(logits, step_seed), batch_dims=2)

    return _generate(
        draw, step, state, bos_ids, eos_id, max_lengths, length_penalty, prefix_ids, samples
    )


def _draw(logits, seed):
    """Draws from softmax(logits), int32 [batch, samples] of logits [batch, samples, choices]."""
    rows = tf.reshape(logits, [-1, logits.shape[-1]])
    draws = tf.random.stateless_categorical(rows, num_samples=1, seed=seed, dtype=tf.int32)
    return tf.reshape(draws, tf.shape(logits)[:2])


class _GenerationState(NamedTuple):
    """State of the loop.

    Attributes:
        step: int32 [], tokens generated so far.
        newest_ids: int32 [batch, samples], the last token of each output.
        ids: int32 [batch, samples, step], 0 after the end.
        lengths: int32 [batch, samples].
        log_probabilities: float32 [batch, samples].
        done: bool [batch, samples].
        model_state: the step function's state, nest of tensors [batch, samples, ...].
    """

    step: tf.Tensor
    newest_ids: tf.Tensor
    ids: tf.Tensor
    lengths: tf.Tensor
    log_probabilities: tf.Tensor
    done: tf.Tensor
    model_state: Any


def _generate(
    choose, step, state, bos_ids, eos_id, max_lengths, length_penalty, prefix_ids, samples=1
):
    """Runs `choose(logits float32 [batch, samples, vocab], steps)` → ids until all have ended."""
    length_penalty = LengthPenalty.of(length_penalty)
    bos_ids = tf.convert_to_tensor(bos_ids, tf.int32)
    max_lengths = tf.convert_to_tensor(max_lengths, tf.int32)[:, tf.newaxis]
    shape = tf.stack([tf.shape(bos_ids)[0], samples])
    if prefix_ids is None:
        prefix_ids = tf.zeros([shape[0], 0], tf.int32)
    prefix_ids = tf.convert_to_tensor(prefix_ids, tf.int32)

    def advance(old):
        # 1. The model reads the newest tokens and predicts the next ones.
        logits, model_state = step(old.newest_ids, old.model_state)
        logits = tf.cast(logits, tf.float32)  # [batch, samples, vocab]
        # 2. The next tokens are chosen, where the prefix leaves a choice.
        forced = forced_ids(prefix_ids, old.step)[:, tf.newaxis]
        ids = tf.where(forced > 0, forced, choose(logits, old.step))  # [batch, samples]
        log_probabilities = tf.gather(logits, ids, batch_dims=2)
        log_probabilities -= tf.reduce_logsumexp(logits, axis=2)
        # 3. Outputs that have ended stay as they are.
        active = ~old.done
        return _GenerationState(
            step=old.step + 1,
            newest_ids=ids,
            ids=tf.concat([old.ids, tf.where(active, ids, 0)[..., tf.newaxis]], axis=2),
            lengths=old.lengths + tf.cast(active, tf.int32),
            log_probabilities=old.log_probabilities + tf.where(active, log_probabilities, 0.0),
            done=old.done | (ids == eos_id) | (old.step + 1 >= max_lengths),
            model_state=model_state,
        )

    last = while_loop(
        lambda state: ~tf.reduce_all(state.done),
        advance,
        _GenerationState(
            step=tf.constant(0),
            newest_ids=tf.broadcast_to(bos_ids[:, tf.newaxis], shape),
            ids=tf.zeros([shape[0], samples, 0], tf.int32),
            lengths=tf.zeros(shape, tf.int32),
            log_probabilities=tf.zeros(shape),
            done=tf.broadcast_to(max_lengths <= 0, shape),
            model_state=tf.nest.map_structure(tf.convert_to_tensor, state),
        ),
    )
    return score_hypotheses(last.ids, last.lengths, last.log_probabilities, length_penalty)
