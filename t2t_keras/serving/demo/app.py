"""The demo page and its two requests, as a WSGI application.

`GET /` returns the page in one answer. `POST /api/translate` takes `{"text"}` and returns
`{"translations": [{"text", "score"}, …], "truncated"}`. `POST /api/align` takes
`{"text", "translation"}` and returns tokens and attention in the format of `wire.py`. Errors are
`{"error"}`.
"""

import base64
import hashlib
import re

import flask
from werkzeug.exceptions import BadRequest, HTTPException

from t2t_keras.serving.demo.wire import attention_to_json

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
        flask.abort(400, "The request's body is no JSON that can be read.")
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
