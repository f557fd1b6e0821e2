"""A small recurrent model for searches, in TensorFlow and, prefix by prefix, in NumPy float64.

Its logits depend on the sentence, on the order of all tokens read, and on a state that grows.
"""

import numpy as np
import tensorflow as tf

from t2t_keras.decoding import beam_search

WIDTH = 5
START, END = 0, 1


def scripted(probabilities):
    """A step function with given probabilities [step, beam, vocab], and its state."""
    table = np.log(np.array(probabilities, "float32"))

    def step(ids, state):
        return tf.gather(tf.constant(table), state[:, 0]), state + 1

    return step, tf.zeros([1, table.shape[1]], tf.int32)


def scripted_search(probabilities, calls=None, **options):
    """A search of two beams for one sentence; adds an element to `calls` for each step."""
    step, state = scripted(probabilities)

    def counted(ids, state):
        if calls is not None:
            calls.append(ids)
        return step(ids, state)

    options = {"bos_ids": [0], "eos_id": 1, "beam_size": 2} | options
    return beam_search(counted, state, **options)


class Toy:
    def __init__(self, seed, vocab, sentences):
        rng = np.random.default_rng(seed)
        self.inner = rng.normal(size=(WIDTH, WIDTH))
        self.embedding = rng.normal(size=(vocab, WIDTH))
        self.output = rng.normal(size=(WIDTH, vocab)) * 1.5
        self.sentences = rng.normal(size=(sentences, WIDTH))
        self.vocab = vocab
        self.calls = 0

    def state(self, beams, rows=None):
        sentences = self.sentences if rows is None else self.sentences[rows]
        hidden = tf.tile(tf.constant(sentences, tf.float32)[:, tf.newaxis], [1, beams, 1])
        return {"hidden": hidden, "history": tf.zeros([len(sentences), beams, 0, WIDTH])}

    def step(self, ids, state):
        self.calls += 1
        embedded = tf.gather(tf.constant(self.embedding, tf.float32), ids)
        history = tf.concat([state["history"], embedded[:, :, tf.newaxis]], axis=2)
        hidden = state["hidden"]
        # A sum of products, not a matrix product: the same bits whatever the batch.
        inner = tf.reduce_sum(hidden[..., tf.newaxis] * tf.constant(self.inner, tf.float32), -2)
        hidden = tf.tanh(inner + tf.reduce_mean(history, axis=2) + embedded)
        logits = tf.reduce_sum(hidden[..., tf.newaxis] * tf.constant(self.output, tf.float32), -2)
        return logits, {"hidden": hidden, "history": history}

    def next_log_probabilities(self, sentence, prefix):
        """log P of each next token after a tuple of tokens, float64 [vocab]."""
        hidden, history = self.sentences[sentence], []
        for token in (START, *prefix):
            history.append(self.embedding[token])
            hidden = np.tanh(hidden @ self.inner + np.mean(history, axis=0) + history[-1])
        logits = hidden @ self.output
        return logits - np.log(np.sum(np.exp(logits)))


def search(toy, max_lengths, beams, rows=None, **options):
    return beam_search(
        toy.step,
        toy.state(beams, rows),
        bos_ids=tf.fill([len(max_lengths)], START),
        eos_id=END,
        beam_size=beams,
        max_lengths=max_lengths,
        **options,
    )


def score(log_probability, length, alpha):
    return log_probability / ((5 + length) / 6) ** alpha


def enumerate_all(toy, sentence, max_length, alpha):
    """Every sequence as (ids, log P, score), best first: those that end, then those cut."""
    ended, cut = [], []

    def visit(prefix, log_probability):
        if prefix and prefix[-1] == END:
            ended.append((prefix, log_probability, score(log_probability, len(prefix), alpha)))
        elif len(prefix) == max_length:
            cut.append((prefix, log_probability, score(log_probability, max_length, alpha)))
        else:
            following = toy.next_log_probabilities(sentence, prefix)
            for token in range(toy.vocab):
                visit((*prefix, token), log_probability + following[token])

    visit((), 0.0)
    return [*sorted(ended, key=lambda h: -h[2]), *sorted(cut, key=lambda h: -h[2])]


def narrow_search(toy, sentence, beams, max_length, alpha, prefix=(), free_prefix=0):
    """The rules of beam search, spelled out, without stopping early: like `enumerate_all`."""
    live, ended = [((), 0.0)], []
    for step in range(max_length):
        candidates = []
        for ids, log_probability in live:
            following = toy.next_log_probabilities(sentence, ids)
            tokens = [prefix[step]] if step < len(prefix) else range(toy.vocab)
            if step < min(free_prefix, len(prefix)):
                following = np.zeros(toy.vocab)
            candidates += [((*ids, t), log_probability + following[t]) for t in tokens]
        candidates.sort(key=lambda h: -h[1])
        ended += [h for h in candidates[:beams] if h[0][-1] == END]
        live = [h for h in candidates if h[0][-1] != END][:beams]
        if beams == 1 and ended:  # greedy search
            break
    scored = [[(*h, score(h[1], len(h[0]), alpha)) for h in group] for group in (ended, live)]
    return [h for group in scored for h in sorted(group, key=lambda h: -h[2])]


def assert_hypotheses(result, row, expected):
    """Compares one sentence's `Hypotheses` with the first of a list of (ids, log P, score)."""
    ids, lengths, log_probabilities, scores = (field[row].numpy() for field in result[:4])
    expected = expected[: len(ids)]
    found = [tuple(i[:length]) for i, length in zip(ids, lengths, strict=True)]
    assert found[: len(expected)] == [h[0] for h in expected]
    assert all(not i[length:].any() for i, length in zip(ids, lengths, strict=True))
    np.testing.assert_allclose(log_probabilities[: len(expected)], [h[1] for h in expected], 1e-4)
    np.testing.assert_allclose(scores[: len(expected)], [h[2] for h in expected], 1e-4)
    assert np.all(np.isneginf(scores[len(expected) :]))
    assert not lengths[len(expected) :].any()
