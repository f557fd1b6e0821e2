"""kill -9 again and again at moments of chance: the end is that of an unbroken run."""

import csv
import os
import random
import signal
import subprocess

import pytest

from t2t_keras.training.checkpoint_files import checkpoint_paths
from tests.end_to_end.binaries import SMALL, popen, run
from tests.end_to_end.checkpoints import assert_same_checkpoint

_KILLS = int(os.environ.get("T2T_KILLS", "6"))
_SEED = int(os.environ.get("T2T_KILLS_SEED", "1"))


def _killed(chance, longest, binary, *arguments):
    """Starts a binary and kills it within so many seconds; returns the seconds it had."""
    process = popen(binary, *arguments, start_new_session=True)
    seconds = chance.uniform(0, longest)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return seconds


def _tokens(workdir):
    paths = sorted((workdir / "tokens").rglob("*"))
    return {path.relative_to(workdir): path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.slow
def test_training_from_nothing(corpus_folder, tmp_path):
    unbroken, workdir, chance = tmp_path / "unbroken", tmp_path / "work", random.Random(_SEED)
    # Many a kill hits a save, and every step has a row of its own.
    every_step = ["--config.train.checkpoint_every=1", "--config.train.log_every=1"]
    every_step += ["--config.train.steps=200", "--config.train.validate_every=50"]
    arguments = [*SMALL, *every_step, f"--config.data.folder={corpus_folder}"]
    run("train", *arguments, f"--workdir={unbroken}")
    arguments.append(f"--workdir={workdir}")
    for _ in range(_KILLS):
        seconds = _killed(chance, 20, "train", *arguments)
        print(f"killed after {seconds:.2f} s:", checkpoint_paths(workdir / "checkpoints")[-1:])
    run("train", *arguments)
    assert _tokens(workdir) == _tokens(unbroken)
    assert_same_checkpoint(workdir, unbroken, step=200)

    def rows(folder):
        with (folder / "metrics.csv").open() as file:
            return {
                row["step"]: (row["loss"], row["validation_loss"]) for row in csv.DictReader(file)
            }

    assert rows(workdir) == rows(unbroken)


@pytest.mark.slow
def test_exporting(trained, tmp_path):
    output, chance = tmp_path / "export", random.Random(_SEED)
    arguments = [f"--workdir={trained}", f"--output={output}"]
    for _ in range(_KILLS):
        _killed(chance, 40, "export", *arguments)
    stdout, _ = run("export", *arguments)
    names = sorted(path.name for path in output.iterdir())
    versions = [name for name in names if name.isdigit()]
    others = [name for name in names if not name.isdigit()]
    assert all(name.endswith((".export.tmp", ".config", ".pbtxt")) for name in others), others
    assert stdout.splitlines()[-1] == str(output / versions[-1])
    for version in versions:
        answer, _ = run(
            "translate", f"--saved_model={output / version}", stdin=b"one two\n", code=0
        )
        assert answer.count("\n") == 1
