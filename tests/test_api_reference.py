"""The API reference is made as README says, without warnings."""

import os
import pathlib
import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_api_reference_is_made_without_warnings(tmp_path):
    pytest.importorskip("pdoc")
    root = pathlib.Path(__file__).parents[1]
    command = re.search(r"`python (-m pdoc [^`]+)`", (root / "README.md").read_text())[1]
    command = " ".join(command.split()).replace("-o api", f"-o {tmp_path}")
    made = subprocess.run(
        ["bash", "-ec", f"{sys.executable} {command}"],
        cwd=root,
        env=os.environ | {"PDOC_ALLOW_EXEC": "1"},  # platform.processor() runs uname
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Warn" not in made.stderr
    assert "LabelSmoothedCrossEntropy" in (tmp_path / "t2t_keras.html").read_text()
    assert (tmp_path / "t2t_keras" / "training" / "losses.html").exists()
