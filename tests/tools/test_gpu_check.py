"""tools/gpu_check.sh without a GPU, and its rehearsal on a CPU."""

import os
import pathlib
import sys

import pytest

from tests.end_to_end.binaries import write_folder
from tests.processes import run_command

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "gpu_check.sh"


def check(tmp_path, *minutes, code=0, **environment):
    environment |= {"PYTHON": sys.executable, "GPU_CHECK_FOLDER": str(tmp_path / "check")}
    return run_command("bash", TOOL, *minutes, code=code, env=os.environ | environment)


def test_without_a_gpu_it_is_one_line(tmp_path):
    empty = tmp_path / "nvidia-smi"
    empty.write_text("#!/bin/sh\nexit 9\n")
    empty.chmod(0o700)
    done = check(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}", code=2)
    assert not done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ") and "GPU" in line


def test_a_folder_that_exists_is_left_alone(tmp_path):
    (tmp_path / "check").mkdir()
    (tmp_path / "check/thesis").write_text("")
    done = check(tmp_path, GPU_CHECK_REHEARSAL=str(tmp_path), code=1)
    assert f"{tmp_path / 'check'} exists" in done.stderr
    assert (tmp_path / "check/thesis").exists()


@pytest.mark.slow
def test_every_part_can_be_rehearsed_on_a_cpu(tmp_path):
    (tmp_path / "corpus").mkdir()
    folder = write_folder(tmp_path / "corpus")
    done = check(tmp_path, "60", GPU_CHECK_REHEARSAL=str(folder))  # a busy CPU is slow
    for part in ("tests", "grammar", "grammar.test", "train", "generate"):
        assert f"\n{part} " in f"\n{done.stdout}"
    for figure in ("passed", "bleu", "target tokens/s", "t2t_keras bfloat16", "left out"):
        assert figure in done.stdout
