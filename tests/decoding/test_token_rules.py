"""Rules by the tokens that a hypothesis has: searches with them find what NumPy finds."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import beam_search, sample
from t2t_keras.decoding.hypotheses import gather_beams
from t2t_keras.decoding.token_rules import (
    MinLength,
    NoRepeatedNgrams,
    RepetitionPenalty,
    RuledModel,
)
from tests.decoding.toy import END, START, Toy, assert_hypotheses, narrow_search

MAX_LENGTHS = [9, 6, 9]
PREFIXES = [(4, 4), (), (3,)]
REQUIRED = 5  # exempt
SEED = 2


class RuledToy(Toy):
    """Rules by the definitions of their papers, token by token."""

    penalty, ngram, least = 1.0, 0, 0
    shift = 3.0  # of all logits, so that some are above 0: the penalty depends on the sign

    def next_log_probabilities(self, sentence, prefix):
        before = super().next_log_probabilities(sentence, prefix) + self.shift
        logits = before.copy()
        for token in set(prefix):
            logits[token] *= self.penalty if logits[token] < 0 else 1 / self.penalty
        if self.ngram:
            grams = [prefix[i : i + self.ngram] for i in range(len(prefix) - self.ngram + 1)]
            last = prefix[len(prefix) - self.ngram + 1 :]
            for token in range(self.vocab):
                if (*last, token) in grams:
                    logits[token] = -np.inf
        if len(prefix) < self.least:
            logits[END] = -np.inf
        logits[REQUIRED] = before[REQUIRED]
        if len(prefix) < len(PREFIXES[sentence]):
            logits = before
        return logits - np.log(np.sum(np.exp(logits)))


class Shifted:
    """The same toy as a `SearchableModel`, whose logits are those of `RuledToy` before rules."""

    max_length = None

    def __init__(self, toy):
        self.toy = toy

    def encode(self, source_ids):
        return source_ids

    def initial_state(self, memory, beams):
        return self.toy.state(beams)

    def step(self, ids, state, return_attention_weights=False):
        logits, state = Toy.step(self.toy, ids, state)
        return tf.nn.log_softmax(logits) + self.toy.shift, state

    reorder = staticmethod(gather_beams)


RULES = {
    "penalty": ({"penalty": 2.5}, [RepetitionPenalty(2.5)]),
    "unigrams": ({"ngram": 1}, [NoRepeatedNgrams(1)]),
    "bigrams": ({"ngram": 2}, [NoRepeatedNgrams(2)]),
    "length": ({"least": 5}, [MinLength(5, END)]),
    "all": (
        {"penalty": 1.4, "ngram": 3, "least": 3},
        [RepetitionPenalty(1.4), NoRepeatedNgrams(3), MinLength(3, END)],
    ),
}


class Counted(Shifted):
    """A model whose state begins with a scalar, its number of steps."""

    def initial_state(self, memory, beams):
        return {"count": tf.constant(0), "state": super().initial_state(memory, beams)}

    def step(self, ids, state, return_attention_weights=False):
        logits, inner = super().step(ids, state["state"])
        return logits, {"count": state["count"] + 1, "state": inner}


def test_a_models_state_may_begin_with_a_scalar():
    found = []
    for kind in (Shifted, Counted):
        model = RuledModel(kind(RuledToy(SEED, 7, sentences=3)), [NoRepeatedNgrams(2)])
        options = {"bos_ids": [START] * 3, "eos_id": END, "max_lengths": MAX_LENGTHS}
        state = model.initial_state(None, 1)
        found.append(sample(model.step, state, seeds=[[1, 2]] * 3, top_k=1, **options))
    for one, other in zip(*map(tf.nest.flatten, found), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", [4, 1, "sampling"])
@pytest.mark.parametrize("name", RULES)
def test_searches_follow_rules_as_numpy_does(name, way):
    settings, rules = RULES[name]
    toy, plain = (RuledToy(SEED, 7, sentences=3) for _ in range(2))
    vars(toy).update(settings)
    prefix_ids = tf.ragged.constant(PREFIXES, dtype=tf.int32).to_tensor()
    exempt = tf.range(7) == REQUIRED
    model = RuledModel(Shifted(toy), rules, prefix_ids, exempt)
    beams = 1 if way == "sampling" else way
    options = {"bos_ids": [START] * 3, "eos_id": END, "max_lengths": MAX_LENGTHS}
    options |= {"prefix_ids": prefix_ids}

    @tf.function(autograph=False)
    def find():
        state = model.initial_state(None, beams)
        if way == "sampling":
            return sample(model.step, state, seeds=[[1, 2]] * 3, top_k=1, **options)
        return beam_search(
            model.step, state, beam_size=way, n_best=way, reorder=model.reorder, **options
        )

    found, changes = find(), 0
    for row, (max_length, prefix) in enumerate(zip(MAX_LENGTHS, PREFIXES, strict=True)):
        expected, without = (
            narrow_search(kind, row, beams, max_length, 0.6, prefix) for kind in (toy, plain)
        )
        assert_hypotheses(found, row, [h for h in expected if h[1] > -np.inf])
        changes += without[0][0] != expected[0][0]
    assert changes
