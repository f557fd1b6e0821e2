"""kill -9 in mid-training, then the same command: the end is that of an unbroken run."""

import csv
import shutil
import signal
import time

import pytest

from tests.end_to_end.binaries import SMALL, popen, run
from tests.end_to_end.checkpoints import assert_same_checkpoint


def test_a_killed_run_ends_where_an_unbroken_one_ends(trained, corpus_folder, tmp_path):
    workdir = tmp_path / "work"
    arguments = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={corpus_folder}"]
    process = popen("train", *arguments)
    deadline = time.monotonic() + 900
    while not list((workdir / "checkpoints").glob("step_*")):
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (workdir / "checkpoints" / "step_00000020").exists()

    _, stderr = run("train", *arguments)
    assert "Resuming from step" in stderr
    assert_same_checkpoint(workdir, trained, step=20)

    def losses(folder):
        rows = csv.DictReader((folder / "metrics.csv").open())
        return [(row["step"], row["loss"], row["validation_loss"]) for row in rows]

    assert losses(workdir)[-2:] == losses(trained)[-2:]


def test_a_finished_run_has_nothing_to_do(trained, corpus_folder):
    before = (trained / "metrics.csv").read_text()
    run("train", *SMALL, f"--workdir={trained}", f"--config.data.folder={corpus_folder}")
    assert (trained / "metrics.csv").read_text() == before


@pytest.mark.slow
def test_a_run_whose_checkpoints_are_all_damaged_starts_over_when_told_to(
    trained, corpus_folder, tmp_path
):
    workdir = tmp_path / "work"
    shutil.copytree(trained, workdir)
    for data in workdir.glob("checkpoints/step_*/*.data*"):
        content = bytearray(data.read_bytes())
        content[100] ^= 1
        data.write_bytes(content)
    rows = (workdir / "metrics.csv").read_text()
    arguments = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={corpus_folder}"]
    for _ in range(2):
        _, stderr = run("train", *arguments, code=1)
        assert "are damaged" in stderr.splitlines()[-1]
        assert "--start_over" in stderr.splitlines()[-1]
    assert (workdir / "metrics.csv").read_text() == rows
    run("train", *arguments, "--start_over")
    assert_same_checkpoint(workdir, trained, step=20)
    assert (workdir / "metrics.superseded.csv").exists()
