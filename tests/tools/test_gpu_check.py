"""tools/gpu_check.sh without a GPU."""

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "gpu_check.sh"


def check(tmp_path, **environment):
    environment |= {"PYTHON": sys.executable, "GPU_CHECK_FOLDER": str(tmp_path / "check")}
    return subprocess.run(
        ["bash", TOOL], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_without_a_gpu_it_is_one_line(tmp_path):
    empty = tmp_path / "nvidia-smi"
    empty.write_text("#!/bin/sh\nexit 9\n")
    empty.chmod(0o700)
    done = check(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ") and "GPU" in line
