"""Several processes train as one process with the same global batches does."""

import subprocess

import numpy as np
import pytest

from tests.models.cluster import ROOT, outcomes, start_workers
from tests.warm_python import warm_python

SCRIPT = "tests.models.replicated_worker"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "out.npz"
    subprocess.run([*warm_python(), "-m", SCRIPT, path, "repaired"], check=True, cwd=ROOT)
    return np.load(path)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_train_as_one_process(count, alone, tmp_path):
    workers = start_workers(count, SCRIPT, tmp_path / "{index}.npz", "repaired")
    for code, stderr in outcomes(workers):
        assert code == 0, stderr
    results = [np.load(tmp_path / f"{index}.npz") for index in range(count)]
    for result in results:
        np.testing.assert_array_equal(result["epochs"], results[0]["epochs"])
        # Adam magnifies the rounding of small gradients.
        np.testing.assert_allclose(result["epochs"], alone["epochs"], atol=5e-6)
        for name in ("losses", "loss", "accuracy", "perplexity"):
            np.testing.assert_allclose(result[name], alone[name], rtol=1e-5, err_msg=name)


@pytest.mark.slow  # fails on the day that the repair can go
def test_keras_cannot_reduce_a_workers_scalars(tmp_path):
    workers = start_workers(2, SCRIPT, tmp_path / "{index}.npz", "plain")
    for code, stderr in outcomes(workers):
        assert code != 0
        assert "Invalid reduction dimension 0" in stderr, stderr
