"""Translates standard input with a model server, over REST; needs nothing but Python.

Usage: python tools/serving_client.py --port=8501 --name=translator < sentences.txt

Each line of input gives one line of output: the translation, or with --signature=n_best the
translations with tabs between them. The signatures prefix and score take two texts a line, with a
tab between them; the second is the prefix or the translation. With
--signature=score the output is log P and the number of tokens. A model of many languages needs
--target_language, and most --source_language.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import sys

SIGNATURES = {
    "serving_default": (["text"], lambda answer: [answer["translation"]]),
    "n_best": (["text"], lambda answer: answer["translations"]),
    "prefix": (["text", "prefix"], lambda answer: [answer["translation"]]),
    "score": (
        ["text", "translation"],
        lambda answer: [answer["log_probability"], answer["tokens"]],
    ),
}
"""{signature: its inputs, and what is printed of an answer}"""
LANGUAGES = ("source_language", "target_language")


class ServerError(Exception):
    """An error message of the server."""


class Client:
    """One connection to one model of a model server; the version None is the newest."""

    def __init__(self, host="localhost", port=8501, name="translator", version=None, timeout=60):
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout)
        self._path = f"/v1/models/{name}"
        if version is not None:
            self._path += f"/versions/{version}"

    def predict(self, signature, inputs, row_format=False):
        """Returns a list of dicts: the outputs of a signature for each row of a batch.

        `inputs` is a dict of lists of one length. With `row_format` request and answer list the
        rows of the batch ("instances", "predictions"), else the columns ("inputs", "outputs").

        Raises:
            ServerError: if the server answers with an error.
        """
        body = {"instances": _rows(inputs)} if row_format else {"inputs": inputs}
        content = json.dumps({"signature_name": signature, **body}).encode()
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._path}:predict", content, headers)
        response = self._connection.getresponse()
        content = response.read().decode(errors="replace")
        if response.status == http.client.OK:
            answer = json.loads(content)
            return answer["predictions"] if row_format else _rows(answer["outputs"])
        with contextlib.suppress(ValueError, KeyError, TypeError):
            content = json.loads(content)["error"]
        raise ServerError(f"{response.status} {response.reason}: {content}")


def _rows(columns):
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _columns(flags, lines):
    """Returns the inputs of a request for some lines."""
    names, _ = SIGNATURES[flags.signature]
    fields = [line.split("\t", len(names) - 1) for line in lines]
    for line, values in zip(lines, fields, strict=True):
        if len(values) != len(names):
            raise ServerError(f"{flags.signature} takes {' and '.join(names)} a line, not {line!r}")
    columns = dict(zip(names, map(list, zip(*fields, strict=True)), strict=True))
    codes = {name: [getattr(flags, name) or ""] * len(lines) for name in LANGUAGES}
    return columns | (codes if flags.source_language or flags.target_language else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="localhost", help="of the server; default: localhost")
    parser.add_argument("--port", type=int, default=8501, help="of its REST API; default: 8501")
    parser.add_argument("--name", default="translator", help="of the model; default: translator")
    parser.add_argument("--version", type=int, help="the newest if not given")
    text = "what to ask for; default: serving_default"
    parser.add_argument("--signature", default="serving_default", choices=SIGNATURES, help=text)
    for name in LANGUAGES:
        parser.add_argument(f"--{name}", help="code of all lines, of a model of many languages")
    text = "of a request: a list for each input, or an object for each line; default: column"
    parser.add_argument("--format", default="column", choices=["column", "row"], help=text)
    parser.add_argument("--batch_size", type=int, default=32, help="lines a request; default: 32")
    parser.add_argument("--timeout", type=float, default=60, help="seconds; default: 60")
    flags = parser.parse_args()
    client = Client(flags.host, flags.port, flags.name, flags.version, flags.timeout)
    _, printed = SIGNATURES[flags.signature]
    sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        lines = (line.removesuffix("\n") for line in sys.stdin)
        while batch := list(itertools.islice(lines, flags.batch_size)):
            inputs = _columns(flags, batch)
            for answer in client.predict(flags.signature, inputs, flags.format == "row"):
                print("\t".join(" ".join(str(field).split()) for field in printed(answer)))
    except (ServerError, OSError, http.client.HTTPException, ValueError) as error:
        place = f"{flags.host}:{flags.port}"
        sys.exit(f"error: {place}: {' '.join(str(error).split()) or type(error).__name__}")


if __name__ == "__main__":
    main()
