"""Beam search over any step function (paper, section 6.1).

"We used beam search with a beam size of 4 and length penalty α = 0.6. […] We set the maximum
output length during inference to input length + 50, but terminate early when possible."

Of the 2 · beams best continuations of a sentence, those that end and are among the first `beams`
become finished hypotheses; the best `beams` that do not end stay live. A sentence is done when no
live hypothesis can still replace one of its n_best finished ones, or at its own maximum length. Its
results are then frozen, so that they do not depend on the rest of the batch. A beam of 1 is greedy
search: a sentence is done with its first finished hypothesis.

`beam_search` explains the arguments, `_BeamSearch.advance` is one step.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.batch_compaction import SearchLoop
from t2t_keras.decoding.constraints import Constraint
from t2t_keras.decoding.hypotheses import (
    NEG_INF,
    Hypotheses,
    LengthPenalty,
    concat_beams,
    forced_ids,
    gather_beams,
    score_hypotheses,
)
from t2t_keras.settings import BEAMS, Range
from t2t_keras.types import Array

_OPTIONAL = Range(0, 1_000_000, optional=True)


def beam_search(
    step: Callable,
    state: Any,
    *,
    bos_ids: Array,
    eos_id: int,
    beam_size: int,
    max_lengths: Array,
    length_penalty: float | LengthPenalty = 0.6,
    n_best: int | tf.Tensor = 1,
    prefix_ids: Array | None = None,
    free_prefix: int = 0,
    n_best_patience: float | None = None,
    stopping_length_ratio: float | None = None,
    reorder: Callable = gather_beams,
    constraint: Any = None,
    records: Any = None,
    loop: Any = None,
) -> Hypotheses:
    """Finds the output sequences with the highest score, log P / length penalty.

    Works eagerly and inside a `tf.function`, for batches and lengths known only at run time.

    Args:
        step: function (ids int32 [batch, beams], state) → (logits [batch, beams, vocab], state)
            that reads the newest token of each hypothesis, see `SearchableModel.step`; a vocab that
            is not known statically is at least 2 · beam_size.
        state: nest of tensors [batch, ...] and scalars, the state before the first token. A
            step must read a sentence only from it, since finished sentences leave the batch. A
            dimension that is statically 0 may grow by the steps.
        bos_ids: int32 [batch], the tokens that the first step reads; not part of the output.
        eos_id: the token that ends a sequence.
        beam_size: live hypotheses of a sentence.
        max_lengths: int32 [batch], the maximum length of each output, the end counted; 0 allows
            the empty output only.
        length_penalty: α of ((5 + length) / 6)^α, of either sign, or a `LengthPenalty`; the
            end counts as length, the begin token does not.
        n_best: up to beam_size, number of hypotheses for each sentence: an int, or int32 [] if it
            is known only at run time. With a tensor the result has beam_size of them; the first
            n_best are those of an int.
        prefix_ids: int32 [batch, prefix] or None, the forced beginning of each output; 0 leaves a
            position free. Forced tokens count in log P with their true probability.
        free_prefix: number of first positions at which forced tokens have log P 0, because they are
            an input, such as the token of a language.
        n_best_patience: number or None; when the best hypothesis of a sentence is certain, the
            search for others ends at n_best_patience times its length at the latest. (Not the
            patience of Kasai et al. 2022.) None waits until all n_best are certain.
        stopping_length_ratio: number or None; a live hypothesis may improve the results only up to
            this multiple of the best finished one's length, or in the next step. None allows all
            lengths, which cannot miss a better hypothesis but takes far more steps.
        reorder: function (state, parents int32 [batch, beams]) → state, see
            `SearchableModel.reorder`; by default it gathers all tensors, [batch, beams, ...].
        constraint: a condition on outputs, such as `RequiredTokens`, after a forced prefix; or
            None.
        records: values to record for each token, such as `TokenRecords`; None: no records.
        loop: how the steps run, such as `CompiledLoop()`; None: `SearchLoop`. A function that XLA
            compiles cannot hold the search itself.

    Returns:
        `Hypotheses` [batch, n_best], best first; equal scores are in the order of discovery, then
        of beam and id. If fewer than n_best finish within a sentence's maximum length, its best
        live hypotheses follow without an end.

    Raises:
        InputError: if a setting is out of its range (n_best is at most beam_size), or in a function
            that XLA compiles.

    Example:
        >>> state = model.initial_state(model.encode(source_ids), beams=4)
        >>> best = beam_search(model.step, state, bos_ids=tf.fill([batch], 3), eos_id=1,
        ...                    beam_size=4, max_lengths=tf.fill([batch], 60), reorder=model.reorder)
    """
    BEAMS.check("beam_size", beam_size)
    _OPTIONAL.check("n_best_patience", n_best_patience)
    _OPTIONAL.check("stopping_length_ratio", stopping_length_ratio)
    slots = beam_size
    if not tf.is_tensor(n_best):
        Range(1, beam_size, whole=True, most_name="beam_size").check("n_best", n_best)
        slots = n_best
    search = _BeamSearch(
        step=step,
        reorder=reorder,
        eos_id=eos_id,
        free_prefix=free_prefix,
        beams=beam_size,
        n_best=slots,
        wanted=n_best,
        length_penalty=LengthPenalty.of(length_penalty),
        n_best_patience=n_best_patience,
        stopping_length_ratio=stopping_length_ratio,
        constraint=constraint or Constraint(),
        records=records,
    )
    if prefix_ids is None:
        prefix_ids = tf.zeros([tf.shape(bos_ids)[0], 0], tf.int32)
    first = search.initial_state(
        *(ops.to_index(integers) for integers in (bos_ids, max_lengths, prefix_ids)),
        tf.nest.map_structure(tf.convert_to_tensor, state),
    )
    hypotheses = (loop or SearchLoop()).run(search.advance, search.finish, first)
    ids, lengths = _int32(hypotheses.ids), _int32(hypotheses.lengths)
    return hypotheses._replace(ids=ids, lengths=lengths)


class _SearchState(NamedTuple):
    """State of the loop, for the sentences that are still in the batch.

    "Integers" here and below are of `ops.index_dtype`; `num_steps` is counted on the host.
    """

    num_steps: tf.Tensor  # int32 [], tokens generated so far
    newest_ids: tf.Tensor  # integers [batch, beams], the last token of each live hypothesis
    # [batch, beams] without an end, in the order in which they would follow the finished ones
    live: Hypotheses
    finished: Hypotheses  # [batch, n_best] with an end, best first; a score of NEG_INF: empty
    done: tf.Tensor  # bool [batch], sentences whose hypotheses are frozen
    max_lengths: tf.Tensor  # integers [batch]
    prefix_ids: tf.Tensor  # integers [batch, prefix], how outputs must begin; 0: free
    model_state: Any  # the step function's, nest of tensors [batch, ...]
    constraint_state: Any  # the constraint's


class _Candidates(NamedTuple):
    """The best continuations of the live hypotheses of each sentence, best first."""

    ids: tf.Tensor  # integers [batch, candidates], the new tokens
    parents: tf.Tensor  # integers [batch, candidates], the beams that they continue
    log_probabilities: tf.Tensor  # float32 [batch, candidates], of the whole sequences


@dataclasses.dataclass(frozen=True)
class _BeamSearch:
    """The settings of a `beam_search` and the parts of its loop."""

    step: Callable
    reorder: Callable
    eos_id: int
    free_prefix: int
    beams: int
    n_best: int  # finished hypotheses that are kept
    wanted: int | tf.Tensor  # those that must be certain, up to n_best
    length_penalty: LengthPenalty
    n_best_patience: float | None
    stopping_length_ratio: float | None
    constraint: Constraint
    records: Any

    def initial_state(self, bos_ids, max_lengths, prefix_ids, model_state):
        """Returns the `_SearchState` before the first step."""
        batch = tf.shape(bos_ids)[0]

        def empty(log_probabilities):
            ids = tf.zeros([batch, len(log_probabilities), 0], ops.index_dtype())
            log_probabilities = tf.tile([log_probabilities], [batch, 1])
            records = () if self.records is None else self.records.empty(ids)
            return score_hypotheses(ids, 0, log_probabilities, self.length_penalty, records)

        return _SearchState(
            num_steps=tf.constant(0),
            newest_ids=tf.tile(bos_ids[:, tf.newaxis], [1, self.beams]),
            # All beams of a sentence are the same hypothesis yet: only the first one counts.
            live=empty([0.0] + [NEG_INF] * (self.beams - 1)),
            finished=empty([NEG_INF] * self.n_best),
            done=max_lengths <= 0,
            max_lengths=max_lengths,
            prefix_ids=prefix_ids,
            model_state=model_state,
            constraint_state=self.constraint.initial_state(self.beams),
        )

    def advance(self, state):
        """Returns the `_SearchState` after one step."""
        num_steps = state.num_steps + 1
        length = ops.to_index(num_steps)
        # 1. The model reads the newest tokens and predicts the next ones.
        logits, model_state = self.step(_int32(state.newest_ids), state.model_state)
        # 2. The 2 · beams best continuations of each sentence are its candidates: even if the best
        #    of every beam ends, `beams` candidates are left that do not.
        candidates = self.best_candidates(logits, state)
        records = () if self.records is None else self.records.newest(candidates, model_state)
        # ids [batch, 2 · beams, length]
        tokens = tf.nest.map_structure(
            lambda old, new: ops.append(old, new[..., tf.newaxis], state.num_steps),
            gather_beams((state.live.ids, state.live.records), candidates.parents),
            (candidates.ids, records),
        )
        ends = candidates.ids == self.eos_id  # [batch, 2 · beams]
        # Those of the step before, in the shapes of this one.
        live_before, finished_before = (
            hypotheses.with_tokens(ops.with_place) for hypotheses in (state.live, state.finished)
        )
        # 3. Candidates that end, and are among the first `beams`, compete with the finished.
        finished = self.keep_finished(finished_before, tokens, ends, candidates, length)
        # 4. The `beams` best candidates that do not end are the new live hypotheses.
        live, newest_ids, parents = self.keep_live(
            tokens, ends, candidates, length, state.constraint_state
        )
        model_state = self.reorder(model_state, _int32(parents))
        constraint_state = self.constraint.advance(newest_ids, parents, state.constraint_state)
        # 5. Sentences that were done keep their hypotheses.
        live, finished = _freeze(state.done, (live_before, finished_before), (live, finished))
        # 6. Sentences that nothing can improve are done.
        return state._replace(
            num_steps=num_steps,
            newest_ids=newest_ids,
            live=live,
            finished=finished,
            done=state.done | self.is_done(length, live, finished, state.max_lengths),
            model_state=model_state,
            constraint_state=constraint_state,
        )

    def best_candidates(self, logits, state):
        """Returns the `_Candidates` [batch, 2 · beams] for logits [batch, beams, vocab]."""
        beams, static_vocab = logits.shape[1:]
        vocab = static_vocab or tf.shape(logits)[2]
        k = min(2 * beams, static_vocab or 2 * beams)
        logits = tf.cast(tf.reshape(logits, [-1, vocab]), tf.float32)
        # Without a shape of its own, TensorFlow's optimizer casts anew for each later reshape.
        logits = tf.ensure_shape(logits, [None, static_vocab])  # [batch · beams, vocab]
        # Of each beam no more than k continuations can be among the best of the sentence.
        # [batch · beams, k], [batch · beams, k], [batch · beams, 1]
        top, ids, normalizer = self.constraint.top_k(logits, k, state.constraint_state)
        k = ids.shape[1]  # more where a constraint adds some
        # [batch, beams, k]
        top, ids = (tf.reshape(x, [-1, beams, k]) for x in (top, ops.to_index(ids)))
        forced = forced_ids(state.prefix_ids, state.num_steps)[:, tf.newaxis]  # [batch, 1]
        top, ids = _force(forced, tf.reshape(logits, [-1, beams, vocab]), top, ids)
        log_probabilities = top - tf.reshape(normalizer, [-1, beams, 1])  # [batch, beams, k]
        if self.free_prefix:
            certain = (forced[..., tf.newaxis] > 0) & (state.num_steps < self.free_prefix)
            first = tf.where([i == 0 for i in range(k)], 0.0, NEG_INF)  # [k]
            log_probabilities = tf.where(certain, first, log_probabilities)
        totals = state.live.log_probabilities[..., tf.newaxis] + log_probabilities
        totals = tf.reshape(totals, [-1, beams * k])  # [batch, beams · k]
        ids = tf.reshape(ids, [-1, beams * k])
        count = min(2 * beams, beams * k)
        # [batch, 2 · beams]
        log_probabilities, index = self.constraint.select(
            totals, ids, count, state.constraint_state
        )
        index = ops.to_index(index)  # in beams · k
        ids = tf.gather(ids, index, batch_dims=1)
        return _Candidates(ids, index // k, log_probabilities)

    def keep_finished(self, finished, tokens, ends, candidates, length):
        """Returns the n_best finished `Hypotheses`; with equal scores the earlier ones.

        `finished` are those before this step, in the shapes of this one; `tokens` are ids and
        records of the candidates, [batch, 2 · beams, length], and `ends`, bool [batch, 2 · beams],
        says whether they end.
        """
        log_probabilities = tf.where(ends, candidates.log_probabilities, NEG_INF)
        ids, records, log_probabilities = tf.nest.map_structure(
            lambda x: x[:, : self.beams], (*tokens, log_probabilities)
        )
        ended = score_hypotheses(ids, length, log_probabilities, self.length_penalty, records)
        pool = concat_beams(finished, ended)  # [batch, n_best + beams]
        best = tf.math.top_k(pool.scores, self.n_best).indices  # [batch, n_best]
        return gather_beams(pool, best)

    def keep_live(self, tokens, ends, candidates, length, constraint_state):
        """Returns the live `Hypotheses`, newest ids and parents, [batch, beams] each."""
        log_probabilities = tf.where(ends, NEG_INF, candidates.log_probabilities)
        log_probabilities, index = self.constraint.keep(
            log_probabilities, candidates, self.beams, constraint_state
        )  # [batch, beams]
        newest_ids, parents, (ids, records) = gather_beams(
            (candidates.ids, candidates.parents, tokens), index
        )
        live = score_hypotheses(ids, length, log_probabilities, self.length_penalty, records)
        return live, newest_ids, parents

    def is_done(self, length, live, finished, max_lengths):
        """Returns which sentences need no further step, bool [batch].

        `length`, an integer [], is that of the live `Hypotheses`, [batch, beams]; the finished ones
        are [batch, n_best]; max_lengths are integers [batch].
        """
        best_length = tf.cast(finished.lengths[:, 0], tf.float32)  # [batch]
        longest = max_lengths
        if self.stopping_length_ratio is not None:
            limit = tf.math.ceil(self.stopping_length_ratio * best_length)
            longest = tf.minimum(longest, ops.to_index(limit))
        # log P never rises, and the penalty is largest at the longest length, or for a negative α
        # at the next one: no live hypothesis can exceed this score.
        best = tf.reduce_max(live.log_probabilities, axis=1)  # [batch]
        best_attainable = self.length_penalty.corrected(best, length + 1) / tf.maximum(  # [batch]
            self.length_penalty(length + 1), self.length_penalty(longest)
        )
        is_wanted = ops.arange(self.n_best) < ops.to_index(self.wanted)  # [n_best]
        worst = tf.reduce_min(tf.where(is_wanted, finished.scores, -NEG_INF), axis=1)  # [batch]
        done = (length >= max_lengths) | (worst >= best_attainable)
        if self.n_best_patience is not None:
            best_is_certain = finished.scores[:, 0] >= best_attainable
            done |= best_is_certain & (
                tf.cast(length, tf.float32) >= self.n_best_patience * best_length
            )
        if self.beams == 1:  # greedy search has no second choice to continue with
            done |= finished.scores[:, 0] > NEG_INF
        return done

    def finish(self, state):
        """Returns the `Hypotheses` [batch, n_best] of a state; live ones follow finished ones."""
        candidates = concat_beams(state.finished, state.live)  # [batch, n_best + beams]
        num_finished = tf.math.count_nonzero(
            state.finished.scores > NEG_INF, axis=1, keepdims=True, dtype=ops.index_dtype()
        )  # [batch, 1]
        index = ops.arange(self.n_best)[tf.newaxis]
        index = tf.where(index < num_finished, index, self.n_best + index - num_finished)
        best = gather_beams(candidates, index)
        exists = ops.to_index(best.scores > NEG_INF)  # [batch, n_best]
        return best._replace(ids=best.ids * exists[..., tf.newaxis], lengths=best.lengths * exists)


def _int32(integers):
    return tf.cast(integers, tf.int32)


def _force(forced, logits, top, ids):
    """Returns logits `top` and `ids`, [batch, beams, k], in which forced tokens are the only ones.

    `forced`, integers [batch, 1], are the tokens that must come next; 0: any.
    """
    k = ids.shape[2]
    forced_logits = tf.gather(logits, forced, axis=2, batch_dims=1)  # [batch, beams, 1]
    forced_logits = tf.where([i == 0 for i in range(k)], forced_logits, NEG_INF)
    forced = forced[..., tf.newaxis]  # [batch, 1, 1]
    return tf.where(forced > 0, forced_logits, top), tf.where(forced > 0, forced, ids)


def _freeze(frozen, old, new):
    """Returns the nest `new` [batch, ...] with the values of `old` in frozen rows, bool [batch]."""

    def choose(old, new):
        rows = tf.reshape(frozen, [-1] + [1] * (new.shape.rank - 1))
        return tf.where(rows, old, new)

    return tf.nest.map_structure(choose, old, new)
