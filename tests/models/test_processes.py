"""Several devices, XLA and several workers, in processes of their own.

Logical devices are made before TensorFlow starts, and XLA reads where it writes its programs.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.models.cluster import ROOT, outcomes, start_workers

REPLICAS = "tests/models/replicated_two_devices.py"
FILES = {
    "one test": f"{REPLICAS}::test_a_loss_of_keras_is_that_of_the_global_batch[loss0-2]",
    "replicas": REPLICAS,
    "xla": "tests/models/xla_two_devices.py",
    "training": "tests/training/two_devices.py",
}
WORKER = "tests.models.replicated_worker"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name != "one test" else []) for name in FILES],
)
def test_two_devices_train_as_one(name, tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text --xla_backend_optimization_level=0"
    environment = {"XLA_FLAGS": flags, "XLA_DUMP": str(tmp_path)} if name == "xla" else {}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "slow or not slow", FILES[name]],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "out.npz"
    subprocess.run([sys.executable, "-m", WORKER, path, "repaired"], check=True, cwd=ROOT)
    return np.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_workers_train_as_one_process(count, alone, tmp_path):
    workers = start_workers(count, WORKER, tmp_path / "{index}.npz", "repaired")
    for code, stderr in outcomes(workers):
        assert code == 0, stderr
    results = [np.load(tmp_path / f"{index}.npz") for index in range(count)]
    for result in results:
        np.testing.assert_array_equal(result["epochs"], results[0]["epochs"])
        # Adam magnifies the rounding of small gradients.
        np.testing.assert_allclose(result["epochs"], alone["epochs"], rtol=1e-4, atol=5e-6)
        for name in ("losses", "loss", "accuracy", "perplexity"):
            np.testing.assert_allclose(result[name], alone[name], rtol=1e-5, err_msg=name)


@pytest.mark.slow  # fails on the day that the repair can go
def test_keras_cannot_reduce_a_workers_scalars(tmp_path):
    workers = start_workers(2, WORKER, tmp_path / "{index}.npz", "plain")
    for code, stderr in outcomes(workers):
        assert code != 0
        assert "Invalid reduction dimension 0" in stderr, stderr


@pytest.mark.slow
def test_all_workers_restore_what_the_chief_chooses_or_none_does(tmp_path):
    workers = start_workers(2, "tests.training.restoring_worker", tmp_path)
    for code, stderr in outcomes(workers):
        assert code == 0, stderr
    chief, other = (
        json.loads((tmp_path / f"results.{index}.json").read_text()) for index in range(2)
    )
    for results in (chief, other):
        assert results["the newest is damaged"] == [1, 1]
        assert results["folders differ"].startswith("The workers restored different steps: 1, 7")
        assert results["all is well"] == [1, 1]
    assert "could not be read" in other["a worker cannot read"]
    assert "A worker could not restore step 1" in chief["a worker cannot read"]
    assert "could not be read" in chief["the chief cannot read"]
    assert "The chief worker stopped" in other["the chief cannot read"]
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step_00000001", "step_00000002.damaged"]
