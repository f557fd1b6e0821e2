"""The most similar texts against TF-IDF cosines by NumPy."""

import numpy as np
import tensorflow as tf

from t2t_keras.models.knn import TfIdfRetriever

VOCAB = 30


def bags(texts):
    """Which ids each text has, bool [texts, vocab]; 0 is none."""
    return np.array([[i > 0 and i in text for i in range(VOCAB)] for text in texts])


def test_they_are_those_of_the_greatest_cosines():
    rng = np.random.default_rng(0)
    skewed = np.arange(1, VOCAB - 3) ** -1.0  # the last ids are in no text
    texts = [
        rng.choice(np.arange(1, VOCAB - 3), rng.integers(1, 12), p=skewed / skewed.sum())
        for _ in range(200)
    ]
    texts[3] = np.pad(texts[3], (0, 4))
    queries = [rng.integers(0, VOCAB, 9) for _ in range(20)] + [[1] * 9]
    has, asked = bags(texts), bags(queries)
    idf = np.log(200 / np.maximum(has.sum(axis=0), 1)) * has.any(axis=0)
    weights = has * idf
    cosines = (asked * idf) @ (weights / np.linalg.norm(weights, axis=1, keepdims=True)).T
    found = (
        TfIdfRetriever(texts, VOCAB).retrieve(tf.constant(np.array(queries), tf.int32), 10).numpy()
    )
    expected = np.sort(cosines, axis=1)[:, :-11:-1]
    np.testing.assert_allclose(np.take_along_axis(cosines, found, axis=1), expected, atol=1e-5)
    assert all(len(set(row)) == 10 for row in found)


def test_a_text_alone_and_one_of_words_that_all_have_are_found():
    ids = tf.constant([[5, 6]])
    np.testing.assert_array_equal(TfIdfRetriever([[5, 6]], VOCAB).retrieve(ids, 1), [[0]])
    np.testing.assert_array_equal(
        TfIdfRetriever([[5], [5], [7]], VOCAB).retrieve(ids, 3), [[0, 1, 2]]
    )
