"""--apache_beam: the same files as without, by several processes, and on after a kill."""

import os

import pytest

from pipelines.batch_inference import LinePredictor
from pipelines.fields import make_config
from t2t_keras.data.locks import lock
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import SMALL, pairs, run_process

pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed")
from pipelines import apache_beam

TWO_PROCESSES = "--apache_beam=--direct_num_workers=2 --direct_running_mode=multi_processing"


@pytest.mark.slow
def test_two_workers_write_the_same_bytes(trained, corpus_folder, tmp_path):
    flags = [*SMALL, f"--config.data.folder={corpus_folder}", f"--workdir={tmp_path / 'work'}"]
    run_process("prepare", *flags, TWO_PROCESSES)
    for split in ("train", "val"):
        ours, theirs = (
            {path.name: path.read_bytes() for path in (workdir / "tokens" / split).iterdir()}
            for workdir in (tmp_path / "work", trained)
        )
        assert ours == theirs

    source = tmp_path / "source"
    source.write_text("".join(f"{english}\n" for english, _ in pairs(150, seed=5)))
    flags = [f"--workdir={trained}", f"--input={source}", "--batch_size=1", "--beam_size=2"]
    flags += ["--n_best=2", "--scores"]
    # A process, as the workers: without Grappler rounding decides between equal texts.
    run_process("translate", *flags, f"--output={tmp_path / 'plain'}")
    run_process("translate", *flags, f"--output={tmp_path / 'beam'}", TWO_PROCESSES)
    assert (tmp_path / "beam").read_text() == (tmp_path / "plain").read_text()


@pytest.mark.slow
def test_windows_that_are_done_are_not_done_again(trained, tmp_path):
    source, output = tmp_path / "source", tmp_path / "output"
    lines = [english for english, _ in pairs(130, seed=5)]
    source.write_text("".join(f"{line}\n" for line in lines))
    outputs = LinePredictor(
        str(trained), None, n_best=1, scores=False, batch_size=1, decoding={"beam_size": 1}
    )
    apache_beam.write_outputs(outputs, source, output, "")
    whole = output.read_text().splitlines()
    expected = [row for [row] in outputs.load()(line.encode() for line in lines)]
    assert whole == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output", "source"]

    parts = tmp_path / ".output.parts"
    apache_beam._open_parts(parts, outputs.fingerprint(str(source)))
    (parts / f"{1:012d}").write_text("done before\n" * 64)
    (parts / f"{2:012d}.17.tmp").write_text("half wri")
    apache_beam.write_outputs(outputs, source, output, "")
    again = output.read_text().splitlines()
    assert again == whole[:64] + ["done before"] * 64 + whole[128:]

    apache_beam._open_parts(parts, {"another": "model"})
    (parts / f"{1:012d}").write_text("of another model\n" * 64)
    apache_beam.write_outputs(outputs, source, output, "")
    assert output.read_text().splitlines() == whole


def test_two_processes_do_not_write_one_output(tmp_path):
    (tmp_path / "source").write_text("one\n")
    asked = LinePredictor(str(tmp_path), None, 1, False, batch_size=1, decoding={})
    with (
        lock(tmp_path / ".output.lock", "writing"),
        pytest.raises(InputError, match=r"another process \(.*\) is writing .*/output"),
    ):
        apache_beam.write_outputs(asked, tmp_path / "source", tmp_path / "output", "")


def test_relative_paths_are_those_of_the_command(tmp_path, monkeypatch):
    class Predictor:
        def load(self):
            return os.path.realpath("run")

    worker = apache_beam._WriteWindow(Predictor(), "parts", str(tmp_path))
    monkeypatch.setattr(apache_beam, "choose_devices", lambda gpu: None)
    monkeypatch.chdir("/")
    worker.setup()
    assert worker._outputs == os.path.realpath(tmp_path / "run")
    monkeypatch.chdir("/")
    current = apache_beam._of_split(
        lambda *_: os.getcwd(), str(tmp_path), make_config().to_json(), "run", "train"
    )
    assert current == os.path.realpath(tmp_path)
    apache_beam._enter(tmp_path / "of another machine")
    assert os.getcwd() == current


def test_what_does_not_go_together_is_refused_before_a_worker_starts(tmp_path):
    (tmp_path / "source").write_text("one\n")
    neither = LinePredictor(None, None, 1, False, batch_size=1, decoding={})
    with pytest.raises(InputError, match="give one of --workdir, --model and --saved_model"):
        apache_beam.write_outputs(neither, tmp_path / "source", tmp_path / "output", "")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
