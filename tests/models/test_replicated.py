"""Several devices, in a process of their own: logical devices are made before TensorFlow starts."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def test_two_devices_train_as_one():
    command = [sys.executable, "-m", "pytest", "-q", HERE / "replicated_two_devices.py"]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=HERE.parents[1]
    )
    assert result.returncode == 0, result.stdout
