"""A pretrained folder becomes a workdir that all commands work on."""

import csv
import json
import signal

import pytest
import tensorflow as tf

import t2t_keras as t2t
from tests.end_to_end.binaries import popen, run
from tests.end_to_end.test_preemption import wait_for_checkpoint
from tests.interop import marian_folder

LINES = ["The old man sees a small dog.", ">>deu<< A train.", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return marian_folder.write(tmp_path_factory.mktemp("pretrained") / "hf")


@pytest.fixture(scope="module")
def expected(folder):
    return t2t.load_marian(folder)(LINES)


@pytest.fixture(scope="module")
def workdir(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "imported"
    stdout, _ = run("import_model", f"--from={folder}", f"--workdir={path}")
    assert stdout.strip() == str(path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for split in ("train", "val"):
        for language, lines in zip(
            ("en", "de"), (LINES[:1] * 40, ["Der alte Hund."] * 40), strict=True
        ):
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    return folder


def training(workdir, data, steps):
    return [
        f"--config=workdir:{workdir}",
        f"--workdir={workdir}",
        f"--config.data.folder={data}",
        "--config.data.validation_split=val",
        f"--config.train.steps={steps}",
        "--config.train.log_every=5",
        "--config.train.validate_every=10",
        "--config.train.validation_sentences=4",
        "--config.train.checkpoint_every=10",
    ]


def test_the_workdir_answers_as_the_folder_does(expected, workdir):
    stdout, _ = run("translate", f"--workdir={workdir}", stdin="\n".join(LINES).encode())
    assert stdout.split("\n")[: len(LINES)] == expected


@pytest.mark.slow  # the last test loads a run of our own
def test_the_workdir_loads_in_one_line(expected, workdir):
    assert t2t.load(workdir)(LINES) == expected


def test_its_export_answers_as_the_folder_does(expected, workdir, tmp_path):
    run(
        "export",
        f"--workdir={workdir}",
        f"--output={tmp_path}",
        "--signatures=serving_default",
        "--noverify",
    )
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = signature(text=tf.constant(LINES))["translation"].numpy()
    assert [text.decode() for text in found] == expected


def test_a_folder_that_cannot_be_read_leaves_nothing(folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    _, stderr = run("import_model", f"--from={broken}", f"--workdir={tmp_path}/run", code=1)
    [message] = [line for line in stderr.splitlines() if line.startswith("error")]
    assert "has neither config.json" in message
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


@pytest.mark.slow
def test_training_on_lowers_the_loss_and_survives_a_kill(folder, data, tmp_path):
    workdir = tmp_path / "run"
    run("import_model", f"--from={folder}", f"--workdir={workdir}")
    process = popen("train", *training(workdir, data, 100_000))
    try:
        wait_for_checkpoint(workdir, [process])
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    killed = max(path.name for path in (workdir / "checkpoints").glob("step_*"))
    steps = int(killed.removeprefix("step_")) + 40
    _, stderr = run("train", *training(workdir, data, steps))
    assert "Resuming from step" in stderr
    rows = list(csv.DictReader((workdir / "metrics.csv").open()))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    assert losses[-1] < losses[0] - 0.2
    model = json.loads((workdir / "config.json").read_text())["model"]
    assert model["attention_bias"]
    assert t2t.load(workdir)([LINES[0]]) != t2t.load_marian(folder)([LINES[0]])


def test_a_run_of_our_own_loads_in_one_line(trained):
    stdout, _ = run("translate", f"--workdir={trained}", stdin=b"one two\nnine")
    assert t2t.load(trained)(["one two", "nine"]) == stdout.splitlines()
