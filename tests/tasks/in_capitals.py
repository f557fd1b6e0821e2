"""Documents whose translations are their words in capital letters."""

import tensorflow as tf

from t2t_keras.tasks.documents import translate_documents
from t2t_keras.tasks.protection import ByAlignment
from tests.tasks import tiny


def longer_than(limit):
    return lambda texts: tf.strings.length(texts, unit="UTF8_CHAR") > limit


def in_capitals(texts, limit):
    """Returns documents translated to capital letters, and the sentences that were asked, bytes."""
    asked = []

    def upper(sentences):
        asked.extend(sentences.numpy())
        return tf.strings.upper(sentences, "utf-8")

    def same_words(texts, translations):
        del translations
        return tiny.word_alignment(*[[text.decode() for text in texts.numpy()]] * 2)

    def translate(sentences):
        return ByAlignment().translate(sentences, upper, same_words, room=9)

    found = translate_documents(tf.constant(texts), translate, longer_than(limit), "en").numpy()
    return [text.decode() for text in found], asked
