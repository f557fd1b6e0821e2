"""Runs that are killed, told to end, or lose a worker: each ends where an unbroken one ends."""

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import absl.app
import pytest
import tensorflow as tf

from pipelines import app
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import checkpoint_paths
from tests.end_to_end.binaries import (
    SMALL,
    assert_same_checkpoint,
    popen,
    run,
    run_process,
)
from tests.models.cluster import outcomes, start_workers

LONG = "--config.train.steps=100000"
_SEED = int(os.environ.get("T2T_KILLS_SEED", "1"))


def wait_for(found, processes):
    """Waits until `found()` is true, as long as all processes run."""
    deadline = time.monotonic() + 900
    while not found():
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows_of(workdir):
    with (workdir / "metrics.csv").open() as file:
        return {row["step"]: (row["loss"], row["validation_loss"]) for row in csv.DictReader(file)}


@pytest.mark.slow
def test_a_killed_run_ends_where_an_unbroken_one_ends(trained, corpus_folder, tmp_path):
    workdir = tmp_path / "work"
    arguments = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={corpus_folder}"]
    process = popen("train", *arguments)
    wait_for(lambda: list((workdir / "checkpoints").glob("step_*")), [process])
    process.kill()
    process.communicate()
    assert not (workdir / "checkpoints" / "step_00000020").exists()
    _, stderr = run_process("train", *arguments)
    assert "Resuming from step" in stderr
    assert_same_checkpoint(workdir, trained, step=20)
    assert rows_of(workdir) == rows_of(trained)


@pytest.mark.slow
def test_a_run_killed_at_moments_of_chance_ends_where_an_unbroken_one_ends(corpus_folder, tmp_path):
    unbroken, workdir, chance = tmp_path / "unbroken", tmp_path / "work", random.Random(_SEED)
    # Many a kill hits a save, and every step has a row of its own.
    every_step = ["--config.train.checkpoint_every=1", "--config.train.log_every=1"]
    every_step += ["--config.train.steps=150", "--config.train.validate_every=50"]
    arguments = [*SMALL, *every_step, f"--config.data.folder={corpus_folder}"]
    run_process("train", *arguments, f"--workdir={unbroken}")
    arguments.append(f"--workdir={workdir}")
    for _ in range(4):
        process = popen("train", *arguments, start_new_session=True)
        seconds = chance.uniform(4, 20)
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        print(f"killed after {seconds:.2f} s:", checkpoint_paths(workdir / "checkpoints")[-1:])
    run_process("train", *arguments)

    def tokens(folder):
        paths = sorted((folder / "tokens").rglob("*"))
        return {path.relative_to(folder): path.read_bytes() for path in paths if path.is_file()}

    assert tokens(workdir) == tokens(unbroken)
    assert_same_checkpoint(workdir, unbroken, step=150)
    assert rows_of(workdir) == rows_of(unbroken)


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
    step = int(checkpoint_paths(workdir / "checkpoints")[-1].name.removeprefix("step_"))
    for code, stderr in outcomes(start_workers(2, *command, f"--config.train.steps={step + 2}")):
        assert code == 0, stderr
        assert f"Resuming from step {step}" in stderr
    assert checkpoint_paths(workdir / "checkpoints")[-1].name == f"step_{step + 2:08d}"
    assert len(list((workdir / "logs").glob("events*"))) == 3  # the chief's, of three sessions


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
            _, stderr = run(binary, *flags, f"--workdir={workdir}", code=1)
            message = (
                rf"error: another process \(process {os.getpid()} on .*\) is writing into .*: wait"
            )
            assert re.match(message, stderr.splitlines()[-1]), stderr
        assert "error" not in run("translate", f"--workdir={workdir}", stdin=b"\n")[1]
