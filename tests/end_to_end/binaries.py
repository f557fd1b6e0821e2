"""A small corpus of digits in words; the binaries, run as processes and within this one."""

import contextlib
import io
import json
import os
import pathlib
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import absl.app
import keras
import numpy as np
import pytest
from absl import logging
from absl.flags import FLAGS
from absl.testing import flagsaver
from tensorflow.python.framework import config

from t2t_keras.training.checkpoint_files import CheckpointReader

ROOT = pathlib.Path(__file__).parents[2]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
FRENCH = ["zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"]

NARROW = {"model.model_dim": 32, "model.feed_forward_dim": 64, "model.num_heads": 2}
SETTINGS = {
    **NARROW,
    "model.vocab_size": 330, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "data.test_split": "test", "data.tokens_per_batch": 200, "train.steps": 20,
    "train.log_every": 5, "train.validate_every": 10, "train.validation_sentences": 4,
    "train.checkpoint_every": 5, "train.keep_checkpoints": 3, "train.average_checkpoints": 2,
    "train.optimizer": "adam",  # sooner made, as without parts
    "train.weight_decay": 0.0, "train.micro_batches": 1, "train.parallel_micro_batches": 1,
    "train.mixed_precision": "", "train.deterministic": True, "decode.max_extra_tokens": 5,
    "knn.k": 0,
}  # fmt: skip
"""Fields of a small run."""


def small_flags(name, settings):
    """Returns the flags of a packaged config, by its path, with other values of some fields."""
    path = f"{ROOT}/pipelines/configs/{name}.py"
    return [f"--config={path}", *(f"--config.{field}={x}" for field, x in settings.items())]


SMALL = small_flags("multi30k_en_de", SETTINGS)


def pairs(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        digits = [rng.randrange(10) for _ in range(rng.randint(1, 6))]
        yield " ".join(ENGLISH[d] for d in digits), " ".join(GERMAN[d] for d in digits)


def write_folder(folder):
    """Writes train, val and test; returns the folder."""
    for seed, (split, count) in enumerate({"train": 300, "val": 20, "test": 10}.items()):
        sides = zip(*pairs(count, seed), strict=True)
        for language, lines in zip(("en", "de"), sides, strict=True):
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    return folder


def write_corpora(folder):
    """Writes 300 training pairs of English and German, and 100 of English and French."""
    write_folder(folder)
    for split, count in (("train", 100), ("val", 20), ("test", 10)):
        digits = dict(zip(ENGLISH, FRENCH, strict=True))
        lines = (folder / f"{split}.en").read_text().splitlines()[:count]
        french = [" ".join(digits[word] for word in line.split()) for line in lines]
        (folder / "french").mkdir(exist_ok=True)
        (folder / "french" / f"{split}.en").write_text("\n".join(lines) + "\n")
        for place in (folder / "french", folder) if split == "test" else (folder / "french",):
            (place / f"{split}.fr").write_text("\n".join(french) + "\n")
    return folder


def popen(binary, *arguments, **kwargs):
    """Starts a binary as a process, as a user does."""
    return subprocess.Popen(
        [sys.executable, "-m", f"pipelines.{binary}", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kwargs,
    )


def wait_for(found, processes):
    """Waits until `found()` is true, as long as all processes run."""
    deadline = time.monotonic() + 900
    while not found():
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run_process(binary, *arguments, stdin=b"", code=0):
    """Runs a binary as a process; returns (stdout, stderr) as text."""
    process = popen(binary, *arguments)
    stdout, stderr = (text.decode() for text in process.communicate(stdin, timeout=900))
    assert process.returncode == code, stderr
    return stdout, stderr


def run(binary, *arguments, stdin=b"", code=0, folder=ROOT):
    """Runs a binary, module or file within this process, in a folder; returns (stdout, stderr).

    What it sets for the whole process is set back.
    """
    absl.app.define_help_flags()  # once for all
    log, verbosity = logging.get_absl_handler().python_handler, logging.get_verbosity()
    output, error = io.BytesIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_flags())
        stack.enter_context(flagsaver.flagsaver())
        stdout = stack.enter_context(_stdout_to(output))
        source = stack.enter_context(tempfile.TemporaryFile("w+"))
        source.buffer.write(stdin)
        source.seek(0)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "stdin", source)
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", error)
        patch.setattr(sys, "argv", [*map(str, (binary, *arguments))])
        patch.setattr(os, "environ", os.environ.copy())
        patch.setattr(log, "stream", error)
        patch.chdir(folder)
        try:
            if isinstance(binary, pathlib.Path):
                runpy.run_path(str(binary), run_name="__main__")
            else:
                module = binary if "." in binary else f"pipelines.{binary}"
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            ended = 0
        except SystemExit as end:
            ended = end.code or 0
        finally:
            logging.set_verbosity(verbosity)
            keras.config.set_dtype_policy("float32")
            config.disable_op_determinism()
    assert ended == code, error.getvalue()
    return output.getvalue().decode("utf-8", "surrogateescape"), error.getvalue()


def refused(binary, *arguments, **options):
    """Runs a binary that ends with an error; returns its one line."""
    stdout, stderr = run(binary, *arguments, code=1, **options)
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and "Traceback" not in stderr and "{" not in stdout
    return last


def scores_of(*flags):
    """Returns the scores that `evaluate` prints."""
    return json.loads(run("evaluate", *flags)[0].splitlines()[-1])


@contextlib.contextmanager
def without_flags():
    """Hides the flags of binaries and tools that tests have imported: the main module has its own.

    Those of Abseil stay.
    """
    modules = FLAGS.flags_by_module_dict().items()
    kept = {flag.name for name, defined in modules if name.startswith("absl") for flag in defined}
    kept |= {flag.short_name for name in kept if (flag := FLAGS[name]).short_name}
    hidden = {name: FLAGS[name] for name in FLAGS if name not in kept}
    for name in hidden:
        delattr(FLAGS, name)
    yield
    for name, flag in hidden.items():
        FLAGS[name] = flag


@contextlib.contextmanager
def _stdout_to(output):
    """Lets the stream 1, which /dev/stdout names, be a pipe to `output`; gives it as text file."""
    reader, writer = os.pipe()
    before = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)

    def copy():
        with open(reader, "rb") as stream:
            shutil.copyfileobj(stream, output)

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        with open(1, "w", closefd=False) as stdout:
            yield stdout
    finally:
        os.dup2(before, 1)
        os.close(before)
        thread.join()


def assert_same_checkpoint(workdir, other, step):
    """Asserts that two runs left the same checkpoint of a step, bit by bit."""
    ours, theirs = (
        CheckpointReader(folder / "checkpoints" / f"step_{step:08d}") for folder in (workdir, other)
    )
    assert ours.shapes == theirs.shapes
    for name in ours.shapes:
        np.testing.assert_array_equal(ours.read(name), theirs.read(name), err_msg=name)
