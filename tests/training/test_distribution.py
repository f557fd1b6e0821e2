"""Several devices: devices are made before TensorFlow starts, so in a process of their own."""

import pathlib
import subprocess
import sys

import tensorflow as tf

from t2t_keras.training.distribution import default_strategy

HERE = pathlib.Path(__file__).parent


def test_one_device_needs_no_strategy():
    assert default_strategy() is tf.distribute.get_strategy()


def test_two_devices():
    command = [sys.executable, "-m", "pytest", "-q", HERE / "two_devices.py"]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=HERE.parents[1]
    )
    assert result.returncode == 0, result.stdout
