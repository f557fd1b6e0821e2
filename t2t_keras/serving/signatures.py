"""Signatures of exported translators, parsers and classifiers, one function each.

Start with `SIGNATURES`, a translator's table. Each function takes a `Translator`, `Parser` or
`Classifier` and returns the `tf.function` to export. Dimension 0 of every input and output is the
batch, so that a model server can batch requests. Every input is required, since requests over REST
must give all inputs.

Each signature of a translator of many languages takes two more inputs, `source_language` and
`target_language`, string [batch], codes such as `de`. "" is allowed as the source's language if the
model does not read it. An unknown code is an error that lists the known ones.

A text may be any bytes: bytes that are not UTF-8 count as U+FFFD, as in
`bytes.decode("utf-8", "replace")`. Tokens beyond the model's limits are dropped. An invalid request
fails with INVALID_ARGUMENT and a message that names the input; if the server batches requests, all
requests of its batch fail.
"""

import contextlib
import re

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.graphs import graph_function
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.parsing import Parser

# Translator --------------------------------------------------------------------------------------


def best(translator):
    """The best translation of each text.

    Request:
        text: string [batch].

    Response:
        translation: string [batch]; empty for a text that is empty or only spaces.
        score: float32 [batch], log P / length penalty, at most 0; 0 is certain.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """

    @graph_function(input_signature=[_texts("text"), *_languages(translator)])
    def signature(text, *languages):
        texts, languages = _validated(languages, text=text)
        return _best_of(translator.translate(*texts, **languages))

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

    @graph_function(input_signature=[_texts("text"), *_languages(translator)])
    def signature(text, *languages):
        texts, languages = _validated(languages, text=text)
        return _all_of(translator, *texts, **languages)

    return signature


def prefix(translator):
    """The best translation of each text that begins with a given prefix.

    Request:
        text: string [batch].
        prefix: string [batch], how the translation must begin; empty imposes nothing. The tokens of
            the prefix are kept, so a word fragment may be continued by other tokens than the whole
            word has. The translation may be as much longer than its prefix as than its text.

    Response:
        translation: string [batch], with its prefix.
        score: float32 [batch], log P / length penalty, including the prefix.
        truncated: bool [batch], whether the text exceeded the limit and was truncated, or the
            prefix that of the longest translation.
    """

    @graph_function(input_signature=[_texts("text"), _texts("prefix"), *_languages(translator)])
    def signature(text, prefix, *languages):
        texts, languages = _validated(languages, text=text, prefix=prefix)
        return _best_of(translator.translate(*texts, **languages))

    return signature


def prefix_n_best(translator):
    """The n-best of `prefix`: the best translations of each text that begin with a prefix.

    It is not exported; an export is checked with it.

    Request:
        text, prefix: as in `prefix`.

    Response:
        translations, scores: as in `n_best`.
    """

    @graph_function(input_signature=[_texts("text"), _texts("prefix"), *_languages(translator)])
    def signature(text, prefix, *languages):
        texts, languages = _validated(languages, text=text, prefix=prefix)
        return _all_of(translator, *texts, **languages)

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

    @graph_function(
        input_signature=[_texts("text"), _texts("translation"), *_languages(translator)]
    )
    def signature(text, translation, *languages):
        texts, languages = _validated(languages, text=text, translation=translation)
        found = translator.score(*texts, **languages)
        return {"log_probability": found.log_probabilities, "tokens": found.lengths}

    return signature


def decode_ids(translator):
    """The best translations of encoded sources.

    Request:
        source_ids: int32 [batch, length]; 0 is padding and dropped at any index. Ids after the
            first end id are dropped, a missing end is appended, a row beyond the limit is
            truncated. An id outside the vocabulary is an error.
        target_language: string [batch], of a model of many languages. The token that such a model
            reads before a source is one of the source_ids.

    Response:
        target_ids: int32 [batch, beam, length], each with its end id, then 0; without an end if
            truncated at its maximum length. Only the end for a source of padding.
        scores: float32 [batch, beam]; -inf, with ids 0, if a source has no more translations.
    """

    ids = tf.TensorSpec([None, None], tf.int32, name="source_ids")

    @graph_function(input_signature=[ids, *_languages(translator)[1:]])
    def signature(source_ids, *languages):
        inputs = validate_ids(translator.tokenizer.vocab_size, source_ids=source_ids)
        for target_language in languages:
            inputs += validate_texts(target_language=target_language)
            sizes = tf.shape(inputs[0])[0], tf.size(inputs[1])
            inputs = _after([_same_size("source_ids", "target_language", *sizes)], inputs)
        found = translator.translate_ids(*inputs)
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

    @graph_function(
        input_signature=[_texts("text"), _texts("translation"), *_languages(translator)]
    )
    def signature(text, translation, *languages):
        texts, languages = _validated(languages, text=text, translation=translation)
        found = translator.align(*texts, **languages)
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
"""{signature: function that returns its n-best}, of signatures that choose a hypothesis."""


