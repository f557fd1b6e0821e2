"""Signatures of an exported classifier; `signatures` has the rules of all exported models."""

import tensorflow as tf

from t2t_keras.graphs import graph_function
from t2t_keras.serving import checks

_TEXT = tf.TensorSpec([None], tf.string, name="text")


def best(classifier):
    """The class of each text.

    Request:
        text: string [batch], truncated to the classifier's limit.

    Response:
        label: string [batch], the most likely class.
        probabilities: float32 [batch, classes], in the order of the classifier's labels.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """

    @graph_function(input_signature=[_TEXT])
    def signature(text):
        found = classifier.classify(*checks.validate_texts(text=text))
        return {"label": classifier.best(found.probabilities), **found._asdict()}

    return signature


def n_best(classifier):
    """All classes of each text, most likely first.

    Request:
        text: string [batch], as in `serving_default`.

    Response:
        labels: string [batch, classes].
        probabilities: float32 [batch, classes], descending.
        truncated: bool [batch], as in `serving_default`.
    """

    @graph_function(input_signature=[_TEXT])
    def signature(text):
        return classifier.rank(*checks.validate_texts(text=text))._asdict()

    return signature


CLASSIFIER_SIGNATURES = {"serving_default": best, "n_best": n_best}
"""{name: function} of all signatures."""

CLASSIFIER_RANKINGS = dict.fromkeys(CLASSIFIER_SIGNATURES, n_best)
"""Of each signature, the function of the n best that it chooses from."""
