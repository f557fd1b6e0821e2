"""The budget of slow tests, on a small suite in a process of its own."""

import os
import pathlib
import re
import subprocess
import sys

from tests.slow_budget import commit_fraction, first_of

ROOT = pathlib.Path(__file__).parents[1]
SUITE = """
import subprocess
import pytest

@pytest.mark.slow
def test_passes():
    pass

@pytest.mark.slow(minutes=0)
def test_hangs():
    subprocess.run(["sleep", "1000"])

@pytest.mark.slow(minutes=0)
def test_fails():
    assert False

def test_is_fast():
    raise ValueError
"""


def run(folder, *arguments, grace=15):
    (folder / "test_some.py").write_text(SUITE)
    (folder / "conftest.py").write_text(
        f"import tests.slow_budget\ntests.slow_budget._GRACE = {grace}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "slow", "-p", "tests.slow_budget", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    sections = re.findall(r"^=+ (\d+ slow tests .*?) =+\n((?:test_\S+\n)*)", done.stdout, re.M)
    listed = {heading: re.findall(r"::(\S+)", names) for heading, names in sections}
    return done.returncode, listed, done.stdout.splitlines()[-1]


def test_without_time_nothing_is_run_and_all_is_listed(tmp_path):
    code, listed, closing = run(tmp_path, "--minutes=-1")
    assert code == 0 and "3 skipped, 1 deselected" in closing
    assert listed == {
        "3 slow tests left out: no time left": ["test_fails", "test_hangs", "test_passes"],
        "0 slow tests stopped: its time is over": [],
    }


def test_slow_tests_beyond_the_budget_are_left_out_or_stopped_without_failure(tmp_path):
    arguments = ["-n2", "--minutes=1.9", "--deselect=test_some.py::test_fails"]
    code, listed, closing = run(tmp_path, *arguments, grace=-100)
    assert code == 0 and "2 skipped" in closing
    assert listed == {
        "1 slow tests left out: no time left": ["test_passes"],
        "1 slow tests stopped: its time is over": ["test_hangs"],
    }


def test_with_time_tests_pass_and_fail_as_ever(tmp_path):
    code, _, closing = run(tmp_path, "--minutes=100", "--deselect=test_some.py::test_hangs")
    assert code == 1 and "1 failed, 1 passed" in closing


def test_the_first_test_is_the_one_at_a_fraction_of_the_time():
    minutes = [1, 5, 1, 1, 2]
    found = [first_of(fraction, minutes) for fraction in (0, 0.05, 0.15, 0.59, 0.65, 0.75, 0.99)]
    assert found == [0, 0, 1, 1, 2, 3, 4]


def test_where_to_begin_follows_from_the_commit(tmp_path):
    assert commit_fraction(tmp_path) == 0  # no repository

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout

    git("init")
    for message in ("one", "two"):
        git("commit", "--allow-empty", "-m", message)
        first_of_16 = int(git("rev-parse", "HEAD")[:1], 16) / 16
        assert first_of_16 <= commit_fraction(tmp_path) < first_of_16 + 1 / 16
