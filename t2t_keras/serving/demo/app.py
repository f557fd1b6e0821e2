"""The demo page and its two requests, as a WSGI application.

`GET /` returns the page in one answer. `POST /api/translate` takes `{"text"}` and returns
`{"translations": [{"text", "score"}, …], "truncated"}`. `POST /api/align` takes
`{"text", "translation"}` and returns tokens and attention in the format of
`attention_to_json`. Errors are `{"error"}`. `ExportedTranslator` gives the answers.
"""

import base64
import hashlib
import re
from typing import NamedTuple

import flask
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of an exported tokenizer
from werkzeug.exceptions import BadRequest, HTTPException

from t2t_keras.data.files import check_checksums, tensorflow_path
from t2t_keras.errors import InputError
from t2t_keras.serving.demo.attention_page import attention_to_json
from t2t_keras.serving.signatures import language_inputs, unknown_languages_refused

MAX_CHARACTERS = 1000
"""Maximum length of a text, in Unicode code points."""

MAX_BYTES = 16_384
"""Maximum size of a request's body, enough for text and translation in any script."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(model, name):
    """Makes the web application.

    Args:
        model: `ExportedTranslator`, or an object with its `translate` and `align`; called from
            several threads in parallel.
        name: str, the model's name on the page.

    Returns:
        `flask.Flask`.
    """
    app = flask.Flask(__name__, template_folder=".", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES
    with app.app_context():
        page = flask.render_template("page.html", name=name, max_characters=MAX_CHARACTERS)
    policy = _security_policy(page)

    @app.get("/")
    def index():
        return page

    @app.post("/api/translate")
    def translate():
        text = _text()
        found = model.translate(text)
        return {
            "translations": [{"text": text, "score": score} for text, score in found.translations],
            "truncated": found.truncated,
        }

    @app.post("/api/align")
    def align():
        found = model.align(_text(), _string("translation"))
        return attention_to_json(found.source_pieces, found.target_pieces, found.attention)

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


def _text():
    text = _string("text")
    if not text.strip():
        flask.abort(400, "The text is empty: give a sentence.")
    if len(text) > MAX_CHARACTERS:
        flask.abort(400, f"The text has {len(text):,} characters: give at most {MAX_CHARACTERS:,}.")
    return text


def _string(name):
    try:
        body = flask.request.get_json()
    except (BadRequest, RecursionError):
        flask.abort(400, "The request's body is not JSON.")
    value = body.get(name) if isinstance(body, dict) else None
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


class Found(NamedTuple):
    """The translations of one text.

    Attributes:
        translations: list of (str, float), texts and scores, best first.
        truncated: bool, whether the text exceeded the model's limit.
    """

    translations: list
    truncated: bool


class Alignment(NamedTuple):
    """The cross-attention of one translation.

    Attributes:
        source_pieces: list of str, tokens.
        target_pieces: list of str, tokens.
        attention: float32 [layers, heads, target, source]; row t predicts target token t.
    """

    source_pieces: list
    target_pieces: list
    attention: np.ndarray


class ExportedTranslator:
    """The signatures of a SavedModel as functions of Python strings.

    Args:
        directory: folder that `pipelines.export` wrote.
        source_language, target_language: str or None, the languages of all texts, for an export of
            many languages.

    Raises:
        InputError: if it is not a SavedModel or lacks a signature that the page needs, or a
            language is missing, unknown or not taken.

    Example:
        >>> ExportedTranslator("export/1").translate("Hello world.").translations
        [('Hallo Welt.', -0.3), ('Hallo, Welt.', -0.9)]
    """

    _NEEDED = ("serving_default", "n_best", "align")

    def __init__(self, directory, source_language=None, target_language=None):
        check_checksums(directory)
        try:
            with tensorflow_path(directory) as path:
                # Keeps the variables alive: signatures hold weak references only.
                self._model = tf.saved_model.load(path)
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise InputError(
                f"--saved_model={directory} cannot be loaded as a SavedModel ({error}): give the "
                "numbered folder that python -m pipelines.export printed."
            ) from error
        self._signatures = self._model.signatures
        if missing := [name for name in self._NEEDED if name not in self._signatures]:
            raise InputError(
                f"--saved_model={directory} has no signature {' and no '.join(missing)}: export "
                "the model again with python -m pipelines.export, which writes all of them unless "
                "told otherwise."
            )
        self._languages = {
            name: _as_tensor(code)
            for name, code in language_inputs(
                self._signatures["n_best"], source_language, target_language
            ).items()
        }
        # The first run is slower, and a model that fails should fail at start-up.
        with unknown_languages_refused():
            self.align("a", self.translate("a").translations[0][0])

    def translate(self, text):
        """Returns `Found` for a str."""
        text = _as_tensor(text)
        found = self._signatures["n_best"](text=text, **self._languages)
        texts, scores = found["translations"][0].numpy(), found["scores"][0].numpy()
        return Found(
            # A score of -inf means that there are no more.
            [(_as_str(t), float(s)) for t, s in zip(texts, scores, strict=True) if np.isfinite(s)],
            # n_best has no such output, so the flag costs a second search.
            bool(self._signatures["serving_default"](text=text, **self._languages)["truncated"][0]),
        )

    def align(self, text, translation):
        """Returns the `Alignment` of a text and a translation, both str."""
        translation = _as_tensor(translation)
        found = self._signatures["align"](
            text=_as_tensor(text), translation=translation, **self._languages
        )
        pieces = {
            name: [_as_str(piece) for piece in found[name][0].numpy()]
            for name in ("source_pieces", "target_pieces")
        }
        return Alignment(**pieces, attention=found["attention"][0].numpy())


def _as_tensor(text):
    return tf.constant([text.encode("utf-8", "replace")])


def _as_str(text):
    return text.decode("utf-8", "replace")
