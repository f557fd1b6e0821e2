"""What a search notes of each token follows its hypotheses through reordering and compaction."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import beam_search
from t2t_keras.decoding.token_records import AttendingModel, TokenRecords
from tests.decoding.toy import END, START, Toy

VOCAB, SOURCE, BEAMS = 7, 5, 3


class AttendingToy(Toy):
    """A `Toy` that attends to the source by the token that it reads."""

    def __init__(self, seed, sentences):
        super().__init__(seed, VOCAB, sentences)
        table = np.random.default_rng(seed).normal(size=(2, VOCAB, SOURCE))
        self.table = np.exp(table) / np.exp(table).sum(-1, keepdims=True)  # [heads, token, source]

    def encode(self, rows):
        return rows

    def initial_state(self, memory, beams):
        return self.state(beams, memory)

    def step(self, ids, state, return_attention_weights=False):
        assert return_attention_weights
        logits, state = super().step(ids, state)
        weights = tf.gather(tf.constant(self.table, tf.float32), ids, axis=1)
        return logits, state, tf.transpose(weights, [1, 0, 2, 3])  # [batch, heads, beams, source]

    def reorder(self, state, parents):
        return tf.nest.map_structure(lambda x: tf.gather(x, parents, axis=1, batch_dims=1), state)


@pytest.mark.parametrize("prefix", [None, (4, 5)])
def test_records_are_those_of_the_hypotheses(prefix):
    """In a batch that is compacted, whose sentences end at many lengths."""
    count = 24
    toy = AttendingToy(3, sentences=count)
    has_text = np.random.default_rng(0).random((count, SOURCE)) < 0.6
    has_text[:, 1] = True
    model = AttendingModel(toy, tf.constant(has_text))
    again = AttendingModel(model, tf.constant(has_text))  # it is a `SearchableModel` too
    state = again.initial_state(np.arange(count), 1)
    assert again.step(tf.fill([count, 1], START), state)[0].shape == [count, 1, VOCAB]

    def search(step, state, **options):
        return beam_search(
            step,
            state,
            bos_ids=tf.fill([count], START),
            eos_id=END,
            beam_size=BEAMS,
            max_lengths=[1 + row % 9 for row in range(count)],
            n_best=BEAMS,
            prefix_ids=prefix and tf.constant([prefix] * count),
            **options,
        )

    def recorded():
        state = model.initial_state(np.arange(count), BEAMS)
        return search(model.step, state, reorder=model.reorder, records=TokenRecords)

    for found in (recorded(), tf.function(recorded)()):
        plain = search(super(AttendingToy, toy).step, toy.state(BEAMS))
        for one, other in zip(found[:4], plain[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        assert plain.records == ()
        log_probabilities = found.records.log_probabilities(found.lengths).numpy()
        exists = plain.lengths.numpy() > 0
        np.testing.assert_allclose(
            log_probabilities.sum(2)[exists], plain.log_probabilities.numpy()[exists], atol=1e-4
        )
        for row, beam in np.argwhere(found.lengths.numpy() > 0):
            length = int(found.lengths[row, beam])
            ids = found.ids[row, beam, :length].numpy().tolist()
            expected = [
                toy.next_log_probabilities(row, tuple(ids[:t]))[ids[t]] for t in range(length)
            ]
            np.testing.assert_allclose(log_probabilities[row, beam, :length], expected, atol=1e-4)
            weights = toy.table.mean(0)[[START, *ids[:-1]]]  # [length, source]
            attended = np.argmax(np.where(has_text[row], weights, -1), axis=1)
            np.testing.assert_array_equal(found.records.sources[row, beam, :length], attended)
            assert not log_probabilities[row, beam, length:].any()
