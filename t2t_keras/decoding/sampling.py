"""One token at a time without a beam: the likeliest (greedy), or drawn at random (sampling).

Both run on the step functions and states of beam search.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.state import IMPOSSIBLE, hypotheses_of, run_loop, token_at
from t2t_keras.errors import InputError


def greedy_search(
    step, state, *, start_ids, end_id, max_lengths, length_penalty=0.6, prefix_ids=None
):
    """Takes the likeliest token at every step; of equally likely ones the lowest id.

    Args:
        step: function (ids int32 [batch, 1], state) → (logits [batch, 1, vocab], state).
        state: nest of tensors [batch, 1, ...], as for `beam_search`.
        start_ids: int32 [batch], what each sentence's first step reads.
        end_id: int, the token that ends a sequence.
        max_lengths: int32 [batch], the most tokens of each output, the end counted.
        length_penalty: float α of the score; it doesn't change the output.
        prefix_ids: int32 [batch, prefix] or None, how each output must begin; 0 leaves a place
            free.

    Returns:
        `Hypotheses` [batch, 1], what `beam_search` finds with a beam of 1.
    """

    def likeliest(logits, _):
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    return _search(
        likeliest, step, state, start_ids, end_id, max_lengths, length_penalty, prefix_ids
    )


def sample(
    step,
    state,
    *,
    start_ids,
    end_id,
    max_lengths,
    seed,
    samples=1,
    temperature=1.0,
    top_k=None,
    top_p=None,
    length_penalty=0.6,
    prefix_ids=None,
):
    """Draws every token from softmax(logits / temperature), all of it or its likeliest part.

    Args:
        step: function (ids int32 [batch, samples], state) → (logits [batch, samples, vocab],
            state).
        state: nest of tensors [batch, samples, ...], as for `beam_search`.
        start_ids: int32 [batch], what each sentence's first step reads.
        end_id: int, the token that ends a sequence.
        max_lengths: int32 [batch], the most tokens of each output, the end counted.
        seed: int, or int32 [2]; the same seed draws the same samples from the same batch.
        samples: int, independent outputs of each sentence.
        temperature: float above 0; towards 0 the likeliest token takes all.
        top_k: int or None, draw from the k likeliest tokens only (Fan et al. 2018).
        top_p: float or None, draw from the fewest tokens whose probabilities reach top_p
            together (Holtzman et al. 2020); applied within top_k and after the temperature.
        length_penalty: float α of the score; it doesn't change the output.
        prefix_ids: int32 [batch, prefix] or None, how each output must begin; 0 leaves a place
            free.

    Returns:
        `Hypotheses` [batch, samples] in the order drawn; log P is the model's own, whatever the
        temperature.

    Raises:
        InputError: if samples, temperature, top_k or top_p is out of its range.
    """
    if samples < 1:
        raise InputError(f"samples is {samples}: give a whole number of at least 1.")
    if temperature <= 0:
        raise InputError(
            f"temperature is {temperature}: give a number above 0, or use greedy search."
        )
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k is {top_k}: give a whole number of at least 1, or None for all.")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p}: give a share above 0 up to 1, or None for all.")
    seed = tf.convert_to_tensor([seed, 0] if isinstance(seed, int) else seed, tf.int32)

    def drawn(logits, steps):
        step_seed = tf.random.experimental.stateless_fold_in(seed, steps)
        logits /= temperature
        if top_k is None and top_p is None:
            return _draw(logits, step_seed)
        vocab = logits.shape[-1]
        logits, ids = tf.math.top_k(logits, min(top_k or vocab, vocab))  # likeliest first
        if top_p is not None:
            before = tf.cumsum(tf.nn.softmax(logits), axis=-1, exclusive=True)
            logits = tf.where(before < top_p, logits, IMPOSSIBLE)
        return tf.gather(ids, _draw(logits, step_seed), batch_dims=2)

    return _search(
        drawn, step, state, start_ids, end_id, max_lengths, length_penalty, prefix_ids, samples
    )


def _draw(logits, seed):
    """Draws from softmax(logits), int32 [batch, samples] of logits [batch, samples, choices]."""
    rows = tf.reshape(logits, [-1, logits.shape[-1]])
    draws = tf.random.stateless_categorical(rows, num_samples=1, seed=seed, dtype=tf.int32)
    return tf.reshape(draws, tf.shape(logits)[:2])


class _Progress(NamedTuple):
    """Where a search stands.

    Attributes:
        steps: int32 scalar, tokens read.
        tokens: int32 [batch, samples], the newest token of each output.
        ids: int32 [batch, samples, steps], 0 after the end.
        lengths: int32 [batch, samples].
        log_probabilities: float32 [batch, samples].
        done: bool [batch, samples].
        model: the step function's state, a nest of tensors [batch, samples, ...].
    """

    steps: tf.Tensor
    tokens: tf.Tensor
    ids: tf.Tensor
    lengths: tf.Tensor
    log_probabilities: tf.Tensor
    done: tf.Tensor
    model: Any


def _search(
    choose, step, state, start_ids, end_id, max_lengths, length_penalty, prefix_ids, samples=1
):
    """Runs `choose(logits float32 [batch, samples, vocab], steps)` → ids until all have ended."""
    start_ids = tf.convert_to_tensor(start_ids, tf.int32)
    max_lengths = tf.convert_to_tensor(max_lengths, tf.int32)[:, tf.newaxis]
    if prefix_ids is not None:
        prefix_ids = tf.convert_to_tensor(prefix_ids, tf.int32)
    shape = tf.stack([tf.shape(start_ids)[0], samples])

    def advance(old):
        logits, model = step(old.tokens, old.model)
        logits = tf.cast(logits, tf.float32)
        tokens = choose(logits, old.steps)  # [batch, samples]
        if prefix_ids is not None:
            forced = token_at(prefix_ids, old.steps)[:, tf.newaxis]
            tokens = tf.where(forced > 0, forced, tokens)
        # The softmax is needed at the chosen tokens only.
        chosen = tf.gather(logits, tokens, batch_dims=2) - tf.reduce_logsumexp(logits, axis=2)
        steps, going = old.steps + 1, ~old.done
        counted = tf.where(going, tokens, 0)
        return _Progress(
            steps=steps,
            tokens=tokens,
            ids=tf.concat([old.ids, counted[..., tf.newaxis]], axis=2),
            lengths=old.lengths + tf.cast(going, tf.int32),
            log_probabilities=old.log_probabilities + tf.where(going, chosen, 0.0),
            done=old.done | (tokens == end_id) | (steps >= max_lengths),
            model=model,
        )

    last = run_loop(
        lambda progress: ~tf.reduce_all(progress.done),
        advance,
        _Progress(
            steps=tf.constant(0),
            tokens=tf.broadcast_to(start_ids[:, tf.newaxis], shape),
            ids=tf.zeros([shape[0], samples, 0], tf.int32),
            lengths=tf.zeros(shape, tf.int32),
            log_probabilities=tf.zeros(shape),
            done=tf.broadcast_to(max_lengths <= 0, shape),
            model=tf.nest.map_structure(tf.convert_to_tensor, state),
        ),
    )
    return hypotheses_of(last.ids, last.lengths, last.log_probabilities, length_penalty)
