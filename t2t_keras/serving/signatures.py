"""Signatures of an exported translator, one function each.

Each function takes a `Translator` and returns the `tf.function` to export. Dimension 0 of every
input and output is the batch, so that a model server can batch requests. Every input is required,
since requests over REST must give all inputs.

A text may be any bytes: bytes that are not UTF-8 count as U+FFFD, as in
`bytes.decode("utf-8", "replace")`. Tokens beyond the translator's limits are dropped. An invalid
request fails with INVALID_ARGUMENT and a message that names the input; if the server batches
requests, all requests of its batch fail.
"""

import tensorflow as tf

from t2t_keras.graphs import graph_function
from t2t_keras.serving import checks


def best(translator):
    """The best translation of each text.

    Request:
        text: string [batch].

    Response:
        translation: string [batch]; empty for a text that is empty or only spaces.
        score: float32 [batch], log P / length penalty, at most 0; 0 is certain.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        return _best_of(translator.translate(*checks.validate_texts(text=text)))

    return signature


def n_best(translator):
    """The `beam_size` best translations of each text.

    Request:
        text: string [batch].

    Response:
        translations: string [batch, beam], best first; the first is that of `serving_default`. If
            fewer hypotheses finish within twice the steps of `serving_default`, the last
            translations are unfinished.
        scores: float32 [batch, beam], log P / length penalty; -inf, with an empty translation, if
            a text has no more translations.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        return _all_of(translator, *checks.validate_texts(text=text))

    return signature


def prefix(translator):
    """The best translation of each text that begins with a given prefix.

    Request:
        text: string [batch].
        prefix: string [batch], how the translation must begin; empty imposes nothing. The tokens of
            the prefix are kept, so a word fragment may be continued by other tokens than the whole
            word has. Truncated to the length of the longest translation.

    Response:
        translation: string [batch], with its prefix.
        score: float32 [batch], log P / length penalty, including the prefix.
        truncated: bool [batch], as in `serving_default`.
    """

    @graph_function(input_signature=[_texts("text"), _texts("prefix")])
    def signature(text, prefix):
        return _best_of(translator.translate(*checks.validate_texts(text=text, prefix=prefix)))

    return signature


def prefix_n_best(translator):
    """The best translations of each text that begin in a given way: `n_best` of `prefix`.

    It is not exported; an export is checked with it.

    Request:
        text, prefix: as in `prefix`.

    Response:
        translations, scores: as in `n_best`.
    """

    @graph_function(input_signature=[_texts("text"), _texts("prefix")])
    def signature(text, prefix):
        return _all_of(translator, *checks.validate_texts(text=text, prefix=prefix))

    return signature


def score(translator):
    """The log-probability of a given translation.

    Request:
        text: string [batch].
        translation: string [batch], truncated to the length of the longest translation.

    Response:
        log_probability: float32 [batch], natural logarithm of P(translation | text).
        tokens: int32 [batch], tokens of the translation; both include the end.
    """

    @graph_function(input_signature=[_texts("text"), _texts("translation")])
    def signature(text, translation):
        found = translator.score(*checks.validate_texts(text=text, translation=translation))
        return {"log_probability": found.log_probabilities, "tokens": found.lengths}

    return signature


def decode_ids(translator):
    """The best translations of encoded sources.

    Request:
        source_ids: int32 [batch, length]; 0 is padding and dropped at any index. Ids after the
            first end id are dropped, a missing end is appended, a row beyond the limit is
            truncated. An id outside the vocabulary is an error.

    Response:
        target_ids: int32 [batch, beam, length], each with its end id, then 0; without an end if
            truncated at its maximum length. Only the end for a source of padding.
        scores: float32 [batch, beam]; -inf, with ids 0, if a source has no more translations.
    """

    @graph_function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="source_ids")])
    def signature(source_ids):
        vocab_size = translator.tokenizer.vocab_size
        found = translator.translate_ids(*checks.validate_ids(vocab_size, source_ids=source_ids))
        return {"target_ids": found.ids, "scores": found.scores}

    return signature


def align(translator):
    """The cross-attention of a given translation.

    Request:
        text: string [batch].
        translation: string [batch], truncated to the length of the longest translation.

    Response:
        source_pieces: string [batch, source], the text's tokens and the end, then "".
        target_pieces: string [batch, target], the translation's tokens and the end, then "".
        attention: float32 [batch, layers, heads, target, source], the decoder's attention to the
            source when it predicts each target token; rows sum to 1, 0 on padding.
        spans: int32 [batch, target, 2], begin and end of the source characters that each token
            attends to most, averaged over the heads of the last layer: `text[begin:end]` in
            Python, in Unicode code points. 0, 0 for the end, for padding and for a text without
            characters.
    """

    @graph_function(input_signature=[_texts("text"), _texts("translation")])
    def signature(text, translation):
        found = translator.align(*checks.validate_texts(text=text, translation=translation))
        return found._asdict()

    return signature


SIGNATURES = {
    "serving_default": best,
    "n_best": n_best,
    "prefix": prefix,
    "score": score,
    "decode_ids": decode_ids,
    "align": align,
}
"""{name: function} of all signatures."""

RANKINGS = {
    "serving_default": n_best,
    "n_best": n_best,
    "prefix": prefix_n_best,
    "decode_ids": decode_ids,
}
"""Of each signature that makes a choice, the function of the n best that it chooses from."""


def _texts(name):
    return tf.TensorSpec([None], tf.string, name=name)


def _best_of(found):
    """Returns the outputs of `Translations`."""
    return {
        "translation": found.texts[:, 0],
        "score": found.scores[:, 0],
        "truncated": found.truncated,
    }


def _all_of(translator, *inputs):
    """Returns the outputs of a search for as many translations as it has beams."""
    found = translator.translate(*inputs, n_best=translator.beam_size)
    return {"translations": found.texts, "scores": found.scores}
