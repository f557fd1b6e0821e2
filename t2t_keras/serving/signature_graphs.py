"""The graphs of signatures, one function each: it takes a predictor and returns the `tf.function`.

Dimension 0 of every input and output is the batch, so that a model server can batch requests. Every
input is required, since requests over REST must give all inputs.

Each signature of a translator of many languages takes two more inputs, `source_language` and
`target_language`, string [batch], codes such as `de`. "" is allowed as the source's language if the
model does not read it. An unknown code is an error that lists the known ones.

A text may be any bytes: bytes that are not UTF-8 count as U+FFFD, as in
`bytes.decode("utf-8", "replace")`. Tokens beyond the model's limits are dropped. An invalid request
fails with INVALID_ARGUMENT and a message that names the input; if the server batches requests, all
requests of its batch fail.
"""

import functools

import tensorflow as tf

from t2t_keras.graphs import graph_function
from t2t_keras.serving.request_checks import (
    validate_ids,
    validate_numbers,
    validate_rows,
    validate_rows_of,
)
from t2t_keras.settings import DECODING, Range
from t2t_keras.tasks.given_translations import Alignment

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
    return _signature(translator, functools.partial(_search, translator, False), "text")


def n_best(translator):
    """The `beam_size` best translations of each text.

    Request:
        text: string [batch].

    Response:
        translations: string [batch, beam], best first; the first is `serving_default`'s. If
            fewer hypotheses finish within twice the steps of `serving_default`, the last
            translations are unfinished.
        scores: float32 [batch, beam], log P / length penalty; -inf, with an empty translation, if
            a text has no more translations.
    """
    return _signature(translator, functools.partial(_search, translator, True), "text")


def prefix(translator, ranking=False):
    """The best translation of each text that begins with a given prefix.

    Request:
        text: string [batch].
        prefix: string [batch], the forced beginning; it may be empty. The tokens of the prefix are
            kept, so the tokens after a word fragment may differ from the tokens of the whole word.
            `max_extra_tokens` counts from the prefix if it is longer than the text.

    Response:
        translation: string [batch], with its prefix.
        score: float32 [batch], log P / length penalty, including the prefix.
        truncated: bool [batch], whether the text exceeded its limit or the prefix the longest
            translation, and was truncated.

    Args:
        translator: `Translator`.
        ranking: whether to answer as `n_best` does, for the check of an export.
    """
    search = functools.partial(_search, translator, ranking)
    return _signature(translator, search, "text", "prefix")


def terms(translator, ranking=False):
    """The best translation of each text, with given translations of some phrases.

    Request:
        text: string [batch].
        terms: string [batch], lines of a source phrase, a tab and its target phrase; empty: none.
            A source phrase must occur in the text as whole words. In lower case it matches any
            case; with a capital letter it matches only its own case. A phrase of more words takes
            precedence over phrases within it. The translation contains the target phrase exactly as
            written, as often as the text contains its source phrase.

    Response:
        translation, score, truncated: as in `serving_default`, and the same for a text without any
            of its source phrases.

    Args:
        translator, ranking: as for `prefix`.
    """

    def search(text, terms, **languages):
        return _search(translator, ranking, text, terms=terms, **languages)

    return _signature(translator, search, "text", "terms")


def score(translator):
    """The log-probability of a given translation.

    Request:
        text: string [batch].
        translation: string [batch], truncated to the length of the longest translation.

    Response:
        log_probability: float32 [batch], natural logarithm of P(translation | text).
        tokens: int32 [batch], tokens of the translation; both include the end.
    """

    def answer(*texts, **languages):
        found = translator.score(*texts, **languages)
        return {"log_probability": found.log_probabilities, "tokens": found.lengths}

    return _signature(translator, answer, "text", "translation")


