"""Runs that are killed, told to end, or lose a worker: each ends where an unbroken one ends."""

import csv
import json
import os
import re
import shutil
import signal

import absl.app
import pytest
import tensorflow as tf

from pipelines import app
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import checkpoint_paths
from tests.end_to_end.binaries import (
    ROOT,
    SMALL,
    assert_same_checkpoint,
    popen,
    refused,
    run,
    run_process,
    wait_for,
)
from tests.models.cluster import outcomes, start_workers
from tests.processes import run_python

LONG = "--config.train.steps=100000"


def rows_of(workdir):
    with (workdir / "metrics.csv").open() as file:
        return {row["step"]: (row["loss"], row["validation_loss"]) for row in csv.DictReader(file)}


KILLED = """
import os, re, runpy, signal, sys

def killing(name, function):
    def call(path, *args, **kwargs):
        shown = os.readlink(f"/proc/self/fd/{path}") if name == "fsync" else path
        if re.search(pattern, f"{name} {shown}"):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(path, *args, **kwargs)
    return call

pattern = sys.argv.pop(1)
for name in ("fsync", "replace"):
    setattr(os, name, killing(name, getattr(os, name)))
runpy.run_module("pipelines.train", run_name="__main__", alter_sys=True)
"""
"""`pipelines.train`, killed before the first call that writes a path through or renames it."""


@pytest.mark.slow
def test_a_run_killed_as_it_writes_ends_where_an_unbroken_one_ends(
    trained, corpus_folder, tmp_path
):
    arguments = [*SMALL, f"--workdir={tmp_path}", f"--config.data.folder={corpus_folder}"]
    for pattern in (
        "replace .*vocabulary",
        "replace .*tokens/.*train",
        "fsync .*step_00000005",
        "replace .*step_00000010",
        "fsync .*metrics.csv",  # with a checkpoint to resume from
    ):
        run_python("-c", KILLED, pattern, *arguments, cwd=ROOT, code=-signal.SIGKILL)
    assert [path.name for path in checkpoint_paths(tmp_path / "checkpoints")] == ["step_00000005"]
    _, stderr = run_process("train", *arguments)
    assert "Resuming from step 5" in stderr
    assert_same_checkpoint(tmp_path, trained, step=20)
    assert rows_of(tmp_path) == rows_of(trained)
    for path in (path for path in trained.glob("tokens/**/*") if path.is_file()):
        assert (tmp_path / path.relative_to(trained)).read_bytes() == path.read_bytes()


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
        assert re.search(r"are damaged.* --start_over", refused("train", *arguments))
    assert (workdir / "metrics.csv").read_text() == rows
    run_process("train", *arguments, "--start_over")
    assert_same_checkpoint(workdir, trained, step=20)
    assert (workdir / "metrics.superseded.csv").exists()


@pytest.mark.slow
def test_a_run_told_to_end_saves_exits_with_75_and_goes_on(corpus_folder, tmp_path):
    workdir = tmp_path / "work"
    arguments = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={corpus_folder}"]
    process = popen("train", *arguments, LONG)
    wait_for(lambda: checkpoint_paths(workdir / "checkpoints"), [process])
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 75, stderr.decode()
    saved = checkpoint_paths(workdir / "checkpoints")[-1].name
    assert f"{saved}; the same command resumes from there" in stderr.decode()
    step = int(saved.removeprefix("step_"))
    _, stderr = run("train", *arguments, f"--config.train.steps={step + 2}")
    assert f"Resuming from step {step}" in stderr


@pytest.mark.slow
def test_one_worker_told_to_end_ends_all_at_one_step_and_a_lost_one_ends_the_other(
    corpus_folder, tmp_path
):
    workdir = tmp_path / "work"
    command = ["pipelines.train", *SMALL, f"--workdir={workdir}"]
    command.append(f"--config.data.folder={corpus_folder}")
    workers = start_workers(2, *command, LONG)
    wait_for(lambda: checkpoint_paths(workdir / "checkpoints"), workers)
    workers[1].send_signal(signal.SIGTERM)
    saved = set()
    for code, stderr in outcomes(workers):
        assert code == 75, stderr
        saved |= set(re.findall(r"saved .*(step_\d+);", stderr))
    [last] = saved
    assert last == checkpoint_paths(workdir / "checkpoints")[-1].name

    workers = start_workers(2, *command, LONG)
    wait_for(lambda: checkpoint_paths(workdir / "checkpoints")[-1].name > last, workers)
    workers[1].kill()
    (code, stderr), _ = outcomes(workers)
    assert code == 75, stderr
    assert f"Resuming from step {int(last.removeprefix('step_'))}" in stderr
    assert "error: training with 2 workers broke off" in stderr  # then TensorFlow's pools close


@pytest.mark.parametrize(("error", "workers", "code"), [
    (tf.errors.UnavailableError, 2, 75),
    (tf.errors.InternalError, 2, None),
    (tf.errors.UnavailableError, 1, None),
])  # fmt: skip
def test_only_a_lost_worker_asks_for_another_start(error, workers, code, monkeypatch):
    monkeypatch.setattr(absl.app, "run", lambda main, flags_parser: main(["binary"]))
    cluster = {"worker": [f"127.0.0.1:{port}" for port in range(workers)]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster}))

    def main():
        raise error(None, None, "a message")

    with pytest.raises(SystemExit if code else error) as end:
        app.run(main)
    assert not code or end.value.code == code


def test_starts_without_progress_come_to_an_end(tmp_path):
    workdir = Workdir(tmp_path)
    for step in (0, 10):
        for _ in range(5):
            workdir.count_start(step)
    with pytest.raises(InputError, match=r"last 5 starts from step 10 .* delete .*starts\.json"):
        workdir.count_start(10)
    workdir.count_start(11)
    workdir.count_start(10)


def test_a_second_process_is_kept_from_a_workdir(trained, corpus_folder, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "work")
    training = [*SMALL, f"--config.data.folder={corpus_folder}", "--config.train.steps=30"]
    with Workdir(workdir).lock():
        for binary, flags in {"prepare": training, "train": training, "average": []}.items():
            message = refused(binary, *flags, f"--workdir={workdir}")
            holder = rf"another process \(process {os.getpid()} on .*\) is writing into .*: wait"
            assert re.search(holder, message), message
        assert "error" not in run("translate", f"--workdir={workdir}", stdin=b"\n")[1]
