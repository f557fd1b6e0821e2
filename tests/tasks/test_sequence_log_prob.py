import numpy as np
import tensorflow as tf

from t2t_keras.tasks import given_translations
from t2t_keras.tasks.given_translations import sequence_log_prob
from tests.tasks import tiny

TEXTS = ["The dog sees a man.", "A train.", "", "She does not know the small old dog, she sees."]


def test_log_probability_is_the_sum_over_the_softmax_of_the_models_logits(translator):
    translations = ["Der alte Mann.", "", "Ob der Zug kommt?", "Hund"]
    sources = translator.encode(tf.constant(TEXTS)).numpy()
    found = translator.score(tf.constant(TEXTS), tf.constant(translations))
    for row, text in enumerate(translations):
        target = [*translator.tokenizer.encode([text]).to_list()[0], 1]
        expected = tiny.log_p(translator.model, target, sources[row]).sum()
        np.testing.assert_allclose(found.log_probabilities[row], expected, rtol=1e-5)
        assert found.lengths[row] == len(target)


def test_many_rows_are_scored_in_batches(translator, monkeypatch):
    translations = tf.constant(["Der", "Der Hund sieht.", "Zug"] * 3)
    texts = tf.constant([*TEXTS, *TEXTS, "x"])
    together = translator.score(texts, translations)
    sizes = []

    def counted(inputs):
        sizes.append(len(inputs["source_ids"]))
        return translator.model(inputs)

    length = int(tf.reduce_max(together.lengths))
    monkeypatch.setattr(given_translations, "_MAX_POSITIONS", 2 * length + 1)
    targets = translator.targets.encode(translations).ids
    apart = sequence_log_prob(counted, translator.encode(texts), targets, 3)
    assert sizes == [2, 2, 2, 2, 1]
    sequence_log_prob(counted, translator.encode(texts), targets, 3, vocab_size=64_000)
    assert sizes[5:] == [1] * 9
    np.testing.assert_allclose(apart.log_probabilities, together.log_probabilities, rtol=1e-5)
    assert len(translator.score(texts[:0], translations[:0]).log_probabilities) == 0


def test_a_translation_longer_than_a_search_may_give_is_truncated(translator):
    longest = 40 + 8
    found = translator.score(tf.constant(["A dog."] * 2), tf.constant(["Hund " * 5_000, "Hund"]))
    assert found.lengths[0] == longest
    alone = translator.score(tf.constant(["A dog."]), tf.constant(["Hund"]))
    np.testing.assert_allclose(found.log_probabilities[1:], alone.log_probabilities, rtol=1e-5)
