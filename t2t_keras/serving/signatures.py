"""Signatures of exported translators, parsers and classifiers, one function each.

Start with `SIGNATURES`, a translator's table. Each function takes a `Translator`, `Parser` or
`Classifier` and returns the `tf.function` to export. Dimension 0 of every input and output is the
batch, so that a model server can batch requests. Every input is required, since requests over REST
must give all inputs.

A text may be any bytes: bytes that are not UTF-8 count as U+FFFD, as in
`bytes.decode("utf-8", "replace")`. Tokens beyond the model's limits are dropped. An invalid request
fails with INVALID_ARGUMENT and a message that names the input; if the server batches requests, all
requests of its batch fail.
"""

import tensorflow as tf

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

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        return _best_of(translator.translate(*validate_texts(text=text)))

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
        return _all_of(translator, *validate_texts(text=text))

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

    @graph_function(input_signature=[_texts("text"), _texts("prefix")])
    def signature(text, prefix):
        return _best_of(translator.translate(*validate_texts(text=text, prefix=prefix)))

    return signature


def prefix_n_best(translator):
    """The n-best of `prefix`: the best translations of each text that begin with a prefix.

    It is not exported; an export is checked with it.

    Request:
        text, prefix: as in `prefix`.

    Response:
        translations, scores: as in `n_best`.
    """

    @graph_function(input_signature=[_texts("text"), _texts("prefix")])
    def signature(text, prefix):
        return _all_of(translator, *validate_texts(text=text, prefix=prefix))

    return signature


def terms(translator):
    """The best translation of each text in which given phrases are translated as demanded.

    Request:
        text: string [batch].
        terms: string [batch], lines of a source phrase, a tab and its target phrase; empty: none.
            A source phrase counts where it stands in the text as whole words. In lower case it
            matches any case, with a capital letter its own case alone. Phrases of more words hide
            those within them. The translation contains the target phrase, as it is written, as
            often as the text contains its source phrase.

    Response:
        translation, score, truncated: as in `serving_default`, and the same for a text without any
            of its source phrases.
    """

    @graph_function(input_signature=[_texts("text"), _texts("terms")])
    def signature(text, terms):
        text, terms = validate_texts(text=text, terms=terms)
        return _best_of(translator.translate(text, terms=terms))

    return signature


def terms_n_best(translator):
    """The n-best of `terms`. It is not exported; an export is checked with it.

    Request:
        text, terms: as in `terms`.

    Response:
        translations, scores: as in `n_best`.
    """

    @graph_function(input_signature=[_texts("text"), _texts("terms")])
    def signature(text, terms):
        text, terms = validate_texts(text=text, terms=terms)
        return _all_of(translator, text, terms=terms)

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
        found = translator.score(*validate_texts(text=text, translation=translation))
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
        found = translator.translate_ids(*validate_ids(vocab_size, source_ids=source_ids))
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
        found = translator.align(*validate_texts(text=text, translation=translation))
        return found._asdict()

    return signature


def document(translator, translate=None, aligned=None):
    """The translation of each document, a text of any number of sentences.

    Request:
        text: string [batch], each of any length.

    Response:
        translation: string [batch]; the white space and line breaks between sentences are those of
            the text, and each sentence is translated as by `serving_default`. A sentence beyond the
            limit is divided at a clause or a space; nothing is truncated. Protected spans, such
            as "{name}" and "<b>", come through unchanged.

    Args:
        translator: `Translator`.
        translate: the signature that translates sentences; None: `best`. An export has one graph
            of it for both signatures.
        aligned: likewise the one of `align`.
    """
    translate, aligned = translate or best(translator), aligned or align(translator)

    @graph_function(input_signature=[_texts("text")])
    def signature(text):
        found = translator.translate_documents(
            *validate_texts(text=text),
            lambda sentences: translate(sentences)["translation"],
            lambda sentences, translations: aligned(sentences, translations)["spans"],
        )
        return {"translation": found}

    return signature


SIGNATURES = {
    "serving_default": best,
    "n_best": n_best,
    "prefix": prefix,
    "score": score,
    "decode_ids": decode_ids,
    "align": align,
    "document": document,
}
"""{name: function} of the signatures that an export has by default."""

ON_REQUEST = {"terms": terms}
"""{name: function} of those that it has where they are named, since each is one more search."""

CALLS = {"document": ("serving_default", "align")}
"""{signature: those that it calls}, which its function takes behind the predictor."""

RANKINGS = {
    "serving_default": n_best,
    "n_best": n_best,
    "prefix": prefix_n_best,
    "decode_ids": decode_ids,
    "document": n_best,  # of documents of one sentence
    "terms": terms_n_best,
}
"""{signature: function that returns its n-best}, of signatures that choose a hypothesis."""


def _texts(name):
    return tf.TensorSpec([None], tf.string, name=name)


def _best_of(found):
    """Returns the outputs of `Translations`."""
    return {
        "translation": found.texts[:, 0],
        "score": found.scores[:, 0],
        "truncated": found.truncated,
    }


def _all_of(translator, *inputs, **terms):
    """Returns the outputs of a search for as many translations as it has beams."""
    found = translator.translate(*inputs, n_best=translator.beam_size, **terms)
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
    return SIGNATURES | ON_REQUEST, RANKINGS


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
        _check(
            size == sizes[0],
            f"{first} has {{}} rows and {name} has {{}}: give one {name} for each {first}.",
            (sizes[0], size),
        )
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


def _check(condition, message, values):
    return tf.debugging.Assert(condition, [tf.strings.format(message, values)])


def _after(checks, tensors):
    # In eager mode a failed check has raised, and a passed one is None.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [tf.identity(tensor) for tensor in tensors]
