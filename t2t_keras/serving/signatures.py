"""What an exported model answers: one function for each signature.

Each takes a `Translator` and gives the `tf.function` that is exported. Dimension 0 is the batch in
every input and output, so that a model server can batch requests, and every input is required,
since requests over REST must give all.

A text may be any bytes: what is not UTF-8 counts as U+FFFD, as `bytes.decode("utf-8", "replace")`
has it. What goes beyond the translator's limits is cut off. A request that cannot be answered
fails with INVALID_ARGUMENT and a sentence that names the input at fault; where the server batches
requests, it fails those that share its batch.
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
        score: float32 [batch], log P / length penalty; 0 is certain, below it less and less so.
        truncated: bool [batch], whether the text was longer than the limit and what goes beyond was
            left out.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        return _best_of(translator.translate(*checks.texts(text=text)))

    return signature


def n_best(translator):
    """The best translations of each text, as many as the search has beams.

    Request:
        text: string [batch].

    Response:
        translations: string [batch, beam], best first, the first one that of `serving_default`.
            Where too few end in the time that the search takes at most, twice the steps of
            `serving_default`, the last ones are beginnings of translations.
        scores: float32 [batch, beam], log P / length penalty; -inf, with an empty translation,
            where a text has no more translations.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        return _all_of(translator, *checks.texts(text=text))

    return signature


def prefix(translator):
    """The best translation of each text that begins in a given way.

    Request:
        text: string [batch].
        prefix: string [batch], how the translation must begin; empty leaves it free. The pieces of
            the prefix come first and others follow, so that half a word may be continued otherwise
            than the whole one would be spelled. Beyond the longest translation it is cut off.

    Response:
        translation: string [batch], with its prefix.
        score: float32 [batch], log P / length penalty, the prefix counted at its probability.
        truncated: bool [batch], as in `serving_default`.
    """

    @graph_function(input_signature=[_texts("text"), _texts("prefix")])
    def signature(text, prefix):
        return _best_of(translator.translate(*checks.texts(text=text, prefix=prefix)))

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
        return _all_of(translator, *checks.texts(text=text, prefix=prefix))

    return signature


def score(translator):
    """How likely a given translation is.

    Request:
        text: string [batch].
        translation: string [batch]; beyond the longest translation it is cut off.

    Response:
        log_probability: float32 [batch], natural logarithm of P(translation | text), end counted.
        tokens: int32 [batch], tokens of the translation, the end counted.
    """

    @graph_function(input_signature=[_texts("text"), _texts("translation")])
    def signature(text, translation):
        found = translator.score(*checks.texts(text=text, translation=translation))
        return {"log_probability": found.log_probabilities, "tokens": found.lengths}

    return signature


def decode_ids(translator):
    """The best translations of sources that are ids already.

    Request:
        source_ids: int32 [batch, length], 0 on padding, which is dropped wherever it stands. What
            follows the first end id is dropped, a missing one appended; a row beyond the limit is
            cut. An id outside the vocabulary is an error.

    Response:
        target_ids: int32 [batch, beam, length], each with its end id, then 0; without an end if it
            was cut at its greatest length. The end alone for a source of nothing but padding.
        scores: float32 [batch, beam]; -inf, with ids 0, where a source has no more translations.
    """

    @graph_function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="source_ids")])
    def signature(source_ids):
        vocab_size = translator.tokenizer.vocab_size
        found = translator.translate_ids(*checks.ids(vocab_size, source_ids=source_ids))
        return {"target_ids": found.ids, "scores": found.scores}

    return signature


def align(translator):
    """Which part of its text each piece of a given translation looks at.

    Request:
        text: string [batch].
        translation: string [batch]; beyond the longest translation it is cut off.

    Response:
        source_pieces: string [batch, source], the text's pieces and the end, then "".
        target_pieces: string [batch, target], the translation's pieces and the end, then "".
        attention: float32 [batch, layers, heads, target, source], the decoder's attention to the
            source as it predicts each target piece; rows sum to 1, 0 on padding.
        spans: int32 [batch, target, 2], begin and end of the characters of the text that each piece
            looks at most, in the mean over the heads of the last layer: `text[begin:end]` in
            Python, in Unicode code points. 0, 0 for the end, for padding and for a text without
            characters.
    """

    @graph_function(input_signature=[_texts("text"), _texts("translation")])
    def signature(text, translation):
        found = translator.align(*checks.texts(text=text, translation=translation))
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
"""The name under which each is exported."""

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
