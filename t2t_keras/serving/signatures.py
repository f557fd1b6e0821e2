"""What an exported model answers: one function for each signature.

Each takes a `Translator` and gives the `tf.function` that is exported. Dimension 0 is the batch in
every input and output, so that a model server can batch requests, and every input is required,
since requests over REST must give all.
"""

import tensorflow as tf


def best(translator):
    """`text` string [batch] → `translation` string [batch], `score` float32 [batch]."""

    @tf.function(input_signature=[_texts("text")])
    def signature(text):
        found = translator.translate(text)
        return {"translation": found.texts[:, 0], "score": found.scores[:, 0]}

    return signature


def n_best(translator):
    """`text` string [batch] → `translations` string, `scores` float32, both [batch, beam]."""

    @tf.function(input_signature=[_texts("text")])
    def signature(text):
        found = translator.translate(text, n_best=translator.beam_size)
        return {"translations": found.texts, "scores": found.scores}

    return signature


SIGNATURES = {"serving_default": best, "n_best": n_best}
"""The name under which each is exported."""


def _texts(name):
    return tf.TensorSpec([None], tf.string, name=name)
