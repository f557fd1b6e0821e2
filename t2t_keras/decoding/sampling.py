"""Sampling (temperature, top-k, top-p): outputs are drawn token by token, without a beam.

The random numbers of a sentence follow from its own seed: its samples are the same in any batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.batch_compaction import while_loop
from t2t_keras.decoding.hypotheses import (
    NEG_INF,
    Hypotheses,
    LengthPenalty,
    forced_ids,
    score_hypotheses,
)
from t2t_keras.settings import SamplingSettings
from t2t_keras.types import Array

_FEW = 128
"""A nucleus is looked for among so many tokens before the whole vocabulary is sorted."""


class _SamplingState(NamedTuple):
    """State of the loop."""

    num_steps: tf.Tensor  # int32 [], tokens generated so far
    newest_ids: tf.Tensor  # int32 [batch, samples], the last token of each output
    ids: tf.Tensor  # int32 [batch, samples, num_steps], 0 after the end
    lengths: tf.Tensor  # int32 [batch, samples]
    log_probabilities: tf.Tensor  # float32 [batch, samples]
    done: tf.Tensor  # bool [batch, samples]
    model_state: Any  # the step function's, nest of tensors [batch, ...]


def sample(
    step: Callable,
    state: Any,
    *,
    bos_ids: Array,
    eos_id: int,
    max_lengths: Array,
    seeds: Array,
    samples: int = 1,
    temperature: float | tf.Tensor = 1.0,
    top_k: int | tf.Tensor | None = None,
    top_p: float | tf.Tensor | None = None,
    length_penalty: float | LengthPenalty = 0.6,
    prefix_ids: Array | None = None,
    free_prefix: int = 0,
    banned: Array | None = None,
) -> Hypotheses:
    """Draws every token from softmax(logits / temperature), or from its most likely tokens.

    Args:
        step, state, bos_ids, eos_id, max_lengths, prefix_ids, free_prefix: as for `beam_search`,
            with samples in place of beams.
        seeds: int32 [batch, 2], a seed of two numbers for each sentence.
        samples: independent outputs of each sentence.
        temperature: float above 0; near 0 sampling becomes greedy search.
        top_k: int or None, draw only from the k most likely tokens (Fan et al. 2018).
        top_p: float or None, nucleus sampling: draw from the fewest tokens whose total
            probability is at least top_p (Holtzman et al. 2020); applied after the temperature and
            top_k. These three may also be tensors [batch], float32, int32 and float32, with a value
            for each sentence; a top_k of 0 and a top_p of 1 mean None. Tensors are not checked.
        length_penalty: α or `LengthPenalty` of the score; it does not change the output.
        banned: bool [vocab] or None, tokens that are never drawn; the score's softmax includes
            them.

    Returns:
        `Hypotheses` [batch, samples] in the order drawn; log P is the model's own, independent of
        the temperature.

    Raises:
        InputError: if a setting is out of its range, see `SamplingSettings`.
    """
    settings = {"samples": samples, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    SamplingSettings.checked({name: x for name, x in settings.items() if not tf.is_tensor(x)})
    length_penalty = LengthPenalty.of(length_penalty)
    bos_ids = tf.convert_to_tensor(bos_ids, tf.int32)
    max_lengths = tf.convert_to_tensor(max_lengths, tf.int32)
    seeds = tf.convert_to_tensor(seeds, tf.int32)
    uniforms = _uniforms(seeds, tf.reduce_max(tf.concat([max_lengths, [1]], 0)), samples)
    shape = tf.stack([tf.shape(bos_ids)[0], samples])
    if prefix_ids is None:
        prefix_ids = tf.zeros([shape[0], 0], tf.int32)
    prefix_ids = tf.convert_to_tensor(prefix_ids, tf.int32)
    top_k, top_p = 0 if top_k is None else top_k, 1.0 if top_p is None else top_p
    temperature, top_k, top_p = (
        tf.broadcast_to(tf.cast(x, dtype), shape[:1])
        for x, dtype in ((temperature, tf.float32), (top_k, tf.int32), (top_p, tf.float32))
    )

    def advance(old):
        # 1. The model reads the newest tokens and predicts the next ones.
        logits, model_state = step(old.newest_ids, old.model_state)
        logits = tf.ensure_shape(tf.cast(logits, tf.float32), [None, None, None])
        # 2. The next tokens are drawn, where the prefix leaves a choice.
        allowed = logits if banned is None else tf.where(banned, NEG_INF, logits)
        drawn = _draw(allowed, uniforms[:, old.num_steps], temperature, top_k, top_p)
        forced = forced_ids(prefix_ids, old.num_steps)[:, tf.newaxis]
        ids = tf.where(forced > 0, forced, drawn)  # [batch, samples]
        log_probabilities = tf.gather(logits, ids, batch_dims=2)
        log_probabilities -= tf.reduce_logsumexp(logits, axis=2)
        if free_prefix:
            certain = (forced > 0) & (old.num_steps < free_prefix)
            log_probabilities = tf.where(certain, 0.0, log_probabilities)
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
    """Returns random numbers of at least 0 and less than 1, float32 [batch, steps, samples].

    The numbers of a sentence depend only on its seed: more steps append numbers.
    """

    def of_sentence(seed):
        return tf.random.stateless_uniform([steps, samples], seed)

    signature = tf.TensorSpec([None, samples], tf.float32)
    seeds = tf.pad(seeds, [[0, 1], [0, 0]])  # numbers of no sentence could not be put together
    return tf.map_fn(of_sentence, seeds, fn_output_signature=signature)[:-1]


def _draw(logits, uniforms, temperature, top_k, top_p):
    """Returns draws from softmax(logits / temperature), or from its most likely tokens.

    They are int32 [batch, samples].

    Args: logits, float32 [batch, samples, vocab]; uniforms, float32 [batch, samples], from 0 to
    below 1; temperature, float32 [batch]; top_k, int32 [batch], 0: all; top_p, float32 [batch].
    """
    batch, samples, vocab = tf.unstack(tf.shape(logits))
    temperature = temperature[:, tf.newaxis, tf.newaxis]
    top_k = tf.where(top_k > 0, tf.minimum(top_k, vocab), vocab)
    is_restricted = (top_k < vocab) | (top_p < 1)  # [batch]
    # A sentence is drawn by its own settings alone, whatever the others of its batch ask for.
    drawn = tf.cond(
        tf.reduce_all(is_restricted),
        lambda: tf.zeros_like(uniforms, tf.int32),
        lambda: _draw_index(tf.nn.softmax(logits / temperature), uniforms),
    )

    def draw_likely():
        most = tf.reduce_max(tf.where(is_restricted, top_k, 1))
        few = tf.minimum(most, _FEW)
        normalizer = tf.cond(
            tf.reduce_any(is_restricted & (top_k == vocab)),
            lambda: tf.reduce_logsumexp(logits / temperature, axis=2, keepdims=True),
            lambda: tf.zeros([batch, samples, 1]),
        )

        def candidates(count):
            """Returns the ids of the `count` most likely tokens and their probabilities."""
            top = ops.top_k(tf.reshape(logits, [batch * samples, logits.shape[2] or vocab]), count)
            likely, ids = (tf.reshape(x, [batch, samples, count]) for x in top)
            is_among = tf.range(count) < top_k[:, tf.newaxis]  # [batch, count]
            likely = tf.where(is_among[:, tf.newaxis], likely / temperature, NEG_INF)
            of_all = (top_k == vocab)[:, tf.newaxis, tf.newaxis]
            return ids, tf.where(of_all, tf.exp(likely - normalizer), tf.nn.softmax(likely))

        def draw_among(ids, probabilities):
            before = tf.cumsum(probabilities, axis=2, exclusive=True)
            is_nucleus = before < top_p[:, tf.newaxis, tf.newaxis]
            index = _draw_index(tf.where(is_nucleus, probabilities, 0.0), uniforms)
            return tf.gather(ids, index, batch_dims=2)  # [batch, samples]

        ids, probabilities = candidates(few)
        total = tf.reduce_min(tf.reduce_sum(probabilities, axis=2), axis=1)  # [batch]
        is_enough = (top_k <= few) | ((top_k == vocab) & (total >= top_p))
        restricted = tf.cond(
            tf.reduce_all(is_enough | ~is_restricted),
            lambda: draw_among(ids, probabilities),
            lambda: draw_among(*candidates(most)),
        )
        return tf.where(is_restricted[:, tf.newaxis], restricted, drawn)

    return tf.cond(tf.reduce_any(is_restricted), draw_likely, lambda: drawn)


def _draw_index(probabilities, uniforms):
    """Returns the first index at which the sum of probabilities exceeds a part of their total."""
    block = ops.block_size(probabilities.shape[-1], 1)
    if block is None:
        return _first_above(probabilities, uniforms)[0]
    # TensorFlow adds up a row element by element. The sums of blocks and of one block are faster,
    # but rounded otherwise: a plain form would draw other tokens.
    width = probabilities.shape[-1]
    blocks = tf.reshape(probabilities, [*tf.unstack(tf.shape(uniforms)), width // block, block])
    chosen, rest = _first_above(tf.reduce_sum(blocks, axis=-1), uniforms)
    return chosen * block + _first_above(tf.gather(blocks, chosen, batch_dims=2), rest)[0]


def _first_above(weights, uniforms):
    """Returns the first index at which the sum of weights exceeds its part, and what remains.

    Args: weights, float32 [batch, samples, choices], at least 0; uniforms, float32 [batch,
    samples], from 0 to below 1, the part of the total.

    Returns: int32 [batch, samples], whose weight is above 0; the part of its weight, float32
    [batch, samples], from 0 to below 1.
    """
    sums = tf.cumsum(weights, axis=-1)  # [batch, samples, choices]
    part = uniforms * sums[..., -1]
    index = tf.math.count_nonzero(sums <= part[..., tf.newaxis], axis=-1, dtype=tf.int32)
    end = tf.gather(sums, index, batch_dims=2)
    begin = tf.gather(tf.pad(sums, [[0, 0], [0, 0], [1, 0]]), index, batch_dims=2)
    return index, tf.clip_by_value((part - begin) / (end - begin), 0.0, 1 - 2.0**-23)
