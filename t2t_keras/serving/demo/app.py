"""The demo page and its requests, as a WSGI application.

`GET /` returns the page in one answer. `POST /api/translate` takes `{"text"}` and returns
`{"translations": [{"text", "score", "tokens"}, …], "truncated"}`, where tokens are `[begin, end,
log P, source begin, source end]` or null; with `"terms"`, lines of `source = target`, it
returns one translation with these terms. `POST /api/align` takes `{"text", "translation"}` and
returns tokens and attention in the format of `attention_to_json`. If the export contains the
signatures, `POST /api/sample` takes `{"text", "seed", "temperature", "top_p"}` and answers like
`translate`, and `POST /api/document` takes `{"text"}`, optionally with `"terms"`, and returns
`{"translation"}`. Errors are `{"error"}`. `ExportedTranslator` computes the answers.
"""

import base64
import hashlib
import math
import re
from typing import NamedTuple

import flask
import numpy as np
import tensorflow as tf
from werkzeug.exceptions import BadRequest, HTTPException

from t2t_keras.errors import InputError
from t2t_keras.serving.demo.attention_page import attention_to_json
from t2t_keras.serving.loaded_export import LoadedExport
from t2t_keras.serving.signatures import signature_of
from t2t_keras.tasks.text_io import as_str

MAX_CHARACTERS = 1000
"""Maximum length of a sentence, in Unicode code points."""

MAX_DOCUMENT_CHARACTERS = 10_000

MAX_BYTES = 65_536
"""Maximum size of a request's body, enough for text and translation in any script."""

SAMPLES = 4
"""Samples of an answer."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(model, name):
    """Returns the web application, a `flask.Flask`.

    Args:
        model: `ExportedTranslator`, or an object with its methods and `modes`; called from several
            threads in parallel.
        name: the model's name on the page.
    """
    app = flask.Flask(__name__, template_folder=".", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES
    with app.app_context():
        page = flask.render_template(
            "page.html",
            name=name,
            max_characters=MAX_CHARACTERS,
            max_document_characters=MAX_DOCUMENT_CHARACTERS,
            modes=["sentence", *(mode for mode in ("document", "sample") if mode in model.modes)],
            with_terms=[mode for mode, name in _WITH_TERMS.items() if name in model.modes],
        )
    policy = _security_policy(page)

    @app.get("/")
    def index():
        return page

    @app.post("/api/translate")
    def translate():
        terms = _terms("sentence", model)
        return _as_json(model.translate(_text(), terms) if terms else model.translate(_text()))

    @app.post("/api/align")
    def align():
        aligned = model.align(_text(), _string("translation"))
        return attention_to_json(aligned.source_pieces, aligned.target_pieces, aligned.attention)

    if "sample" in model.modes:

        @app.post("/api/sample")
        def sample():
            limits = {"seed": (-(2**20), 2**20), "temperature": (0.01, 10), "top_p": (0.01, 1)}
            settings = {name: _number(name, *ends) for name, ends in limits.items()}
            return _as_json(model.sample(_text(), **settings))

    if "document" in model.modes:

        @app.post("/api/document")
        def document():
            text, terms = _text(MAX_DOCUMENT_CHARACTERS), _terms("document", model)
            return {"translation": model.document(text, terms)}

    @app.errorhandler(InputError)
    def refuse(error):
        return {"error": str(error)}, 400

    @app.errorhandler(HTTPException)
    def as_json(error):
        return {"error": _MESSAGES.get(error.code, error.description)}, error.code

    @app.after_request
    def guard(response):
        response.headers.update(_HEADERS | {"Content-Security-Policy": policy})
        return response

    return app


_MESSAGES = {
    413: f"The request is larger than {MAX_BYTES:,} bytes.",
    500: "The model failed on this text; the server's log says why.",
}


def _as_json(answer):
    return {
        "translations": [translation._asdict() for translation in answer.translations],
        "truncated": answer.truncated,
    }


def _text(most=MAX_CHARACTERS):
    text = _string("text")
    if not text.strip():
        flask.abort(400, "The text is empty: give a sentence.")
    if len(text) > most:
        flask.abort(400, f"The text has {len(text):,} characters: give at most {most:,}.")
    return text


_WITH_TERMS = {"sentence": "terms", "document": "document_terms"}
"""{what is translated: the signature that takes terms for it}."""


def _terms(mode, model):
    """Returns the terms of a request in the signature's form; "" if there are none."""
    if _WITH_TERMS[mode] not in model.modes:
        return ""
    pairs = []
    given = "" if _field("terms") is None else _string("terms")
    for line in given.splitlines():
        source, equals, target = (part.strip() for part in line.partition("="))
        if line.strip() and not (source and equals and target):
            flask.abort(400, f"The term {line.strip()!r} has another form: give source = target.")
        if line.strip():
            pairs.append(f"{source}\t{target}")
    return "\n".join(pairs)


