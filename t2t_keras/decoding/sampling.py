"""Sampling (temperature, top-k, top-p): outputs are drawn token by token, without a beam.

It takes the step functions and states of beam search. A beam search with a beam of 1 is greedy
search. The random numbers of a sentence follow from its own seed, not from its batch: its samples
are the same in any batch.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.batch_compaction import while_loop
from t2t_keras.decoding.hypotheses import LengthPenalty, forced_ids, score_hypotheses
from t2t_keras.settings import check_settings


class _SamplingState(NamedTuple):
    """State of the loop.

    Attributes:
        num_steps: int32 [], tokens generated so far.
        newest_ids: int32 [batch, samples], the last token of each output.
        ids: int32 [batch, samples, num_steps], 0 after the end.
        lengths: int32 [batch, samples].
        log_probabilities: float32 [batch, samples].
        done: bool [batch, samples].
        model_state: the step function's state, nest of tensors [batch, ...].
    """

    num_steps: tf.Tensor
    newest_ids: tf.Tensor
    ids: tf.Tensor
    lengths: tf.Tensor
    log_probabilities: tf.Tensor
    done: tf.Tensor
    model_state: Any


def sample(
    step,
    state,
    *,
    bos_ids,
    eos_id,
    max_lengths,
    seeds,
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
        state: nest of tensors [batch, ...], as for `beam_search`.
        bos_ids: int32 [batch], the tokens that the first step reads.
        eos_id: int, the token that ends a sequence.
        max_lengths: int32 [batch], the maximum length of each output, the end counted.
        seeds: int32 [batch, 2], a seed of two numbers for each sentence.
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
    length_penalty = LengthPenalty.of(length_penalty)
    bos_ids = tf.convert_to_tensor(bos_ids, tf.int32)
    max_lengths = tf.convert_to_tensor(max_lengths, tf.int32)
    uniforms = _uniforms(seeds, tf.reduce_max(tf.concat([max_lengths, [1]], 0)), samples)
    shape = tf.stack([tf.shape(bos_ids)[0], samples])
    if prefix_ids is None:
        prefix_ids = tf.zeros([shape[0], 0], tf.int32)
    prefix_ids = tf.convert_to_tensor(prefix_ids, tf.int32)

    def advance(old):
        # 1. The model reads the newest tokens and predicts the next ones.
        logits, model_state = step(old.newest_ids, old.model_state)
        logits = tf.cast(logits, tf.float32)  # [batch, samples, vocab]
        # 2. The next tokens are drawn, where the prefix leaves a choice.
        drawn = _draw(logits / temperature, uniforms[:, old.num_steps], top_k, top_p)
        forced = forced_ids(prefix_ids, old.num_steps)[:, tf.newaxis]
        ids = tf.where(forced > 0, forced, drawn)  # [batch, samples]
        log_probabilities = tf.gather(logits, ids, batch_dims=2)
        log_probabilities -= tf.reduce_logsumexp(logits, axis=2)
        # 3. Outputs that have ended stay as they are.
        active = ~old.done
        return _SamplingState(
            num_steps=old.num_steps + 1,
            newest_ids=ids,
            ids=tf.concat([old.ids, tf.where(active, ids, 0)[..., tf.newaxis]], axis=2),
            lengths=old.lengths + tf.cast(active, tf.int32),
            log_probabilities=old.log_probabilities + tf.where(active, log_probabilities, 0.0),
            done=old.done | (ids == eos_id) | (old.num_steps + 1 >= max_lengths[:, tf.newaxis]),
            model_state=model_state,
        )

    last = while_loop(
        lambda state: ~tf.reduce_all(state.done),
        advance,
        _SamplingState(
            num_steps=tf.constant(0),
            newest_ids=tf.broadcast_to(bos_ids[:, tf.newaxis], shape),
            ids=tf.zeros([shape[0], samples, 0], tf.int32),
            lengths=tf.zeros(shape, tf.int32),
            log_probabilities=tf.zeros(shape),
            done=tf.broadcast_to(max_lengths[:, tf.newaxis] <= 0, shape),
            model_state=tf.nest.map_structure(tf.convert_to_tensor, state),
        ),
    )
    return score_hypotheses(last.ids, last.lengths, last.log_probabilities, length_penalty)


def _uniforms(seeds, steps, samples):
    """Returns random numbers from 0 to below 1, float32 [batch, steps, samples].

    Those of a sentence depend on its seed alone: with more steps, more numbers follow.
    """

    def of_sentence(seed):
        return tf.random.stateless_uniform([steps, samples], seed)

    signature = tf.TensorSpec([None, samples], tf.float32)
    return tf.map_fn(
        of_sentence, tf.convert_to_tensor(seeds, tf.int32), fn_output_signature=signature
    )


def _draw(logits, uniforms, top_k, top_p):
    """Draws from softmax(logits), restricted to the most likely tokens.

    Args:
        logits: float32 [batch, samples, vocab].
        uniforms: float32 [batch, samples], from 0 to below 1.
        top_k, top_p: those of `sample`.

    Returns:
        int32 [batch, samples].
    """
    if top_k is None and top_p is None:
        return _draw_index(tf.nn.softmax(logits), uniforms)
    vocab = logits.shape[-1]
    logits, ids = tf.math.top_k(logits, min(top_k or vocab, vocab))  # most likely first
    probabilities = tf.nn.softmax(logits)
    if top_p is not None:
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)  # [batch, samples, choices]
        probabilities = tf.where(before < top_p, probabilities, 0.0)
    return tf.gather(ids, _draw_index(probabilities, uniforms), batch_dims=2)


def _draw_index(probabilities, uniforms):
    """Returns the first index at which the sum of probabilities exceeds a part of their total."""
    sums = tf.cumsum(probabilities, axis=-1)  # [batch, samples, choices]
    part = (uniforms * sums[..., -1])[..., tf.newaxis]
    return tf.math.count_nonzero(sums <= part, axis=-1, dtype=tf.int32)
