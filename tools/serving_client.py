"""Translates standard input with a model server, over REST; needs nothing but Python.

Usage: python tools/serving_client.py --port=8501 --name=translator < sentences.txt

Each line of input gives one line of output: the translation, or with --signature=n_best the
translations with tabs between them. The signatures prefix and score take two texts a line, with a
tab between them, the second one being the beginning of the translation or the translation; score
prints log P and the number of tokens. A model of many languages needs --target_language, and most
--source_language.
"""

import argparse
import http.client
import itertools
import json
import sys

INPUTS = {
    "serving_default": ["text"],
    "n_best": ["text"],
    "prefix": ["text", "prefix"],
    "score": ["text", "translation"],
}
LANGUAGES = ("source_language", "target_language")
PRINTED = {
    "serving_default": lambda answer: [answer["translation"]],
    "n_best": lambda answer: answer["translations"],
    "prefix": lambda answer: [answer["translation"]],
    "score": lambda answer: [answer["log_probability"], answer["tokens"]],
}


class ServerError(Exception):
    """An error message of the server."""


class Client:
    """One connection to one model of a model server, kept open for all requests.

    Args:
        host: name or address of the server.
        port: its REST port.
        name: the model's name.
        version: number of the version to ask; None for the newest.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, host="localhost", port=8501, name="translator", version=None, timeout=60):
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout)
        self._path = f"/v1/models/{name}"
        if version is not None:
            self._path += f"/versions/{version}"

    def predict(self, signature, inputs, row_format=False):
        """Asks a signature about a batch.

        Args:
            signature: name of the signature.
            inputs: dict of lists of one length, every input of the signature.
            row_format: bool, whether request and answer list the rows of the batch ("instances",
                "predictions") or the columns ("inputs", "outputs").

        Returns:
            List of dicts, the outputs for each row of the batch.

        Raises:
            ServerError: if the server answers with an error.
        """
        body = {"instances": _rows(inputs)} if row_format else {"inputs": inputs}
        answer = self._post({"signature_name": signature, **body})
        return answer["predictions"] if row_format else _rows(answer["outputs"])

    def _post(self, body):
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._path}:predict", content, headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise ServerError(f"{response.status} {response.reason}: {_reason(content)}")
        return json.loads(content)


def _rows(columns):
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _reason(content):
    """Returns the message of {"error": message}, or whatever else the server sent."""
    text = content.decode(errors="replace")
    try:
        return json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return text


def _inputs(signature, lines):
    """Cuts lines into the columns of a request."""
    names = INPUTS[signature]
    fields = [line.split("\t", len(names) - 1) for line in lines]
    for line, values in zip(lines, fields, strict=True):
        if len(values) != len(names):
            raise ServerError(f"{signature} takes {' and '.join(names)} a line, not {line!r}")
    return {name: [values[i] for values in fields] for i, name in enumerate(names)}


def _languages(flags, count):
    """Returns the columns of languages, none where no flag gives one."""
    codes = [getattr(flags, name) for name in LANGUAGES]
    if not any(codes):
        return {}
    return {name: [code or ""] * count for name, code in zip(LANGUAGES, codes, strict=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="localhost", help="of the server; default: localhost")
    parser.add_argument("--port", type=int, default=8501, help="of its REST API; default: 8501")
    parser.add_argument("--name", default="translator", help="of the model; default: translator")
    parser.add_argument("--version", type=int, help="the newest if not given")
    parser.add_argument(
        "--signature",
        default="serving_default",
        choices=INPUTS,
        help="what to ask for; default: serving_default",
    )
    for name in LANGUAGES:
        parser.add_argument(f"--{name}", help="code of all lines, of a model of many languages")
    parser.add_argument(
        "--format",
        default="column",
        choices=["column", "row"],
        help="of a request: a list for each input, or an object for each line; default: column",
    )
    parser.add_argument("--batch_size", type=int, default=32, help="lines a request; default: 32")
    parser.add_argument("--timeout", type=float, default=60, help="seconds; default: 60")
    flags = parser.parse_args()
    client = Client(flags.host, flags.port, flags.name, flags.version, flags.timeout)
    sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        lines = (line.removesuffix("\n") for line in sys.stdin)
        while batch := list(itertools.islice(lines, flags.batch_size)):
            inputs = _inputs(flags.signature, batch) | _languages(flags, len(batch))
            for answer in client.predict(flags.signature, inputs, flags.format == "row"):
                fields = (
                    " ".join(str(field).split()) for field in PRINTED[flags.signature](answer)
                )
                print("\t".join(fields))
    except (ServerError, OSError, http.client.HTTPException, ValueError) as error:
        place = f"{flags.host}:{flags.port}"
        sys.exit(f"error: {place}: {' '.join(str(error).split()) or type(error).__name__}")


if __name__ == "__main__":
    main()
