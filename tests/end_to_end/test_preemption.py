"""Runs that are told to end, and workers that are lost: each says so and goes on later."""

import json
import os
import re
import signal
import time

import absl.app
import pytest
import tensorflow as tf

from pipelines import app
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import checkpoint_paths
from tests.end_to_end.binaries import SMALL, popen, run
from tests.models.cluster import outcomes, start_workers

LONG = "--config.train.steps=100000"


@pytest.mark.parametrize(
    ("error", "workers", "code"),
    [
        (tf.errors.UnavailableError, 2, 75),
        (tf.errors.InternalError, 2, None),
        (tf.errors.UnavailableError, 1, None),
    ],
)
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


@pytest.mark.slow  # tests/data/test_files.py locks folders, too
def test_a_second_process_is_kept_from_a_workdir(trained, corpus_folder):
    before = (trained / "metrics.csv").read_text()
    training = [*SMALL, f"--config.data.folder={corpus_folder}", "--config.train.steps=30"]
    with Workdir(trained).lock():
        for binary, flags in {"prepare": training, "train": training, "average": []}.items():
            _, stderr = run(binary, *flags, f"--workdir={trained}", code=1)
            message = (
                rf"error: another process \(process {os.getpid()} on .*\) is writing into .*: wait"
            )
            assert re.match(message, stderr.splitlines()[-1]), stderr
        answer, _ = run("translate", f"--workdir={trained}", stdin=b"one two\n")
    assert answer.count("\n") == 1
    assert (trained / "metrics.csv").read_text() == before
    run("average", f"--workdir={trained}", "--last=2")


def wait_for_checkpoint(workdir, processes):
    deadline = time.monotonic() + 900
    while not checkpoint_paths(workdir / "checkpoints"):
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_told_to_end_saves_exits_with_75_and_goes_on(corpus_folder, tmp_path):
    workdir = tmp_path / "work"
    arguments = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={corpus_folder}"]
    process = popen("train", *arguments, LONG)
    wait_for_checkpoint(workdir, [process])
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 75, stderr.decode()
    saved = checkpoint_paths(workdir / "checkpoints")[-1].name
    assert f"{saved}; the same command resumes from there" in stderr.decode()
    step = int(saved.removeprefix("step_"))
    _, stderr = run("train", *arguments, f"--config.train.steps={step + 2}")
    assert f"Resuming from step {step}" in stderr


@pytest.mark.slow
def test_one_worker_told_to_end_ends_all_at_one_step(corpus_folder, tmp_path):
    workdir = tmp_path / "work"
    command = ["pipelines.train", *SMALL, f"--workdir={workdir}"]
    command.append(f"--config.data.folder={corpus_folder}")
    workers = start_workers(2, *command, LONG)
    wait_for_checkpoint(workdir, workers)
    workers[1].send_signal(signal.SIGTERM)
    saved = set()
    for code, stderr in outcomes(workers):
        assert code == 75, stderr
        saved |= set(re.findall(r"saved .*(step_\d+);", stderr))
    assert saved == {checkpoint_paths(workdir / "checkpoints")[-1].name}


@pytest.mark.slow
def test_a_lost_worker_ends_the_other_and_both_go_on_later(corpus_folder, tmp_path):
    workdir = tmp_path / "work"
    command = ["pipelines.train", *SMALL, f"--workdir={workdir}"]
    command.append(f"--config.data.folder={corpus_folder}")
    workers = start_workers(2, *command, LONG)
    wait_for_checkpoint(workdir, workers)
    workers[1].kill()
    (code, stderr), _ = outcomes(workers)
    assert code == 75, stderr
    assert "training with 2 workers broke off" in stderr.splitlines()[-1]
    step = int(checkpoint_paths(workdir / "checkpoints")[-1].name.removeprefix("step_"))
    for code, stderr in outcomes(start_workers(2, *command, f"--config.train.steps={step + 2}")):
        assert code == 0, stderr
        assert f"Resuming from step {step}" in stderr
    assert checkpoint_paths(workdir / "checkpoints")[-1].name == f"step_{step + 2:08d}"
    assert len(list((workdir / "logs").glob("events*"))) == 2  # the chief's, of two sessions
