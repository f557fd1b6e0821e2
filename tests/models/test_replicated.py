"""Several devices, in a process of their own: logical devices are made before TensorFlow starts."""

import pathlib
import subprocess

import pytest

from tests.warm_python import warm_python

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("marks", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_two_devices_train_as_one(marks):
    command = [
        *warm_python(),
        "-m",
        "pytest",
        "-q",
        "-m",
        marks,
        HERE / "replicated_two_devices.py",
    ]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=HERE.parents[1]
    )
    assert result.returncode == 0, result.stdout
