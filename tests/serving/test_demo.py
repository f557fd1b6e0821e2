"""The page's server: its answers, what it refuses, where it listens and how it ends."""

import base64
import hashlib
import json
import re
import shutil
import signal
import socket
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from tests.end_to_end.binaries import popen
from tests.tasks import tiny

for package in ("flask", "waitress"):
    pytest.importorskip(package, reason=f"the extra demo is not installed: no {package}")

from t2t_keras.serving.demo import app  # noqa: E402
from t2t_keras.serving.demo.app import ExportedTranslator  # noqa: E402

pytestmark = pytest.mark.slow

HOSTILE = [
    "<script>alert('dog')</script>",
    "\"The\" 'dog' & </textarea> {{ 7 * 7 }} {% raw %}",
    "the\x00dog \x07\x1b[31m \x7f\u0085 \u202e\u05d0\u05d1\u202c \U0001f468\u200d\U0001f469\x00",
    "a lone \ud800 surrogate",
]


@pytest.fixture(scope="module")
def model(exported):
    return ExportedTranslator(exported)


@pytest.fixture(scope="module")
def client(model):
    return app.create_app(model, "export/1").test_client()


def page(client):
    return client.get("/").get_data(as_text=True)


def in_bytes(text):
    return text.encode("utf-8", "replace")


def test_the_page_is_whole_in_one_answer(client):
    html = page(client)
    assert set(re.findall(r"https?://[\w./]*", html)) == {"http://www.w3.org/2000/svg"}
    links = re.findall(r"""(?:src|href|action)\s*=\s*["']?(\S+)""", html)
    assert links and all(link.startswith("data:") for link in links)
    assert "@import" not in html and "url(" not in html
    assert "export/1" in html


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/translate"])
def test_every_answer_allows_only_the_pages_own_script_and_style(client, path):
    headers = client.get(path).headers
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page(client), flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("text", [tiny.LINES[0], "word " * 190, *HOSTILE])
def test_translations_are_those_of_the_signatures(client, served, text):
    found = client.post("/api/translate", json={"text": text})
    assert found.status_code == 200
    expected = served("n_best_tokens", text=[in_bytes(text)])
    count = np.count_nonzero(np.isfinite(expected["scores"][0]))
    assert len(found.json["translations"]) == count
    for beam, translation in enumerate(found.json["translations"]):
        assert translation["text"] == expected["translations"][0, beam].decode()
        assert translation["score"] == pytest.approx(expected["scores"][0, beam], rel=1e-4)
        tokens = np.reshape(translation["tokens"], [-1, 5])
        assert len(tokens) == expected["tokens"][0, beam]
        place = 0, beam, slice(len(tokens))
        np.testing.assert_array_equal(tokens[:, :2], expected["spans"][place])
        np.testing.assert_allclose(tokens[:, 2], expected["log_probabilities"][place], 1e-4, 1e-5)
        np.testing.assert_array_equal(tokens[:, 3:], expected["source_spans"][place])
    truncated = served("serving_default", text=[in_bytes(text)])["truncated"][0]
    assert found.json["truncated"] == truncated
    assert truncated or not text.startswith("word")


@pytest.mark.parametrize("text", [tiny.LINES[0], HOSTILE[-1]])
def test_samples_are_those_of_the_signature(client, served, text):
    settings = {"seed": -3, "temperature": 0.7, "top_p": 0.95}
    found = client.post("/api/sample", json={"text": text, **settings})
    assert found.status_code == 200
    expected = served(
        "sample",
        text=[in_bytes(text)] * 4,
        seed=np.array([-12, -11, -10, -9], np.int32),
        temperature=np.full(4, 0.7, np.float32),
        top_k=np.zeros(4, np.int32),
        top_p=np.full(4, 0.95, np.float32),
    )
    texts = [translation["text"] for translation in found.json["translations"]]
    assert texts == [translation.decode() for translation in expected["translation"]]
    assert len(set(texts)) > 1


def test_the_page_offers_what_the_export_has(exported_wordpiece):
    """An export without the newer signatures is shown as before."""
    old = ExportedTranslator(exported_wordpiece)
    assert old.modes == set()
    client = app.create_app(old, "export/1").test_client()
    assert 'data-modes="sentence"' in page(client)
    assert client.post("/api/sample", json={"text": "dog"}).status_code == 404
    [translation] = client.post("/api/translate", json={"text": "The dog."}).json["translations"]
    assert translation["text"] and translation["tokens"] is None


