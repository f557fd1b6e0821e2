"""The requests to a `Translator`: a graph and a row for each; see `requests.RequestKind`.

Each request to a translator of many languages takes two more inputs, `source_language` and
`target_language`, string [batch], codes such as `de`. "" is allowed as the source's language if the
model does not read it. An unknown code is an error that lists the known ones.

A text may be any bytes: bytes that are not UTF-8 count as U+FFFD, as in
`bytes.decode("utf-8", "replace")`. Tokens beyond the model's limits are dropped. An invalid request
fails with INVALID_ARGUMENT and a message that names the input; if the server batches requests, all
requests of its batch fail.
"""

import dataclasses
import re

import tensorflow as tf

from t2t_keras.data.base_tokenizer import UNK_ID
from t2t_keras.tasks.requests import (
    PREFIX,
    SAMPLING,
    SOURCE_IDS,
    TEXT,
    TRANSLATION,
    Input,
    RequestKind,
    ranked,
    sample_lines,
    strings,
)
from t2t_keras.tasks.spans import ALL_MARKS


def _terms(predictor, lines):
    # The first word of every second line, and a word that the vocabulary surely has.
    tokenizer = predictor.tokenizer.target
    words = (line for count in range(1, 9) for line in sample_lines(tokenizer, [count]))
    target = next(
        (w for w in words if _is_term(w) and UNK_ID not in tokenizer.encode([w]).values), None
    )
    sources = [(line.split() or [""])[0] if n % 2 == 0 else "" for n, line in enumerate(lines)]
    return strings(f"{w}\t{target}" if target and _is_term(w) else "" for w in sources)


def _is_term(word):
    return word and not re.search(ALL_MARKS, word)


TERMS = Input("terms", _terms)


def _best(translator, text, prefix=None, terms=None, **languages):
    """The best translation of each text.

    Request:
        text: string [batch].

    Response:
        translation: string [batch]; empty for a text that is empty or only spaces.
        score: float32 [batch], log P / length penalty, at most 0; 0 is certain.
        truncated: bool [batch], whether the text exceeded the limit and was truncated.
    """
    found = translator.translate(text, prefix, 1, terms, **languages)
    return {
        "translation": found.texts[:, 0],
        "score": found.scores[:, 0],
        "truncated": found.truncated,
    }


def _n_best(translator, text, prefix=None, terms=None, **languages):
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
    beam_size = translator.settings.beam_size
    found = translator.translate(text, prefix, beam_size, terms, **languages)
    return {"translations": found.texts, "scores": found.scores, "truncated": found.truncated}


def _prefix(translator, text, prefix, **languages):
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
    """
    return _best(translator, text, prefix, **languages)


def _with_terms(translator, text, terms, **languages):
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
    """
    return _best(translator, text, None, terms, **languages)


def _score(translator, text, translation, **languages):
    """The log-probability of a given translation.

    Request:
        text: string [batch].
        translation: string [batch], truncated to the length of the longest translation.

    Response:
        log_probability: float32 [batch], natural logarithm of P(translation | text).
        tokens: int32 [batch], tokens of the translation; both include the end.
    """
    found = translator.score(text, translation, **languages)
    return {"log_probability": found.log_probabilities, "tokens": found.lengths}


def _decode_ids(translator, source_ids, target_language=None):
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
    found = translator.translate_ids(source_ids, target_language)
    return {"target_ids": found.ids, "scores": found.scores}


def _align(translator, text, translation, **languages):
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
    return translator.align(text, translation, **languages)._asdict()


def _document(translator, text, terms=None, **languages):
    """The translation of each document, a text of any number of sentences.

    Request:
        text: string [batch], each of any length.

    Response:
        translation: string [batch]; white space and line breaks between sentences stay unchanged,
            and each sentence is translated as by `serving_default`. A sentence beyond the limit is
            divided at a clause or a space; nothing is truncated. Protected spans, such as "{name}"
            and "<b>", stay unchanged.
    """
    return {"translation": translator.translate_documents(text, terms=terms, **languages)}


def _document_terms(translator, text, terms, **languages):
    """The translation of each document, with given translations of some phrases.

    Request:
        text: string [batch], as in `document`.
        terms: string [batch], as in `terms`, for all sentences of a text. The characters U+E000 to
            U+E0FF, which represent protected spans, are an error.

    Response:
        translation: as in `document`; each sentence is translated as by `terms`.
    """
    return _document(translator, text, terms, **languages)


def _n_best_tokens(translator, text, prefix=None, **languages):
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
    n_best = translator.settings.beam_size
    found = translator.translate_tokens(text, prefix, n_best, **languages)
    return {
        "translations": found.texts,
        "scores": found.scores,
        "tokens": found.lengths,
        "spans": found.spans,
        "log_probabilities": found.log_probabilities,
        "source_spans": found.source_spans,
        "truncated": found.truncated,
    }


def _sample(translator, text, seed, temperature, top_k, top_p, **languages):
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
    if seed.shape.rank == 1:
        seed = tf.pad(seed[:, tf.newaxis], [[0, 0], [0, 1]])
    found = translator.draw(text, seed, temperature, top_k, top_p, **languages)
    return {
        "translation": found.texts[:, 0],
        "score": found.scores[:, 0],
        "truncated": found.truncated,
    }


_BEST = ("translation", "score", "truncated")
_RANKED = ("translations", "scores")
_ALL = RequestKind(_n_best, (TEXT,), _RANKED, *_RANKED, searches=True)
_ALL_WITH_PREFIX = dataclasses.replace(_ALL, inputs=(TEXT, PREFIX))
_ALL_WITH_TERMS = dataclasses.replace(_ALL, inputs=(TEXT, TERMS))
_DETAILS = ("tokens", "spans", "log_probabilities", "source_spans")

REQUESTS = {
    "serving_default": RequestKind(_best, (TEXT,), _BEST, *_BEST[:2], ranking=_ALL, searches=True),
    "n_best": ranked(_ALL),
    "prefix": RequestKind(_prefix, (TEXT, PREFIX), _BEST, *_BEST[:2], ranking=_ALL_WITH_PREFIX),
    "score": RequestKind(_score, (TEXT, TRANSLATION)),
    "decode_ids": ranked(RequestKind(_decode_ids, (SOURCE_IDS,), (), "target_ids", "scores")),
    "align": RequestKind(_align, (TEXT, TRANSLATION)),
    # Ranked as documents of one sentence.
    "document": RequestKind(_document, (TEXT,), (), "translation", ranking=_ALL, is_long=True),
    "n_best_tokens": RequestKind(
        _n_best_tokens,
        (TEXT,),
        (),
        *_RANKED,
        _DETAILS,
        ranking=_ALL,
        on_request=True,
        searches=True,
    ),
    "sample": RequestKind(_sample, (TEXT, *SAMPLING), _BEST, *_BEST[:2], on_request=True),
    "terms": RequestKind(
        _with_terms, (TEXT, TERMS), _BEST, *_BEST[:2], ranking=_ALL_WITH_TERMS, on_request=True
    ),
    "document_terms": RequestKind(
        _document_terms,
        (TEXT, TERMS),
        (),
        "translation",
        ranking=_ALL_WITH_TERMS,
        on_request=True,
        is_long=True,
    ),
}
"""{name: `RequestKind`}, those of `Translator.requests`."""
