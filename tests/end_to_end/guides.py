"""The examples of README and of the guides in pipelines/docs, and how a test runs them.

Within the test's process: each process would import TensorFlow. The quickstart, test_help.py and
test_interruptions.py start commands as processes.
"""

import gc
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
    " --config.train.keep_checkpoints=2 --config.train.validation_sentences=0"
    " --config.data.tokens_per_batch=300"
)
SHORT = (
    f"{FEW_STEPS} --config.train.optimizer=adam --config.train.micro_batches=1"
    " --config.train.parallel_micro_batches=1 --config.model.vocab_size=400"
    " --config.model.num_encoder_layers=1 --config.model.num_decoder_layers=1"
    " --config.model.model_dim=32 --config.model.feed_forward_dim=64 --config.model.num_heads=2"
    " --config.data.tfds_data_dir=datasets"
)


def flags_of(small):
    """Returns the flags of a small config but those of config file and test split, str."""
    return " ".join(flag for flag in small[1:] if "test_split" not in flag)


def link_project(place):
    """Lets `pipelines` and `tools` be in a folder; returns it."""
    for name in ("pipelines", "tools"):
        (place / name).symlink_to(ROOT / name)
    return place


CALLED = """
python() {
    [ "$1" = -m ] || { command python "$@"; return; }
    call=$(mktemp -d "$CALLS/XXXXXX")
    printf '%s\\0' "${@:2}" > "$call/arguments"
    cat > "$call/stdin"
    mkfifo "$call/ended"
    echo "$call" >&$QUEUE
    read -r code < "$call/ended"
    cat "$call/stdout"
    return "$code"
}
"""
"""In place of a Python: what it is called with goes to `run_bash`."""


def run_bash(script, place, device="gpu", signatures="serving_default"):
    """Runs a script, its calls of `python -m` within this process; returns its stdout.

    Graphs are made for a device, for a GPU sooner. Exports have the signatures that they are told
    to have, or these, and are not verified: that takes a process.
    """

    def answer(call):
        module, *arguments = (call / "arguments").read_text().split("\0")[:-1]
        if module == "pipelines.export":
            told = any(argument.startswith("--signatures=") for argument in arguments)
            asked = [] if told else [f"--signatures={signatures}"]
            arguments = ["--noverify", *asked, *arguments]
        stdin, code = (call / "stdin").read_bytes(), 1
        try:
            stdout, _ = binaries.run(module, *arguments, stdin=stdin, folder=place)
            (call / "stdout").write_text(stdout)
            code = 0
        finally:
            (call / "ended").write_text(f"{code}\n")

    reader, writer = os.pipe()
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    with (
        tempfile.TemporaryDirectory() as calls,
        tempfile.TemporaryFile("w+") as stdout,
        subprocess.Popen(
            ["bash", "-ec", CALLED + script],
            cwd=place, env=os.environ | environment | {"CALLS": calls, "QUEUE": str(writer)},
            stdin=subprocess.DEVNULL, stdout=stdout, pass_fds=[writer],
        ) as process,
        open(reader) as queue,
        ops.made_for(device),
    ):  # fmt: skip
        os.close(writer)
        for call in queue:  # until the script has ended
            answer(pathlib.Path(call.rstrip("\n")))
            gc.collect()
        assert process.wait() == 0
        stdout.seek(0)
        return stdout.read()


def run_python(code, place):
    """Runs an example within this process, its export as in `run_bash`; returns its stdout."""
    code = code.replace('/1")', '/1", signatures=["serving_default"], verify=False)')
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file, ops.made_for("gpu"):
        file.write(code)
        file.flush()
        stdout, _ = binaries.run(pathlib.Path(file.name), folder=place)
    gc.collect()
    return stdout


def scores_in(stdout):
    return [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
