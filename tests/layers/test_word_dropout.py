import keras
import numpy as np
import tensorflow as tf

from t2t_keras.layers.word_dropout import WordDropout

IDS = tf.ones([100, 200], tf.int32) * 7


def test_a_share_of_the_words_is_padding_in_training():
    layer = WordDropout(0.3)
    first, second = layer(IDS, training=True), layer(IDS, training=True)
    assert set(np.unique(first)) == {0, 7}
    assert np.mean(first == 0) == np.clip(np.mean(first == 0), 0.28, 0.32)
    assert np.any(first != second)
    np.testing.assert_array_equal(layer(IDS), IDS)
    np.testing.assert_array_equal(WordDropout(0.0)(IDS, training=True), IDS)
    assert not WordDropout(0.0).variables


def test_it_survives_keras_saving(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, WordDropout(0.3)(ids))
    model.save(tmp_path / "words.keras")
    assert keras.saving.load_model(tmp_path / "words.keras").layers[1].rate == 0.3
