"""Several devices, XLA and several workers, in processes of their own.

Logical devices are made before TensorFlow starts, and XLA reads where it writes its programs.
"""

import importlib
import json
import os

import numpy as np
import pytest

from tests.models.cluster import ROOT, outcomes, start_workers
from tests.processes import run_python

REPLICAS = "tests/models/replicated_two_devices.py"
ONE_TEST = f"{REPLICAS}::test_a_loss_of_keras_is_that_of_the_global_batch"
ALL = [REPLICAS, "tests/training/two_devices.py", "tests/models/xla_two_devices.py"]
ALL += ["--deselect", ONE_TEST]
CONFIGS = ["tests/models/xla_configs.py"]
WORKER = "tests.models.replicated_worker"


@pytest.mark.parametrize(
    "tests",
    [[ONE_TEST], *(pytest.param(files, marks=pytest.mark.slow) for files in (ALL, CONFIGS))],
)
def test_two_devices_train_as_one(tests, tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "XLA_DUMP": str(tmp_path)}
    run_python("-m", "pytest", "-q", "-x", *tests, env=environment, cwd=ROOT)


@pytest.mark.slow
def test_workers_train_as_one_process(tmp_path):
    workers = start_workers(3, WORKER, tmp_path / "{index}.npz")
    importlib.import_module(WORKER).main(tmp_path / "alone.npz")
    for code, stderr in outcomes(workers):
        assert code == 0, stderr
    *results, alone = (np.load(tmp_path / f"{name}.npz") for name in (0, 1, 2, "alone"))
    for result in results:
        np.testing.assert_array_equal(result["epochs"], results[0]["epochs"])
        # Adam magnifies the rounding of small gradients.
        np.testing.assert_allclose(result["epochs"], alone["epochs"], rtol=1e-4, atol=5e-6)
        for name in ("losses", "loss", "accuracy", "perplexity"):
            np.testing.assert_allclose(result[name], alone[name], rtol=1e-5, err_msg=name)


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