def _texts(name):
    return tf.TensorSpec([None], tf.string, name=name)


def _languages(translator):
    """Returns the inputs of languages; none for a translator of two."""
    if translator.languages is None:
        return []
    return [_texts("source_language"), _texts("target_language")]


def _validated(languages, **inputs):
    """Returns the inputs, and {name: codes} of the languages, of which there may be none: checked.

    Args:
        languages: tuple of the inputs of `_languages`.
        inputs: {name: tensor}.
    """
    named = dict(zip(("source_language", "target_language"), languages, strict=False))
    checked = dict(zip([*inputs, *named], validate_texts(**inputs, **named), strict=True))
    return [checked[name] for name in inputs], {name: checked[name] for name in named}


def _best_of(found):
    """Returns the outputs of `Translations`."""
    return {
        "translation": found.texts[:, 0],
        "score": found.scores[:, 0],
        "truncated": found.truncated,
    }


def _all_of(translator, *inputs, **languages):
    """Returns the outputs of a search for as many translations as it has beams."""
    found = translator.translate(*inputs, n_best=translator.beam_size, **languages)
    return {"translations": found.texts, "scores": found.scores}


# Parser ------------------------------------------------------------------------------------------


def parser_best(parser):
    """The best parse of each sentence.

    Request:
        text: string [batch], a sentence's words, tokenized as in a treebank, separated by spaces.

    Response:
        tree: string [batch], a bracketed tree over exactly these words, on one line; empty for a
            text without words.
        score: float32 [batch], log P / length penalty, at most 0; 0 is certain.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        found = parser.parse(*validate_texts(text=text))
        return {"tree": found.texts[:, 0], "score": found.scores[:, 0]}

    return signature


def parser_n_best(parser):
    """The `beam_size` best parses of each sentence.

    Request:
        text: string [batch], as in `serving_default`.

    Response:
        trees: string [batch, beam], best first; the first is that of `serving_default`.
        scores: float32 [batch, beam], descending; -inf, with an empty tree, if a sentence has no
            more parses.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        found = parser.parse(*validate_texts(text=text), n_best=parser.beam_size)
        return {"trees": found.texts, "scores": found.scores}

    return signature


PARSER_SIGNATURES = {"serving_default": parser_best, "n_best": parser_n_best}
"""{name: function} of all signatures."""

PARSER_RANKINGS = dict.fromkeys(PARSER_SIGNATURES, parser_n_best)
"""{name: function}: the signature by whose ranking answers are checked, as in `RANKINGS`."""


# Classifier --------------------------------------------------------------------------------------


