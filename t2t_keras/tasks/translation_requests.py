"""The requests to a `Translator`: a graph and a row for each; see `requests.RequestKind`.

`serving/README.md` describes inputs and outputs of each. In a model of many languages each takes
`source_language` and `target_language`, too; `decode_ids` only `target_language`. A text may be any
bytes: bytes that are not UTF-8 count as U+FFFD, as in `bytes.decode("utf-8", "replace")`. Tokens
beyond the model's limits are dropped. An invalid request fails with INVALID_ARGUMENT and a message
that names the input; if the server batches requests, all requests of its batch fail.
"""

import dataclasses
import re

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
    return _first(translator.translate(text, prefix, 1, terms, **languages))


def _first(batch):
    return {
        "translation": batch.texts[:, 0],
        "score": batch.scores[:, 0],
        "truncated": batch.truncated,
    }


def _n_best(translator, text, prefix=None, terms=None, **languages):
    beam_size = translator.settings.beam_size
    batch = translator.translate(text, prefix, beam_size, terms, **languages)
    return {"translations": batch.texts, "scores": batch.scores, "truncated": batch.truncated}


def _score(translator, text, translation, **languages):
    scores = translator.score(text, translation, **languages)
    return {"log_probability": scores.log_probabilities, "tokens": scores.lengths}


def _decode_ids(translator, source_ids, target_language=None):
    hypotheses = translator.translate_ids(source_ids, target_language)
    return {"target_ids": hypotheses.ids, "scores": hypotheses.scores}


def _align(translator, text, translation, **languages):
    return translator.align(text, translation, **languages)._asdict()


def _document(translator, text, terms=None, **languages):
    return {"translation": translator.translate_documents(text, terms=terms, **languages)}


def _n_best_tokens(translator, text, prefix=None, **languages):
    n_best = translator.settings.beam_size
    fields = translator.translate_tokens(text, prefix, n_best, **languages)._asdict()
    return {"translations": fields.pop("texts"), "tokens": fields.pop("lengths"), **fields}


def _sample(translator, text, seed, **options):
    return _first(translator.draw(text, seeds=seed, **options))


_BEST, _RANKED = ("translation", "score"), ("translations", "scores")
_ALL = RequestKind(_n_best, (TEXT,), _RANKED, *_RANKED, searches=True)
_ALL_WITH_PREFIX = dataclasses.replace(_ALL, inputs=(TEXT, PREFIX))
_ALL_WITH_TERMS = dataclasses.replace(_ALL, inputs=(TEXT, TERMS))
_DETAILS = ("tokens", "spans", "log_probabilities", "source_spans")
_TERMS = RequestKind(_best, (TEXT, TERMS), (), *_BEST, ranking=_ALL_WITH_TERMS, on_request=True)

REQUESTS = {
    "serving_default": RequestKind(_best, (TEXT,), (), *_BEST, ranking=_ALL, searches=True),
    "n_best": ranked(_ALL),
    "prefix": RequestKind(_best, (TEXT, PREFIX), (), *_BEST, ranking=_ALL_WITH_PREFIX),
    "score": RequestKind(_score, (TEXT, TRANSLATION)),
    "decode_ids": ranked(RequestKind(_decode_ids, (SOURCE_IDS,), (), "target_ids", "scores")),
    "align": RequestKind(_align, (TEXT, TRANSLATION)),
    # Ranked as documents of one sentence.
    "document": RequestKind(_document, (TEXT,), (), "translation", ranking=_ALL, is_long=True),
    "n_best_tokens": dataclasses.replace(
        _ALL, graph=_n_best_tokens, outputs=(), details=_DETAILS, ranking=_ALL, on_request=True
    ),
    "sample": RequestKind(_sample, (TEXT, *SAMPLING), (), *_BEST, on_request=True),
    "terms": _TERMS,
    "document_terms": dataclasses.replace(_TERMS, graph=_document, score=None, is_long=True),
}
"""{name: `RequestKind`}, those of `Translator.requests`."""
