"""tools/gpu_check.sh without a GPU."""

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "gpu_check.sh"


def test_without_a_gpu_it_is_one_line(tmp_path):
    empty = tmp_path / "nvidia-smi"
    empty.write_text("#!/bin/sh\nexit 9\n")
    empty.chmod(0o700)
    paths = {"PYTHON": sys.executable, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", TOOL], capture_output=True, text=True, check=False, env=os.environ | paths
    )
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ") and "GPU" in line