def decode_ids(translator):
    """The best translations of encoded sources.

    Request:
        source_ids: int32 [batch, length]; 0 is padding and dropped at any position. Ids after the
            first end id are dropped, a missing end is appended, a row beyond the limit is
            truncated. An id outside the vocabulary is an error.
        target_language: string [batch], only for a model of many languages. The token that such a
            model reads before a source is the first of its source_ids; another one is an error.

    Response:
        target_ids: int32 [batch, beam, length], each with its end id, then 0; without an end if
            truncated at its maximum length. Only the end for a source of padding.
        scores: float32 [batch, beam]; -inf, with ids 0, if a source has no more translations.
            If the vocabulary has placeholders, they appear as often as in the source.
    """

    ids = tf.TensorSpec([None, None], tf.int32, name="source_ids")

    @graph_function(input_signature=[ids, *_languages(translator)[1:]])
    def signature(source_ids, *languages):
        inputs = validate_ids(translator.tokenizer.vocab_size, source_ids=source_ids)
        if languages:
            inputs += validate_rows_of(source_ids=inputs[0], target_language=languages[0])
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

    def answer(*texts, **languages):
        return translator.align(*texts, **languages)._asdict()

    return _signature(translator, answer, "text", "translation")


def document(translator, translate=None, aligned=None):
    """The translation of each document, a text of any number of sentences.

    Request:
        text: string [batch], each of any length.

    Response:
        translation: string [batch]; white space and line breaks between sentences stay unchanged,
            and each sentence is translated as by `serving_default`. A sentence beyond the limit is
            divided at a clause or a space; nothing is truncated. Protected spans, such as "{name}"
            and "<b>", stay unchanged.

    Args:
        translator: `Translator`.
        translate, aligned: the signatures that translate sentences and align them; None: new ones.
            An export passes its own, so that signatures share their graphs.
    """
    answer = _documents(translator, translate, aligned)
    return _signature(translator, answer, "text")


def document_terms(translator, translate=None, aligned=None):
    """The translation of each document, with given translations of some phrases.

    Request:
        text: string [batch], as in `document`.
        terms: string [batch], as in `terms`, for all sentences of a text. The characters U+E000 to
            U+E0FF, which represent protected spans, are an error.

    Response:
        translation: as in `document`; each sentence is translated as by `terms`.

    Args:
        translator, translate, aligned: as for `document`.
    """
    answer = _documents(translator, translate, aligned)
    return _signature(
        translator,
        lambda text, terms, **languages: answer(text, terms=terms, **languages),
        "text",
        "terms",
    )


def n_best_tokens(translator):
    """The n-best of `n_best` with their tokens: log P of each, and the source that it attends to.

    Request:
        text: string [batch].

    Response:
        translations, scores: as in `n_best`.
        tokens: int32 [batch, beam], tokens of each translation, its end included.
        spans: int32 [batch, beam, length, 2], begin and end of each token in its translation:
            `translation[begin:end]` in Python, in Unicode code points. 0, 0 for the end and for
            padding.
        log_probabilities: float32 [batch, beam, length], natural logarithm of the probability of
            each token, given the tokens before it; 0 on padding. Their sum, for a shortlist minus
            its cost of each token, is the log P of the score.
        source_spans: int32 [batch, beam, length, 2], begin and end of the source characters that
            each token attends to most, as in `spans` of `align`.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """

    def answer(text, **languages):
        found = translator.translate_tokens(text, n_best=translator.settings.beam_size, **languages)
        return {
            "translations": found.texts,
            "scores": found.scores,
            "tokens": found.lengths,
            "spans": found.spans,
            "log_probabilities": found.log_probabilities,
            "source_spans": found.source_spans,
            "truncated": found.truncated,
        }

    return _signature(translator, answer, "text")


_SAMPLING = {
    "temperature": DECODING["temperature"],
    "top_k": Range(0, DECODING["top_k"].most, whole=True),  # 0 and 1 are None of the library
    "top_p": Range(DECODING["top_p"].least, 1),
}


