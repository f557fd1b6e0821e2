"""What an exported parser answers; `signatures` says what holds for all exported models."""

import tensorflow as tf

from t2t_keras.graphs import graph_function
from t2t_keras.serving import checks

_TEXT = tf.TensorSpec([None], tf.string, name="text")


def best(parser):
    """The best parse of each sentence.

    Request:
        text: string [batch], a sentence's words with spaces between them, as a treebank cuts them.

    Response:
        tree: string [batch], a tree in brackets over exactly these words, on one line; empty for a
            text without words.
        score: float32 [batch], log P / length penalty; 0 is certain, below it less and less so.
    """

    @graph_function(input_signature=[_TEXT])
    def signature(text):
        found = parser.parse(*checks.texts(text=text))
        return {"tree": found.texts[:, 0], "score": found.scores[:, 0]}

    return signature


def n_best(parser):
    """The best parses of each sentence, as many as the search has beams.

    Request:
        text: string [batch], as in `serving_default`.

    Response:
        trees: string [batch, beam], best first, the first one that of `serving_default`.
        scores: float32 [batch, beam], falling; -inf, with an empty tree, where a sentence has no
            more parses.
    """

    @graph_function(input_signature=[_TEXT])
    def signature(text):
        found = parser.parse(*checks.texts(text=text), n_best=parser.beam_size)
        return {"trees": found.texts, "scores": found.scores}

    return signature


PARSER_SIGNATURES = {"serving_default": best, "n_best": n_best}
"""The name under which each is exported."""

PARSER_RANKINGS = dict.fromkeys(PARSER_SIGNATURES, n_best)
"""Of each signature, the function of the n best that it chooses from."""