@pytest.mark.parametrize(("text", "translation"), [(tiny.LINES[2], tiny.LINES[3]), HOSTILE[:2]])
def test_an_alignment_is_that_of_the_signature(client, served, text, translation):
    found = client.post("/api/align", json={"text": text, "translation": translation})
    assert found.status_code == 200
    expected = served("align", text=[in_bytes(text)], translation=[in_bytes(translation)])
    for side in ("source", "target"):
        assert found.json[side] == [p.decode() for p in expected[f"{side}_pieces"][0]]
    shape = [found.json["layers"], found.json["heads"]]
    shape += [len(found.json["target"]), len(found.json["source"])]
    weights = np.frombuffer(base64.b64decode(found.json["weights"]), "<u2").reshape(shape)
    np.testing.assert_allclose(weights / 65_535, expected["attention"][0], atol=1e-5)


def sample(**changes):
    return "sample", {"text": "dog", "seed": 1, "temperature": 1, "top_p": 1} | changes


@pytest.mark.parametrize(("question", "body", "reason"), [
    ("translate", b"", "not JSON"),
    ("align", b"\xff\xfe", "not JSON"),
    ("translate", b"[" * 16_000, "not JSON"),
    ("align", b"[]", 'a string "text"'),
    ("translate", {"text": ["a"]}, 'a string "text"'),
    ("align", {"text": "a"}, 'a string "translation"'),
    ("translate", {"text": " \t\n\u2003"}, "empty"),
    ("align", {"text": "a" * 1001}, "has 1,001 characters: give at most 1,000"),
    (*sample(temperature=0), "temperature is 0: give a number from 0.01 to 10."),
    (*sample(temperature=True), "temperature is True: give a number"),
    (*sample(temperature=float("nan")), "temperature is nan: give a number"),
    (*sample(top_p=1.5), "top_p is 1.5: give a number from 0.01 to 1."),
    (*sample(seed=0.5), "seed is 0.5: give a whole number from -1,048,576 to 1,048,576."),
    (*sample(text=""), "The text is empty"),
    ("translate", {"text": "a", "more": "b" * app.MAX_BYTES},  # is not read
     "The request is larger than 65,536 bytes."),
])  # fmt: skip
def test_a_bad_request_is_refused_with_a_reason(client, question, body, reason):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = client.post(f"/api/{question}", data=data, content_type="application/json")
    assert found.status_code == (413 if "larger" in reason else 400)
    assert reason in found.json["error"]


def test_other_requests_are_refused_as_json(client):
    form = client.post("/api/translate", data={"text": "The dog."})  # as a foreign page may send
    codes = [form, client.get("/api/translate"), client.get("/static/app.py"), client.put("/")]
    assert [found.status_code for found in codes] == [415, 405, 404, 405]
    assert all(found.json["error"] for found in codes)


def test_a_failing_model_is_told_without_its_reason():
    class Failing:
        modes = ()

        def translate(self, text):
            raise ValueError("a secret")

    client = app.create_app(Failing(), "export/1").test_client()
    found = client.post("/api/translate", json={"text": "The dog."})
    assert found.status_code == 500
    assert found.json == {"error": "The model failed on this text; the server's log says why."}


def test_a_folder_without_an_export_is_refused(exported, tmp_path):
    with pytest.raises(InputError, match=r"cannot be loaded as a SavedModel.*numbered folder"):
        ExportedTranslator(str(tmp_path))
    half = tmp_path / "half"
    shutil.copytree(exported, half)
    shutil.rmtree(half / "variables")
    with pytest.raises(InputError, match=r"variables.* is missing"):
        ExportedTranslator(str(half))


def test_an_export_without_the_pages_signatures_is_refused(tmp_path):
    module = tf.Module()
    module.same = tf.function(tf.identity, [tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path), signatures={"n_best": module.same})
    with pytest.raises(InputError, match="has no signature serving_default and no align: export"):
        ExportedTranslator(str(tmp_path))


def test_the_binary_serves_this_machine_alone_until_it_is_told_to_end(exported):
    process = popen("demo", f"--saved_model={exported}", "--port=0")
    url = process.stdout.readline().decode().strip()
    host, port = re.fullmatch(r"http://(.*):(\d+)", url).groups()
    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", int(port)), timeout=5)
    request = urllib.request.Request(
        f"{url}/api/translate",
        json.dumps({"text": "The dog."}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["translations"]
    # Not even taken in: the connection ends with the headers of two gibibytes.
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"POST / HTTP/1.0\r\nContent-Length: 2147483648\r\n\r\n")
        assert b" 413 " in connection.recv(100)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, b"")
    assert b"Traceback" not in stderr
