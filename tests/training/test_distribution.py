"""Several devices: devices are made before TensorFlow starts, so in a process of their own."""

import json
import pathlib
import subprocess

import pytest
import tensorflow as tf

from t2t_keras.training.distribution import default_strategy
from tests.models.cluster import outcomes, start_workers
from tests.warm_python import warm_python

HERE = pathlib.Path(__file__).parent


def test_one_device_needs_no_strategy():
    assert default_strategy() is tf.distribute.get_strategy()


@pytest.mark.parametrize("marks", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_two_devices(marks):
    command = [*warm_python(), "-m", "pytest", "-q", "-m", marks, HERE / "two_devices.py"]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=HERE.parents[1]
    )
    assert result.returncode == 0, result.stdout


def test_all_workers_restore_what_the_chief_chooses_or_none_does(tmp_path):
    workers = start_workers(2, "tests.training.restoring_worker", tmp_path)
    for code, stderr in outcomes(workers):
        assert code == 0, stderr
    chief, other = (
        json.loads((tmp_path / f"results.{index}.json").read_text()) for index in range(2)
    )
    for results in (chief, other):
        assert results["the newest is damaged"] == [1, 1]
        assert results["folders differ"].startswith("The workers restored other steps: 1, 7")
        assert results["all is well"] == [1, 1]
    assert "could not be read" in other["a worker cannot read"]
    assert "A worker could not restore step 1" in chief["a worker cannot read"]
    assert "could not be read" in chief["the chief cannot read"]
    assert "The chief worker stopped" in other["the chief cannot read"]
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step_00000001", "step_00000002.damaged"]