def sample(translator):
    """A translation of each text, drawn at random from the model's probabilities.

    Request:
        text: string [batch].
        seed: int32 [batch], any number. The same seed, text and settings give the same answer in
            any batch.
        temperature: float32 [batch], above 0; logits are divided by it. 1 draws from the model's
            own probabilities.
        top_k: int32 [batch], draw only from the k most likely tokens; 0: from all.
        top_p: float32 [batch], above 0, draw from the fewest tokens whose total probability is at
            least top_p; 1: from all.

    Response:
        translation: string [batch].
        score: float32 [batch], log P / length penalty by the model's own probabilities at any
            temperature; with a shortlist over its candidates, as in a search.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """
    numbers = {"seed": tf.int32, "temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32}
    specs = [tf.TensorSpec([None], dtype, name) for name, dtype in numbers.items()]

    @graph_function(input_signature=[_texts("text"), *specs, *_languages(translator)])
    def signature(text, seed, temperature, top_k, top_p, *languages):
        (text, seed, *settings), languages = _validated(
            languages, text=text, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p
        )
        settings = validate_numbers(_SAMPLING, **dict(zip(_SAMPLING, settings, strict=True)))
        seeds = tf.pad(seed[:, tf.newaxis], [[0, 0], [0, 1]])
        return _best_of(translator.draw(text, seeds, *settings, **languages))

    return signature


def _texts(name):
    return tf.TensorSpec([None], tf.string, name=name)


def _languages(predictor):
    """Returns the inputs for languages; none for a predictor that takes no languages."""
    if getattr(predictor, "languages", None) is None:
        return []
    return [_texts("source_language"), _texts("target_language")]


def _validated(languages, **inputs):
    """Checks inputs. Returns them, and {name: codes} of the languages, empty for a bilingual model.

    Args:
        languages: tuple of the inputs of `_languages`.
        inputs: {name: tensor}.
    """
    named = dict(zip(("source_language", "target_language"), languages, strict=False))
    checked = dict(zip([*inputs, *named], validate_rows(**inputs, **named), strict=True))
    return [checked[name] for name in inputs], {name: checked[name] for name in named}


def _signature(predictor, answer, *names):
    """Returns the `tf.function` whose inputs are texts, and languages if the predictor takes them.

    Args:
        predictor: of any task.
        answer: function of the checked texts, and of {name: codes} of the languages as keywords,
            to the outputs.
        *names: names of the texts.
    """

    @graph_function(input_signature=[*map(_texts, names), *_languages(predictor)])
    def signature(*inputs):
        texts = dict(zip(names, inputs, strict=False))
        texts, languages = _validated(inputs[len(names) :], **texts)
        return answer(*texts, **languages)

    return signature


def _documents(translator, translate, aligned):
    """Returns the function from texts to the outputs of `document`, which describes the others."""
    marked = translator.marked()
    translate, aligned = translate or best(marked), aligned or align(marked)

    def answer(text, **options):
        found = translator.translate_documents(
            text,
            lambda *inputs: translate(*inputs)["translation"],
            lambda *inputs: Alignment(**aligned(*inputs)),
            **options,
        )
        return {"translation": found}

    return answer


def _best_of(found):
    """Returns the outputs of `Translations`."""
    return {
        "translation": found.texts[:, 0],
        "score": found.scores[:, 0],
        "truncated": found.truncated,
    }


def _search(translator, ranking, *inputs, **options):
    """Returns the outputs of a search for the best translation, or for one per beam."""
    if not ranking:
        return _best_of(translator.translate(*inputs, **options))
    found = translator.translate(*inputs, n_best=translator.settings.beam_size, **options)
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

    def answer(text):
        found = parser.parse(text)
        return {"tree": found.texts[:, 0], "score": found.scores[:, 0]}

    return _signature(parser, answer, "text")


def parser_n_best(parser):
    """The `beam_size` best parses of each sentence.

    Request:
        text: string [batch], as in `serving_default`.

    Response:
        trees: string [batch, beam], best first; the first is `serving_default`'s.
        scores: float32 [batch, beam], descending; -inf, with an empty tree, if a sentence has no
            more parses.
    """

    def answer(text):
        found = parser.parse(text, n_best=parser.settings.beam_size)
        return {"trees": found.texts, "scores": found.scores}

    return _signature(parser, answer, "text")


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

    def answer(text):
        found = classifier.classify(text)
        return {"label": classifier.best(found.probabilities), **found._asdict()}

    return _signature(classifier, answer, "text")


def classifier_n_best(classifier):
    """All classes of each text, most likely first.

    Request:
        text: string [batch], as in `serving_default`.

    Response:
        labels: string [batch, classes].
        probabilities: float32 [batch, classes], descending.
        truncated: bool [batch], as in `serving_default`.
    """
    return _signature(classifier, lambda text: classifier.rank(text)._asdict(), "text")