def _number(name, least, most):
    value = _field(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or (name == "seed" and value % 1):
        kind = "whole number" if name == "seed" else "number"
        flask.abort(400, f"{name} is {value!r}: give a {kind} from {least:,} to {most:,}.")
    return value


def _field(name):
    """Returns a value of the request's JSON object, None if it is missing."""
    try:
        body = flask.request.get_json()
    except (BadRequest, RecursionError):
        flask.abort(400, "The request's body is not JSON.")
    return body.get(name) if isinstance(body, dict) else None


def _string(name):
    value = _field(name)
    if not isinstance(value, str):
        flask.abort(400, f'The request must be a JSON object with a string "{name}".')
    return value


def _security_policy(page):
    """Returns a Content-Security-Policy that allows the page's own style and script by hash."""

    def hashed(tag):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        digest = hashlib.sha256(content.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


class FoundTranslation(NamedTuple):
    """One translation."""

    text: str
    score: float
    # list of [begin, end, log P, source begin, source end], each token with its part of the
    # translation and the part of the source that it attends to; None if not known
    tokens: list | None = None


class Found(NamedTuple):
    """The translations of one text."""

    translations: list  # list of `FoundTranslation`, best first or in the order drawn
    truncated: bool  # whether the text exceeded the model's limit


class Alignment(NamedTuple):
    """The cross-attention of one translation."""

    source_pieces: list
    target_pieces: list
    attention: np.ndarray  # float32 [layers, heads, target, source]; row t predicts target token t


class ExportedTranslator:
    """The signatures of a SavedModel as functions of Python strings.

    Args:
        directory: folder that `pipelines.export` wrote.
        source_language, target_language: those of all texts, for an export of many languages.

    Attributes:
        modes: those of `document`, `sample`, `terms` and `document_terms` that it contains.

    Raises:
        InputError: if it is not a SavedModel or lacks a signature that the page needs, or a
            language is missing, unknown or not used by the export.
    """

    _NEEDED = ("serving_default", "n_best", "align")

    def __init__(self, directory, source_language=None, target_language=None):
        self._export = LoadedExport(directory, source_language, target_language)
        self._signatures = self._export.signatures
        if missing := [name for name in self._NEEDED if name not in self._signatures]:
            raise InputError(
                f"--saved_model={directory} has no signature {' and no '.join(missing)}: export "
                "the model again with python -m pipelines.export, which writes all of them unless "
                "told otherwise."
            )
        self.modes = {"document", "sample", *_WITH_TERMS.values()} & set(self._signatures)
        # The first run is slower, and a model that fails should fail at start-up.
        self.align("a", self.translate("a").translations[0].text)

    def translate(self, text, terms=""):
        """Returns `Found`; raises InputError if the model refuses the terms.

        `terms` are lines of a source phrase, a tab and its target phrase; "": none.
        """
        text, ask = _as_tensor(text), self._export.ask
        if terms:
            return _found("terms", ask("terms", text=text, terms=_as_tensor(terms)))
        if "n_best_tokens" not in self._signatures:
            # n_best has no such output, so the flag costs a second search.
            truncated = ask("serving_default", text=text)["truncated"]
            return _found("n_best", ask("n_best", text=text) | {"truncated": truncated})
        outputs = ask("n_best_tokens", text=text)
        return _found("n_best_tokens", outputs, _token_lists(outputs))

    def sample(self, text, seed, temperature, top_p):
        """Returns `Found` with a few samples; the numbers are inputs of the signature `sample`."""
        outputs = self._export.ask(
            "sample",
            text=tf.repeat(_as_tensor(text), SAMPLES),
            seed=tf.range(SAMPLES) + SAMPLES * int(seed),
            temperature=tf.fill([SAMPLES], float(temperature)),
            top_k=tf.zeros([SAMPLES], tf.int32),
            top_p=tf.fill([SAMPLES], float(top_p)),
        )
        return _found("sample", outputs)

    def document(self, text, terms=""):
        """Returns the translation of a document; terms: as for `translate`."""
        given = {"text": _as_tensor(text)} | ({"terms": _as_tensor(terms)} if terms else {})
        name = _WITH_TERMS["document"] if terms else "document"
        return as_str(self._export.ask(name, **given)["translation"][0].numpy())

    def align(self, text, translation):
        """Returns the `Alignment` of a text and a translation."""
        translation = _as_tensor(translation)
        outputs = self._export.ask("align", text=_as_tensor(text), translation=translation)
        source, target, attention = (outputs[name][0].numpy() for name in Alignment._fields)
        return Alignment([*map(as_str, source)], [*map(as_str, target)], attention)


def _found(name, outputs, tokens=None):
    """Returns the `Found` of a signature's outputs for one text, or for several samples of it."""
    signature = signature_of(name, outputs)
    texts, scores = (outputs[key].numpy().ravel() for key in (signature.answer, signature.score))
    rows = zip(texts, scores, tokens or [None] * len(texts), strict=True)
    return Found(
        # A score of -inf means that there are no more.
        [FoundTranslation(as_str(t), float(s), w) for t, s, w in rows if math.isfinite(s)],
        bool(outputs["truncated"][0]),
    )


def _token_lists(outputs):
    """Returns the tokens of each translation in the outputs of `n_best_tokens`, for one text."""
    counts, spans, log_probabilities, source_spans = (
        outputs[name][0].numpy().tolist()
        for name in ("tokens", "spans", "log_probabilities", "source_spans")
    )
    return [
        [
            [*span, log_probability, *source]
            for span, log_probability, source in list(zip(*row, strict=True))[:count]
        ]
        for count, *row in zip(counts, spans, log_probabilities, source_spans, strict=True)
    ]


def _as_tensor(text):
    return tf.constant([text.encode("utf-8", "replace")])
