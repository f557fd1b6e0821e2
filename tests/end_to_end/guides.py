"""The examples of README and of the guides in pipelines/docs, and how a test runs them."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

from t2t_keras import ops
from tests.end_to_end import binaries

ROOT = binaries.ROOT
PATHS = [ROOT / "README.md", *sorted((ROOT / "pipelines" / "docs").glob("*.md"))]
PAGES = {path.name: path.read_text() for path in PATHS}
TEXT = "\n".join(PAGES.values())


class Block(NamedTuple):
    """An example between ``` and ```."""

    page: str
    language: str
    text: str


BLOCKS = [
    Block(page, *found)
    for page, text in PAGES.items()
    for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
]
SERVING = ROOT / "t2t_keras" / "serving" / "README.md"
BLOCKS += [
    Block("serving/README.md", "bash", text)
    for text in re.findall(r"^```bash\n(.*?)^```$", SERVING.read_text(), re.DOTALL | re.MULTILINE)
]
RUN = set()
"""The blocks that tests run."""


def find(page, word):
    """Returns the one block of a page that has the word."""
    [found] = [block for block in BLOCKS if block.page == page and word in block.text]
    return found


def example(page, word):
    """Returns the text of a block, which counts as run: the caller runs it."""
    RUN.add(find(page, word))
    return find(page, word).text


# The examples are for patient people; a test takes a smaller model and fewer steps.
FEW_STEPS = (
    " --config.train.steps=4 --config.train.checkpoint_every=2 --config.train.average_checkpoints=2"
    " --config.train.keep_checkpoints=2 --config.train.validation_sentences=2"
    " --config.data.tokens_per_batch=300"
)
SHORT = (
    f"{FEW_STEPS} --config.train.optimizer=adam --config.train.micro_batches=1"
    " --config.train.parallel_micro_batches=1 --config.model.vocab_size=400"
    " --config.model.num_encoder_layers=1 --config.model.num_decoder_layers=1"
    " --config.model.model_dim=32 --config.model.feed_forward_dim=64 --config.model.num_heads=2"
)


def flags_of(small):
    """Returns the flags of a small config but those of config file and test split, str."""
    return " ".join(flag for flag in small[1:] if "test_split" not in flag)


def link_project(place):
    """Lets `pipelines` and `tools` be in a folder; returns it."""
    for name in ("pipelines", "tools"):
        (place / name).symlink_to(ROOT / name)
    return place


def run_process(command, place, **environment):
    """Runs a command as a user does; returns its stdout."""
    python = pathlib.Path(sys.executable).parent
    paths = {"PATH": f"{python}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment = os.environ | paths | {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment
    result = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


CALLED = """
python() {
    call=$CALLS/$(printf %03d "$(ls "$CALLS" | wc -l)")
    mkdir "$call"
    printf '%s\\0' "$@" > "$call/arguments"
    cat > "$call/stdin"
}
"""
"""In place of a Python: keeps what it is called with."""


def run_bash(script, place, device="gpu"):
    """Runs a script, its calls of Python at the end and within this process; returns their stdout.

    A line that needs what a command before it wrote is for another script. Graphs are made for a
    device, for a GPU sooner, and exports are not verified: that takes a process.
    """
    stdout = ""
    with tempfile.TemporaryDirectory() as calls:
        run_process(["bash", "-ec", CALLED + script], place, CALLS=calls)
        for call in sorted(pathlib.Path(calls).iterdir()):
            option, module, *arguments = (call / "arguments").read_text().split("\0")[:-1]
            assert option == "-m"
            arguments += ["--noverify"] * (module == "pipelines.export")
            stdin = (call / "stdin").read_bytes()
            with ops.made_for(device):
                stdout += binaries.run(module, *arguments, stdin=stdin, folder=place)[0]
    return stdout


def scores_in(stdout):
    return [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
