"""The API reference is made as README says, without warnings."""

import pathlib
import re
import sys

import pytest

from tests.processes import run_command

FLAGS = re.DOTALL | re.MULTILINE


@pytest.mark.slow
def test_the_api_reference_is_made_without_warnings(tmp_path):
    pytest.importorskip("pdoc")
    root = pathlib.Path(__file__).parents[1]
    command = re.search(r"^PDOC_.*? -m pdoc .*?(?=```)", (root / "README.md").read_text(), FLAGS)[0]
    command = command.replace("python", sys.executable, 1).replace("-o api", f"-o {tmp_path}")
    assert "Warn" not in run_command("bash", "-ec", command, cwd=root).stderr
    assert "LabelSmoothedCrossEntropy" in (tmp_path / "t2t_keras.html").read_text()
    assert (tmp_path / "t2t_keras" / "training" / "losses.html").exists()
