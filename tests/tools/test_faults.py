"""A part of the fault campaign and of the fuzz test of exports, with seeds of their own."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tools.faults.power import PowerLoss

TOOLS = pathlib.Path(__file__).parents[2] / "tools"


def run(tool, **flags):
    command = [sys.executable, TOOLS / tool, *(f"--{name}={x}" for name, x in flags.items())]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_few_faults_lose_nothing(tmp_path):
    result = run("fault_campaign.py", seed=1, injections=8, output_dir=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [json.loads(line) for line in (tmp_path / "injections.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == list(range(8))
    assert "8 injections, 0 failures; seeds [1]" in (tmp_path / "table.md").read_text()
    again = run("fault_campaign.py", seed=1, injections=8, output_dir=tmp_path)
    assert "8 done" in again.stdout
    assert "8 injections, 0 failures" in again.stdout


@pytest.mark.slow
def test_a_few_odd_requests_are_answered_or_refused(tmp_path):
    output = tmp_path / "figures.json"
    result = run("fuzz_serving.py", seed=1, requests=400, growth=100, output=output)
    assert result.returncode == 0, result.stdout + result.stderr
    figures = json.loads(output.read_text())
    assert not figures["failures"]
    for name in ("translator", "classifier", "parser"):
        assert min(figures[f"{name} {kind}"] for kind in ("answered", "refused", "plain")) > 5


@pytest.mark.parametrize(
    ("survival", "left"),
    [
        ("synced", {"old": b"old", "written": b"synced"}),
        ("names", {"other name": b"old", "written": b"synced", "not synced": b""}),
    ],
)
def test_a_loss_of_power_keeps_what_was_synced(tmp_path, survival, left):
    tree, disk = tmp_path / "tree", tmp_path / "disk"
    tree.mkdir()
    (tree / "old").write_bytes(b"old")
    child = os.fork()
    if not child:
        PowerLoss(tree, call=3, after=False, survival=survival, target=disk)()
        with (tree / "written").open("wb") as file:
            file.write(b"synced")
            file.flush()
            os.fsync(file.fileno())
            folder = os.open(tree, os.O_RDONLY)
            os.fsync(folder)
            file.write(b" and more")
            file.flush()
        (tree / "not synced").write_bytes(b"lost")
        (tree / "old").rename(tree / "other name")
        os.fsync(folder)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert {path.name: path.read_bytes() for path in disk.iterdir()} == left
