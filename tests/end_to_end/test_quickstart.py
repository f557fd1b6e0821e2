"""The first thing that a newcomer runs; minutes of training, so marked slow."""

import json
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_the_quickstart_learns_the_grammar(tmp_path):
    started = time.monotonic()
    result = subprocess.run(
        ["bash", ROOT / "tools/quickstart.sh", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    test, test_long = (
        json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"bleu"')
    )
    assert test["exact"] >= 0.99
    assert test["bleu"] >= 99
    assert test_long["sentences"] == 1000
    assert "Der alte Hund sieht eine Katze." in result.stdout
    assert time.monotonic() - started < 15 * 60
