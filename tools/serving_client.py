"""Translates standard input with a model server, over REST; needs nothing but Python.

Usage: python tools/serving_client.py --port=8501 --name=translator < sentences.txt

Each line of input gives one line of output: the translation, or with --signature=n_best the
translations with tabs between them. The signatures prefix and score take two texts a line, with a
tab between them; the second is the prefix or the translation. With --signature=score the output is
log P and the number of tokens; with --signature=document each line is a text of any number of
sentences, whose white space stays. A model of many languages needs --target_language, and most
--source_language.

A busy server (503, 429, 502, 504) is asked again after 0.5 seconds, then 1, 2, …, and so is one
that is lost after its first answer.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import sys
import time

SIGNATURES = {
    "serving_default": (["text"], lambda answer: [answer["translation"]]),
    "n_best": (["text"], lambda answer: answer["translations"]),
    "prefix": (["text", "prefix"], lambda answer: [answer["translation"]]),
    "document": (["text"], lambda answer: [answer["translation"]]),
    "score": (["text", "translation"], lambda a: [a["log_probability"], a["tokens"]]),
}
"""{signature: its inputs, and what is printed of an answer}"""
LANGUAGES = ("source_language", "target_language")
BUSY = (429, 502, 503, 504)


class ServerError(Exception):
    """An error message of the server."""


class BusyError(ServerError):
    """The server cannot answer now."""


class Client:
    """One connection to one model of a model server; the version None is the newest.

    `retries` is the number of further attempts at one request.
    """

    def __init__(
        self, host="localhost", port=8501, name="translator", version=None, timeout=60, retries=6
    ):
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout)
        self._path = f"/v1/models/{name}"
        if version is not None:
            self._path += f"/versions/{version}"
        self._retries = retries
        self._was_answered = False

    def predict(self, signature, inputs, row_format=False):
        """Returns a list of dicts: the outputs of a signature for each row of a batch.

        `inputs` is a dict of lists of one length. With `row_format` request and answer list the
        rows of the batch ("instances", "predictions"), else the columns ("inputs", "outputs").

        Raises:
            ServerError: if the server answers with an error, or with something else.
        """
        body = {"instances": _rows(inputs)} if row_format else {"inputs": inputs}
        content = json.dumps({"signature_name": signature, **body}).encode()
        answer = self._ask_again(content)
        count = len(next(iter(inputs.values())))
        try:
            answer = json.loads(answer)
            rows = answer["predictions"] if row_format else _rows(answer["outputs"])
            if len(rows) == count and all(isinstance(row, dict) for row in rows):
                return rows
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        shown = str(answer)[:80]
        raise ServerError(f"the answer is not of {count} rows of outputs: {shown!r}")

    def _ask_again(self, content):
        """Returns the answer to a request, str, asking a busy or lost server again."""
        for attempt in itertools.count():
            try:
                answer = self._ask(content)
                self._was_answered = True
                return answer
            except (BusyError, OSError, http.client.HTTPException) as error:
                self._connection.close()
                may_recover = isinstance(error, BusyError) or self._was_answered
                if attempt == self._retries or not may_recover:
                    raise
                time.sleep(0.5 * 2**attempt)
        raise AssertionError

    def _ask(self, content):
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._path}:predict", content, headers)
        response = self._connection.getresponse()
        answer = response.read().decode(errors="replace")
        if response.status == http.client.OK:
            return answer
        with contextlib.suppress(ValueError, KeyError, TypeError):
            answer = json.loads(answer)["error"]
        kind = BusyError if response.status in BUSY else ServerError
        raise kind(f"{response.status} {response.reason}: {answer}")


def _rows(columns):
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


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


class _Parser(argparse.ArgumentParser):
    """Reports a mistake as the server's errors are: one line, exit code 1."""

    def error(self, message):
        sys.exit(f"error: {message} (--help lists all flags)")


def _positive(kind):
    def parse(text):
        number = kind(text)
        if not 0 < number < 2**31:  # nor NaN
            raise argparse.ArgumentTypeError(f"{text}: give a number above 0")
        return number

    parse.__name__ = kind.__name__  # for argparse's message
    return parse


def _printed(flags, answer):
    """Returns the line of output for a row of an answer."""
    try:
        fields = SIGNATURES[flags.signature][1](answer)
        if flags.signature == "document":
            return fields[0].replace("\n", " ")
        return "\t".join(" ".join(str(field).split()) for field in fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ServerError(f"an answer of {flags.signature} without {error}") from error


def _answers(flags):
    """Yields the lines of output."""
    client = Client(flags.host, flags.port, flags.name, flags.version, flags.timeout)
    dropped = "" if flags.signature == "document" else "\r"  # a document keeps its white space
    lines = (line.removesuffix("\n").removesuffix(dropped) for line in sys.stdin)
    while batch := list(itertools.islice(lines, flags.batch_size)):
        inputs = _columns(flags, batch)
        for answer in client.predict(flags.signature, inputs, flags.format == "row"):
            yield _printed(flags, answer)


FLAGS = [
    ("host", "localhost", "of the server", {}),
    ("port", 8501, "of its REST API", {"type": _positive(int)}),
    ("name", "translator", "of the model", {}),
    ("version", None, "the newest if not given", {"type": int}),
    ("signature", "serving_default", "what to ask for", {"choices": SIGNATURES}),
    *((name, None, "code of all lines, of a model of many languages", {}) for name in LANGUAGES),
    ("format", "column", "of a request: a list for each input, or an object for each line",
     {"choices": ["column", "row"]}),
    ("batch_size", 32, "lines a request", {"type": _positive(int)}),
    ("timeout", 60, "seconds", {"type": _positive(float)}),
]  # fmt: skip


def main():
    parser = _Parser(description=__doc__.partition("\n")[0])
    for name, default, text, options in FLAGS:
        shown = text if default is None else f"{text}; default: {default}"
        parser.add_argument(f"--{name}", default=default, help=shown, **options)
    flags = parser.parse_args()
    sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    answers = _answers(flags)
    while True:
        try:
            line = next(answers, None)
        except (ServerError, OSError, http.client.HTTPException) as error:
            place = f"{flags.host}:{flags.port}"
            reason = " ".join(str(error).split()) or type(error).__name__
            with contextlib.suppress(BrokenPipeError):
                sys.stdout.flush()
            sys.exit(f"error: {place}: {reason}")
        try:
            if line is None:
                sys.stdout.flush()
                return
            print(line)
        except BrokenPipeError:  # whoever reads the output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return


if __name__ == "__main__":
    main()
