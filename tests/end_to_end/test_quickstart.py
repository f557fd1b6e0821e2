"""The first thing that a newcomer runs; minutes of training, so marked slow."""

import json
import os
import re
import subprocess
import time

import pytest

from tests.end_to_end.guides import ROOT, find
from tests.processes import run_command

GERMAN = (
    "Der alte Hund sieht eine Katze.",
    "Weil der Lehrer müde war, rief er die Studenten nicht an.",
    "Welches Haus will deine Schwester kaufen?",
    "Leider steht der Junge um sieben Uhr auf.",
    "Der König, der zwei alte Bücher kaufte, gab der Königin ein Bild.",
)


@pytest.mark.slow
def test_the_quickstart_learns_the_grammar(tmp_path):
    started = time.monotonic()
    result = run_command("bash", ROOT / "tools/quickstart.sh", tmp_path)
    test = json.loads((tmp_path / "test.out").read_text().splitlines()[-1])
    assert test["exact"] >= 0.99
    assert test["bleu"] >= 99
    for sentence in GERMAN:
        assert sentence in result.stdout
    seconds = time.monotonic() - started
    assert len(result.stdout.splitlines()) < 40 + seconds / 30  # with a line of progress every 30 s
    assert "warning" not in (result.stdout + result.stderr).lower()


def test_the_environment_may_be_named_by_a_relative_path(tmp_path):
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")  # which installs nothing
    python.chmod(0o755)
    script = 'EXTRA=; source "$1/tools/environment.sh"; cd /; "$PYTHON" -c ""'
    environment = os.environ | {"T2T_VENV": "venv"}
    subprocess.run(["bash", "-ec", script, "-", ROOT], cwd=tmp_path, check=True, env=environment)


def test_the_translation_of_the_readme_is_that_of_the_quickstart():
    command, translation = find("README.md", "tools/quickstart.sh").text.splitlines()[-2:]
    sentence = re.search(r'echo "(.*?)"', command)[1]
    script = (ROOT / "tools" / "quickstart.sh").read_text().splitlines()
    sources = script[script.index(next(x for x in script if x.endswith("<<'SENTENCES'"))) + 1 :]
    assert GERMAN[sources.index(sentence)] == translation.removeprefix("# ")
