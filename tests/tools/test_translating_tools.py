"""The tools that translate standard input, with a server of canned answers and a tiny export."""

import contextlib
import http.server
import importlib.util
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
LINES = "".join(f"line {i}\n" for i in range(70))


@contextlib.contextmanager
def canned(*answers):
    """A server that gives these answers, (status, content), and afterwards upper-case texts."""
    answers = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
            upper = {"outputs": {"translation": [text.upper() for text in texts["text"]]}}
            status, content = answers.pop(0) if answers else (200, json.dumps(upper))
            if not status:
                self.connection.shutdown(socket.SHUT_RDWR)  # without an answer
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    with server:
        yield server.server_port
        server.shutdown()


def client(port, *flags, text=LINES, end=""):
    script = f"{sys.executable} -I {TOOLS}/serving_client.py --port={port} {' '.join(flags)} {end}"
    command = ["bash", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


GOOD = (200, json.dumps({"outputs": {"translation": [f"LINE {i}" for i in range(32)]}}))


@pytest.mark.parametrize("answers", [
    [],
    [(503, '{"error": "Servable is loading"}')],
    [GOOD, (0, "")],
])  # fmt: skip
def test_a_busy_or_lost_server_is_asked_again(answers):
    with canned(*answers) as port:
        assert client(port) == (0, LINES.upper(), "")


@pytest.mark.parametrize(("answers", "flags", "message"), [
    ([(200, "<html>")], [], "the answer is not of 32 rows of outputs: '<html>'"),
    ([(200, "[1]")], [], "the answer is not of 32 rows of outputs: '[1]'"),
    ([(200, '{"outputs": {"translation": ["A"]}}')], [], "is not of 32 rows"),
    ([(200, json.dumps({"outputs": {"score": [0] * 32}}))], [], "without 'translation'"),
    ([(400, '{"error": "no such\\ninput"}')], [], "400 Bad Request: no such input"),
    ([], ["--batch_size=0"], "argument --batch_size: 0: give a number above 0"),
    ([], ["--timeout=nan"], "argument --timeout: nan: give a number above 0"),
    ([], ["--signature=other"], "invalid choice: 'other'"),
])  # fmt: skip
def test_an_error_of_the_client_is_one_line(answers, flags, message):
    with canned(*answers) as port:
        code, stdout, stderr = client(port, *flags)
    assert (code, stdout) == (1, "")
    [line] = stderr.splitlines()
    assert line.startswith("error: ") and message in line


def test_lines_lose_their_carriage_returns_and_documents_keep_their_white_space():
    text = "\ufeffa  b\r\n\r\n c"
    with canned() as port:
        assert client(port, text=text) == (0, "A B\n\nC\n", "")
        assert client(port, "--signature=document", text=text) == (0, "A  B\r\n\r\n C\n", "")
        assert client(port, text="") == (0, "", "")


def test_a_closed_output_ends_the_client_silently():
    with canned() as port:
        assert client(port, text=LINES * 40, end="| head -1") == (0, "LINE 0\n", "")


# saved_model_translate.py -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """An export that translates into upper case."""

    class Upper(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def translate(self, text):
            return {"translation": tf.strings.upper(text), "score": tf.zeros(tf.shape(text))}

    folder = tmp_path_factory.mktemp("export")
    module = Upper()
    tf.saved_model.save(module, str(folder / "1"), {"serving_default": module.translate})
    tf.saved_model.save(tf.Module(), str(folder / "other"))
    return folder


def translate(monkeypatch, capfdbinary, arguments, content):
    spec = importlib.util.spec_from_file_location("tool", TOOLS / "saved_model_translate.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    monkeypatch.delitem(sys.modules, "t2t_keras", raising=False)
    try:
        tool.main(arguments)
    except SystemExit as error:
        return error.code
    return capfdbinary.readouterr().out


@pytest.mark.parametrize(("content", "expected"), [
    (b"", b""),
    (b"a\r\n\nb", b"a\n    A   (score 0.00)\n\n       (score 0.00)\nb\n    B   (score 0.00)\n"),
    (b"caf\xe9\xe2\x80\xa8!\n", b"caf\xe9\xe2\x80\xa8!\n    CAF\xe9\xe2\x80\xa8!   (score 0.00)\n"),
])  # fmt: skip
def test_each_line_of_bytes_is_translated(content, expected, export, monkeypatch, capfdbinary):
    found = translate(monkeypatch, capfdbinary, [os.fspath(export / "1")], content)
    assert found == expected


@pytest.mark.parametrize(("folders", "message"), [
    ([], "error: give one folder"),
    ([""], "has no saved_model.pb: give one of its folders, 1, other"),
    (["1/variables"], "has no saved_model.pb: give an export"),
    (["other"], "cannot translate this ('serving_default')"),
])  # fmt: skip
def test_a_wrong_folder_is_one_line(folders, message, export, monkeypatch, capfdbinary):
    folders = [os.fspath(export / name) for name in folders]
    found = translate(monkeypatch, capfdbinary, folders, b"a\n")
    assert message in found and "\n" not in found
