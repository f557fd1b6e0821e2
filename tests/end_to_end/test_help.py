"""--help of every command explains every flag that the command takes."""

import os
import re
import runpy
import subprocess
import sys

import pytest
from absl import flags

from pipelines.commands import BINARIES
from pipelines.fields import FIELDS
from tests.end_to_end.binaries import ROOT, run_process, without_flags
from tests.processes import run_python


def defined_flags(binary):
    """Returns the names of the flags that a binary's module defines, by itself or by `app`."""
    with without_flags():
        before = set(flags.FLAGS)
        runpy.run_module(f"pipelines.{binary}")
        names = set(flags.FLAGS) - before
        for name in names:
            delattr(flags.FLAGS, name)
    return names


def explained_flags(text):
    """Returns {name: explanation} of --help."""
    _, *found = re.split(r"^  --(?:\[no\])?([\w.]+): ", text, flags=re.MULTILINE)
    return {
        name: " ".join(text.split()) for name, text in zip(found[::2], found[1::2], strict=True)
    }


def check_texts(texts):
    """Asserts that each explanation says what happens without the flag."""
    for name, text in texts.items():
        if "(default: '')" in text:
            assert "empty" in text, name
        elif "(default:" not in text:
            assert re.search("[Dd]efault: |[Rr]equired|instead of|no default", text), name


@pytest.mark.parametrize("binary", BINARIES)
def test_help_explains_the_binary_and_every_flag(binary):
    stdout, _ = run_process(binary, "--help")
    assert f"python -m pipelines.{binary}" in stdout
    assert str(ROOT) not in stdout.partition("\nflags:\n")[0]  # which absl writes for %s
    texts = explained_flags(stdout)
    assert texts and texts.keys() == defined_flags(binary)
    check_texts(texts)
    named = set(re.findall(r"--(?:no)?(\w+)", " ".join(texts.values())))
    others = {"config", "helpfull", "runner", "flink_master"}  # the last two are Apache Beam's
    assert named <= texts.keys() | others


@pytest.mark.parametrize("binary", ["evaluate", "translate"])
def test_long_help_has_headings(binary):
    stdout, _ = run_process(binary, "--help")
    groups = re.split(r"^([a-z ]+):\n(?=  --)", stdout, flags=re.MULTILINE)[1:]
    sizes = dict(zip(groups[::2], map(len, map(explained_flags, groups[1::2])), strict=True))
    assert {"flags", "texts", "model and search", "speed"} <= sizes.keys()
    assert max(sizes.values()) < 20


@pytest.mark.parametrize(("binary", "without"), [("translate", set()), ("export", set()),
    ("evaluate", {"protected_pattern"}), ("visualize", {"protected_pattern"}),
])  # fmt: skip
def test_every_setting_of_a_search_is_a_flag(binary, without):
    fields = {name for parts in FIELDS.values() for name in parts["decode"]}
    fields |= {f"knn_{name}" for parts in FIELDS.values() for name in parts["knn"]}
    assert fields - defined_flags(binary) == without


def test_help_is_printed_without_tensorflow():
    done = run_python("-X", "importtime", "-m", "pipelines.translate", "--help", cwd=ROOT)
    assert list(explained_flags(done.stdout))[:4] == ["workdir", "saved_model", "input", "output"]
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"tensorflow", "keras", "numpy"}


def test_a_reader_that_has_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does
    command = [sys.executable, "-m", "pipelines.train", "--help"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
