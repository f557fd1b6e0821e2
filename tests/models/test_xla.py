"""XLA, in a process of its own, which has two devices and counts what XLA compiles."""

import os
import pathlib
import subprocess

import pytest

from tests.warm_python import warm_python

CASES = pathlib.Path(__file__).parent / "xla_two_devices.py"


@pytest.mark.parametrize("marks", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_xla_trains_as_tensorflow_does(marks, tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "XLA_DUMP": str(tmp_path)}
    result = subprocess.run(
        [*warm_python(), "-m", "pytest", "-q", "-x", "-m", marks, str(CASES)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=CASES.parents[2],
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
