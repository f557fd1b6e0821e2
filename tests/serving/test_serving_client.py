import json
import pathlib
import subprocess
import sys

import pytest

from tests.serving.model_server import serving
from tests.serving.session import loaded_export
from tests.tasks import tiny

pytestmark = pytest.mark.slow

CLIENT = pathlib.Path(__file__).parents[2] / "tools" / "serving_client.py"
LINES = ["A train.", "", 'Ünïcode 😀 "quoted" \\ \'n', "The old man sees a small dog.", "\x00\x07"]


def client(*flags, lines=LINES):
    return subprocess.run(
        [sys.executable, "-I", CLIENT, *flags],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        check=False,
    )


def answer(server, *flags, lines=LINES):
    run = client(f"--port={server.server_port}", *flags, lines=lines)
    assert run.returncode == 0, run.stderr
    return run.stdout.decode().removesuffix("\n").split("\n")


@pytest.mark.parametrize("form", ["row", "column"])
def test_translations_are_those_of_the_translator(server, translator, form):
    server.requests.clear()
    found = answer(server, f"--format={form}", "--batch_size=2", "--version=1")
    assert found == [" ".join(text.split()) for text in translator(LINES)]
    assert [headers["Content-Type"] for headers, _ in server.requests] == ["application/json"] * 3
    key = {"row": "instances", "column": "inputs"}[form]
    assert all(key in json.loads(body) for _, body in server.requests)
    beams = answer(server, f"--format={form}", "--signature=n_best", lines=LINES[:2])
    assert [line.split("\t") for line in beams] == [
        [" ".join(t.text.split()) for t in row] for row in translator.n_best(LINES[:2])
    ]


def test_signatures_of_two_texts_take_a_tab_between_them(server, translator):
    lines = ["A train.\tDer Hund", "A train.\t"]
    forced, free = answer(server, "--signature=prefix", lines=lines)
    assert forced.startswith("Der Hund")
    assert free == translator(["A train."])[0]
    scores = [line.split("\t") for line in answer(server, "--signature=score", lines=lines)]
    assert all(float(log_probability) < 0 for log_probability, _ in scores)
    assert int(scores[1][1]) == 1  # the end alone


def test_a_model_of_many_languages_gets_them_of_all_lines(tmp_path):
    translator = tiny.multilingual_translator(source="source", forces_target=True)
    loaded = loaded_export(translator, tmp_path / "1", "serving_default")
    with serving(loaded, version=1) as server:
        found = answer(server, "--source_language=en", "--target_language=fr", lines=LINES[:2])
        refused = client(f"--port={server.server_port}", "--target_language=xx", lines=LINES[:2])
    expected = translator(LINES[:2], source_language="en", target_language="fr")
    assert found == [" ".join(text.split()) for text in expected]
    assert b"give one of de, en, fr for each text" in refused.stderr


@pytest.mark.parametrize(("flags", "lines", "message"), [
    (["--name=other"], LINES, "404 Not Found: Servable not found for request: Latest(other)"),
    (["--version=8"], LINES, "404 Not Found: Servable not found"),
    (["--signature=prefix"], ["no tab"], "prefix takes text and prefix a line, not 'no tab'"),
    (["--port=1"], LINES, "refused"),
])  # fmt: skip
def test_an_error_is_one_line_and_exit_code_1(server, flags, lines, message):
    run = client(f"--port={server.server_port}", *flags, lines=lines)
    assert run.returncode == 1
    assert not run.stdout
    (line,) = run.stderr.decode().splitlines()
    assert line.startswith("error: localhost:")
    assert message in line
