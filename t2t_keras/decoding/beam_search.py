"""Beam search over any step function (paper, section 6.1).

"We used beam search with a beam size of 4 and length penalty α = 0.6. […] We set the maximum
output length during inference to input length + 50, but terminate early when possible."

The rules: of the 2 · beams best continuations of a sentence, those that end and stand among the
first `beams` become finished hypotheses; the best `beams` that do not end live on. A sentence is
done when no live one can beat its worst wanted finished one any more, or at its own maximum length.
From then on its results are frozen, so that they do not depend on what else is in the batch. A beam
of 1 is greedy search: it is done with its first finished hypothesis.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.likeliest import likeliest
from t2t_keras.decoding.narrowing import run_legs
from t2t_keras.decoding.state import (
    IMPOSSIBLE,
    Hypotheses,
    gather_beams,
    gnmt_penalty,
    hypotheses_of,
    keep_rows,
    token_at,
)
from t2t_keras.errors import InputError


def beam_search(
    step,
    state,
    *,
    start_ids,
    end_id,
    beam_size,
    max_lengths,
    length_penalty=0.6,
    n_best=1,
    prefix_ids=None,
    patience=None,
    reach=None,
    reorder=gather_beams,
):
    """Finds the output sequences of the highest score log P / ((5 + length) / 6)^α.

    Works eagerly and inside a `tf.function`, for batches and lengths known only at run time.

    Args:
        step: function (ids int32 [batch, beams], state) → (logits [batch, beams, vocab], state)
            that reads the newest token of each hypothesis; vocab must be known statically.
        state: nest of tensors [batch, ...], hypotheses without a token, and all else that the step
            function knows of single sentences; a dimension that is statically 0 may grow by the
            steps.
        start_ids: int32 [batch], what each sentence's first step reads; not part of the output.
        end_id: int, the token that ends a sequence.
        beam_size: int, live hypotheses of a sentence.
        max_lengths: int32 [batch], the most tokens of each sentence's output, the end counted;
            0 allows the empty output only.
        length_penalty: float α, of either sign; the end counts as length, the start does not.
        n_best: int up to beam_size, hypotheses wanted of each sentence.
        prefix_ids: int32 [batch, prefix] or None, how each output must begin; 0 leaves a place
            free. Forced tokens count in log P with their true probability.
        patience: number or None; once a sentence's best hypothesis is certain, its search for
            further ones ends at the latest at so many times the best one's length. None waits until
            all n_best are certain.
        reach: number or None; no live hypothesis is expected to end beyond so many times the length
            of the best finished one, or the next step, when it is asked whether it can still
            become better. None expects it up to the maximum length, which cannot miss a better
            one and takes far more steps.
        reorder: function (state, parents int32 [batch, beams]) → state in which each hypothesis
            goes on from the one that stood on its parent's beam. If not given, all tensors of the
            state are [batch, beams, ...], and gathered.

    Returns:
        `Hypotheses` [batch, n_best], best first; equal scores stand in the order of discovery,
        then of beam and id. If fewer than n_best finish within a sentence's maximum length, its
        best live hypotheses follow as they stand, without an end.

    Raises:
        InputError: if beam_size or n_best is out of its range.

    Example:
        >>> state = model.initial_state(model.encode(source_ids), beams=4)
        >>> best = beam_search(model.make_step(), state, start_ids=tf.fill([batch], 3), end_id=1,
        ...                    beam_size=4, max_lengths=tf.fill([batch], 60), reorder=model.reorder)
    """
    if beam_size < 1:
        raise InputError(f"beam_size is {beam_size}: give a whole number of at least 1.")
    if not 1 <= n_best <= beam_size:
        raise InputError(f"n_best is {n_best}: give 1 to beam_size, which is {beam_size}.")
    search = _BeamSearch(
        step=step,
        end_id=end_id,
        beams=beam_size,
        n_best=n_best,
        alpha=length_penalty,
        max_lengths=tf.convert_to_tensor(max_lengths, tf.int32),
        prefix_ids=None if prefix_ids is None else tf.convert_to_tensor(prefix_ids, tf.int32),
        patience=patience,
        reach=reach,
        reorder=reorder,
    )
    progress = search.begin(tf.convert_to_tensor(start_ids, tf.int32), state)
    return run_legs(progress, lambda rows: search.of(rows).advance, search.conclude)


class _Progress(NamedTuple):
    """Where a search stands.

    Attributes:
        steps: int32 scalar, tokens read of every live hypothesis.
        tokens: int32 [batch, beams], the newest token of each live hypothesis.
        live: `Hypotheses` [batch, beams] without an end, best first.
        finished: `Hypotheses` [batch, n_best] with an end, best first.
        done: bool [batch], the sentences whose hypotheses are frozen.
        model: the step function's state, a nest of tensors [batch, ...].
    """

    steps: tf.Tensor
    tokens: tf.Tensor
    live: Hypotheses
    finished: Hypotheses
    done: tf.Tensor
    model: Any


@dataclasses.dataclass(frozen=True)
class _BeamSearch:
    """The settings of a search, and what it does before, in and after its loop."""

    step: Callable
    end_id: int
    beams: int
    n_best: int
    alpha: float
    max_lengths: tf.Tensor  # int32 [batch]
    prefix_ids: tf.Tensor | None  # int32 [batch, prefix]
    patience: float | None
    reach: float | None
    reorder: Callable

    def of(self, rows):
        """Returns the settings for some sentences, int32 [sentences] of the batch."""
        prefix_ids = self.prefix_ids
        return dataclasses.replace(
            self,
            max_lengths=tf.gather(self.max_lengths, rows),
            prefix_ids=None if prefix_ids is None else tf.gather(prefix_ids, rows),
        )

    def begin(self, start_ids, model):
        batch = tf.shape(start_ids)[0]

        def no_tokens(log_probabilities):
            ids = tf.zeros([batch, len(log_probabilities), 0], tf.int32)
            return hypotheses_of(ids, 0, tf.tile([log_probabilities], [batch, 1]), self.alpha)

        return _Progress(
            steps=tf.constant(0),
            tokens=tf.tile(start_ids[:, tf.newaxis], [1, self.beams]),
            # The beams of a sentence are one and the same yet: only the first one counts.
            live=no_tokens([0.0] + [IMPOSSIBLE] * (self.beams - 1)),
            finished=no_tokens([IMPOSSIBLE] * self.n_best),
            done=self.max_lengths <= 0,
            model=tf.nest.map_structure(tf.convert_to_tensor, model),
        )

    def advance(self, old):
        """Takes every live hypothesis one token further."""
        logits, model = self.step(old.tokens, old.model)
        forced = None if self.prefix_ids is None else token_at(self.prefix_ids, old.steps)
        tokens, parents, log_probabilities = _candidates(
            logits, old.live.log_probabilities, forced
        )  # [batch, 2 * beams]
        ids = gather_beams(old.live.ids, parents)
        ids = tf.concat([ids, tokens[..., tf.newaxis]], axis=2)  # [batch, 2 * beams, steps + 1]

        ends = tokens == self.end_id
        ended = hypotheses_of(
            ids[:, : self.beams],
            old.steps + 1,
            tf.where(ends, log_probabilities, IMPOSSIBLE)[:, : self.beams],
            self.alpha,
        )
        log_probabilities, places = tf.math.top_k(
            tf.where(ends, IMPOSSIBLE, log_probabilities), self.beams
        )  # [batch, beams]
        tokens, parents, ids = gather_beams((tokens, parents, ids), places)
        results = (
            hypotheses_of(ids, old.steps + 1, log_probabilities, self.alpha),
            _best(_padded(old.finished), ended, self.n_best),
        )
        frozen = _padded(old.live), _padded(old.finished)
        live, finished = keep_rows(old.done, frozen, results)
        return _Progress(
            steps=old.steps + 1,
            tokens=tokens,
            live=live,
            finished=finished,
            done=old.done | self._is_done(old.steps + 1, live, finished),
            model=self.reorder(model, parents),
        )

    def _is_done(self, steps, live, finished):
        """Says which sentences need no further step, bool [batch]."""
        # What log P / penalty can still become: log P never rises, and the penalty is largest at
        # the greatest length, or for a negative α at the next one.
        greatest = self.max_lengths
        if self.reach is not None:
            best = tf.cast(finished.lengths[:, 0], tf.float32)
            greatest = tf.minimum(greatest, tf.cast(tf.math.ceil(self.reach * best), tf.int32))
        largest_penalty = tf.maximum(
            gnmt_penalty(steps + 1, self.alpha), gnmt_penalty(greatest, self.alpha)
        )
        hope = live.log_probabilities[:, 0] / largest_penalty
        done = (steps >= self.max_lengths) | (finished.scores[:, -1] >= hope)
        if self.patience is not None:
            longest = self.patience * tf.cast(finished.lengths[:, 0], tf.float32)
            done |= (finished.scores[:, 0] >= hope) & (tf.cast(steps, tf.float32) >= longest)
        if self.beams == 1:  # greedy search has no second choice to go on with
            done |= finished.scores[:, 0] > IMPOSSIBLE
        return done

    def conclude(self, progress):
        """Returns the finished hypotheses, and live ones where those are too few."""
        both = _join(progress.finished, progress.live)
        finished = _count(progress.finished)[:, tf.newaxis]
        places = tf.range(self.n_best)[tf.newaxis]
        best = gather_beams(
            both, tf.where(places < finished, places, self.n_best + places - finished)
        )
        exists = tf.cast(best.scores > IMPOSSIBLE, tf.int32)
        return best._replace(ids=best.ids * exists[..., tf.newaxis], lengths=best.lengths * exists)


def _candidates(logits, log_probabilities, forced=None):
    """Finds the best continuations of each sentence's hypotheses.

    Args:
        logits: [batch, beams, vocab].
        log_probabilities: float32 [batch, beams] of the hypotheses so far.
        forced: int32 [batch], the only token allowed in each sentence; 0 allows all. None: 0.

    Returns:
        Tokens int32, parents int32 and log P float32, each [batch, 2 * beams], best first.
    """
    beams, vocab = logits.shape[1:]
    wanted = min(2 * beams, vocab)
    rows = tf.cast(tf.reshape(logits, [-1, vocab]), tf.float32)
    # TensorFlow's optimizer would cast anew for each shape that the logits take, but for this.
    rows = tf.ensure_shape(rows, [None, vocab])
    shape = [-1, beams, wanted]
    values, tokens, normalizer = likeliest(rows, wanted)
    values, tokens = tf.reshape(values, shape), tf.reshape(tokens, shape)
    if forced is not None:
        forced = forced[:, tf.newaxis]
        forced_values = tf.gather(
            tf.reshape(rows, [-1, beams, vocab]), forced, axis=2, batch_dims=1
        )  # [batch, beams, 1]
        forced_values = tf.where(tf.range(wanted) == 0, forced_values, IMPOSSIBLE)
        forced = forced[..., tf.newaxis]
        values = tf.where(forced > 0, forced_values, values)
        tokens = tf.where(forced > 0, forced, tokens)
    # The softmax is needed at the chosen tokens only.
    values -= tf.reshape(normalizer, [-1, beams, 1])
    totals = log_probabilities[..., tf.newaxis] + values
    totals = tf.reshape(totals, [-1, beams * wanted])
    log_probabilities, places = tf.math.top_k(totals, min(2 * beams, beams * wanted))
    tokens = tf.gather(tf.reshape(tokens, [-1, beams * wanted]), places, batch_dims=1)
    return tokens, places // wanted, log_probabilities


def _best(finished, ended, n_best):
    """Returns the n_best of both `Hypotheses`; of equal ones the earlier finished."""
    both = _join(finished, ended)
    return gather_beams(both, tf.math.top_k(both.scores, n_best).indices)


def _join(first, second):
    return Hypotheses(*(tf.concat(pair, axis=1) for pair in zip(first, second, strict=True)))


def _count(hypotheses):
    """Returns how many places hold a hypothesis, int32 [batch]."""
    return tf.reduce_sum(tf.cast(hypotheses.scores > IMPOSSIBLE, tf.int32), axis=1)


def _padded(hypotheses):
    return hypotheses._replace(ids=tf.pad(hypotheses.ids, [[0, 0], [0, 0], [0, 1]]))
