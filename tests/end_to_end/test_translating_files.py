"""A file that is killed in the middle of its translation ends as one that was not."""

import signal
import time

import pytest

from pipelines.unfinished_output import UnfinishedOutput
from tests.end_to_end.binaries import pairs, popen, run


def test_what_was_kept_is_gone_on_with_and_what_was_not_is_cut_off(tmp_path):
    first = UnfinishedOutput(tmp_path / "out", {"model": (1, 2)})
    first.write("ä")
    first.keep(5)
    first.write("lost")
    first._file.flush()
    again = UnfinishedOutput(tmp_path / "out", {"model": (1, 2)})
    assert again.done == 5
    with again:
        again.write("b")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out").read_text() == "ä\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("damage", ["other", "journal", "file"])
def test_another_models_or_a_damaged_file_is_begun_anew(tmp_path, damage):
    first = UnfinishedOutput(tmp_path / "out", "one model")
    first.write("old")
    first.keep(1)
    if damage == "journal":
        (tmp_path / ".out.unfinished.json").write_text('{"done": 1')
    if damage == "file":
        (tmp_path / ".out.unfinished").write_text("o")
    again = UnfinishedOutput(tmp_path / "out", "another" if damage == "other" else "one model")
    assert again.done == 0
    with again:
        pass
    assert (tmp_path / "out").read_text() == ""


def test_an_error_before_anything_was_kept_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), UnfinishedOutput(tmp_path / "out", 1) as output:
        output.write("a")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_killed_translation_goes_on_and_ends_as_an_unbroken_one(trained, tmp_path):
    source = tmp_path / "source"
    source.write_text("".join(f"{english}\n" for english, _ in pairs(250, seed=5)))
    flags = [f"--workdir={trained}", f"--input={source}", "--batch_size=1", "--beam_size=1"]
    run("translate", *flags, f"--output={tmp_path / 'whole'}")

    process = popen("translate", *flags, f"--output={tmp_path / 'broken'}")
    deadline = time.monotonic() + 120
    while not (tmp_path / ".broken.unfinished.json").exists():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "broken").exists()
    _, stderr = run("translate", *flags, f"--output={tmp_path / 'broken'}")
    assert "going on behind" in stderr
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()
    assert len((tmp_path / "whole").read_text().splitlines()) == 250