def classifier_best(classifier):
    """The class of each text.

    Request:
        text: string [batch], truncated to the classifier's limit.

    Response:
        label: string [batch], the most likely class.
        probabilities: float32 [batch, classes], in the order of the classifier's labels.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        found = classifier.classify(*validate_texts(text=text))
        return {"label": classifier.best(found.probabilities), **found._asdict()}

    return signature


def classifier_n_best(classifier):
    """All classes of each text, most likely first.

    Request:
        text: string [batch], as in `serving_default`.

    Response:
        labels: string [batch, classes].
        probabilities: float32 [batch, classes], descending.
        truncated: bool [batch], as in `serving_default`.
    """

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        return classifier.rank(*validate_texts(text=text))._asdict()

    return signature


CLASSIFIER_SIGNATURES = {"serving_default": classifier_best, "n_best": classifier_n_best}
"""{name: function} of all signatures."""

CLASSIFIER_RANKINGS = dict.fromkeys(CLASSIFIER_SIGNATURES, classifier_n_best)
"""{name: function}: the signature by whose ranking answers are checked, as in `RANKINGS`."""


def signatures_of(predictor):
    """Returns the signatures of a `Translator`, `Parser` or `Classifier`, and their rankings.

    Returns:
        Two dicts {signature name: function}; the second one as `RANKINGS`.
    """
    if isinstance(predictor, Parser):
        return PARSER_SIGNATURES, PARSER_RANKINGS
    if isinstance(predictor, Classifier):
        return CLASSIFIER_SIGNATURES, CLASSIFIER_RANKINGS
    return SIGNATURES, RANKINGS


# Languages of an exported signature ---------------------------------------------------------------


def language_inputs(signature, source_language, target_language):
    """Returns the languages that an exported signature takes, {name: code}; none of a model of two.

    Args:
        signature: concrete function out of the `signatures` of a SavedModel.
        source_language, target_language: str or None, a code for all texts.

    Raises:
        InputError: if a language is missing, or is given to a model of two.
    """
    _, inputs = signature.structured_input_signature
    given = {"source_language": source_language, "target_language": target_language}
    for name, code in given.items():
        if code and name not in inputs:
            raise InputError(
                f"{name} is {code!r}, and this export translates from one language into one other: "
                "leave it out."
            )
    if "target_language" in inputs and not target_language:
        raise InputError("target_language is missing: this export has many languages; give one.")
    return {name: code or "" for name, code in given.items() if name in inputs}


@contextlib.contextmanager
def unknown_languages_refused():
    """Turns the error of a signature that got an unknown language into an `InputError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if reason := re.search(r"(source|target)_language holds .* for each text\.", error.message):
            raise InputError(reason[0]) from error
        raise


# Validation of requests inside the graph ----------------------------------------------------------

_RANKS = {1: "give one string for each row, shape [batch]", 2: "give shape [batch, length]"}


def validate_texts(**inputs):
    """Raises InvalidArgumentError unless all inputs are strings [batch] of one batch size.

    Args:
        inputs: {name: tensor of any shape}.

    Returns:
        List of the inputs.
    """
    names, tensors = list(inputs), [_of_rank(1, name, x) for name, x in inputs.items()]
    sizes = [tf.size(x) for x in tensors]
    first = names[0]
    checks = [
        _same_size(first, name, sizes[0], size)
        for name, size in zip(names[1:], sizes[1:], strict=True)
    ]
    return _after(checks, tensors)


def validate_ids(vocab_size, **inputs):
    """Raises InvalidArgumentError unless inputs are ids [batch, length] of the vocabulary.

    Args:
        vocab_size: int.
        inputs: {name: int32 tensor of any shape}.

    Returns:
        List of the inputs.
    """
    tensors, checks = [], []
    for name, x in inputs.items():
        tensor = _of_rank(2, name, x)
        values = tf.concat([[0], tf.reshape(tensor, [-1])], axis=0)  # never empty
        least, most = tf.reduce_min(values), tf.reduce_max(values)
        message = f"{name} holds the id {{}}: ids are 0 to {vocab_size - 1}."
        inside = (least >= 0) & (most < vocab_size)
        checks.append(_check(inside, message, tf.where(least < 0, least, most)))
        tensors.append(tensor)
    return _after(checks, tensors)


def _of_rank(rank, name, tensor):
    # A server passes on any shape that a client sends. `tf.rank` would use the signature's rank,
    # and TensorFlow's optimizer the rank that later operations require: count the dimensions.
    shape = tf.shape(tensor)
    found = tf.size(tf.where(shape >= 0))
    message = f"{name} has shape {{}}: {_RANKS[rank]}."
    return _after([_check(found == rank, message, shape)], [tensor])[0]


def _same_size(first, name, first_size, size):
    return _check(
        size == first_size,
        f"{first} has {{}} rows and {name} has {{}}: give one {name} for each {first}.",
        (first_size, size),
    )


def _check(condition, message, values):
    return tf.debugging.Assert(condition, [tf.strings.format(message, values)])


def _after(checks, tensors):
    # In eager mode a failed check has raised, and a passed one is None.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [tf.identity(tensor) for tensor in tensors]
