"""A small corpus of digits in words, and the binaries run as a user runs them."""

import os
import pathlib
import random
import subprocess

from tests.warm_python import warm_python

_ENVIRONMENT = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
ROOT = pathlib.Path(__file__).parents[2]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]

SMALL = [
    f"--config={ROOT}/pipelines/configs/multi30k_en_de.py",
    "--config.model.vocab_size=330",
    "--config.model.num_encoder_layers=1",
    "--config.model.num_decoder_layers=1",
    "--config.model.model_dim=32",
    "--config.model.feed_forward_dim=64",
    "--config.model.num_heads=2",
    "--config.data.test_split=test",
    "--config.data.tokens_per_batch=200",
    "--config.train.steps=20",
    "--config.train.log_every=5",
    "--config.train.validate_every=10",
    "--config.train.validation_sentences=4",
    "--config.train.checkpoint_every=5",
    "--config.train.keep_checkpoints=3",
    "--config.train.average_checkpoints=2",
    "--config.train.optimizer=adam",  # sooner made, as without parts
    "--config.train.weight_decay=0",
    "--config.train.micro_batches=1",
    "--config.train.parallel_micro_batches=1",
    "--config.train.mixed_precision=",
    "--config.train.deterministic=true",
    "--config.decode.max_extra_tokens=5",
    "--config.knn.k=0",
]


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


def popen(binary, *arguments, **kwargs):
    """Starts a binary as a user does."""
    command = [*warm_python(library=True), "-m", f"pipelines.{binary}", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=_ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kwargs,
    )


def run(binary, *arguments, stdin=b"", code=0):
    """Runs a binary, or a module of tests; returns (stdout, stderr) as text."""
    module = binary if "." in binary else f"pipelines.{binary}"
    done = subprocess.run(
        [*warm_python(library=True), "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=_ENVIRONMENT,
        input=stdin,
        capture_output=True,
        timeout=900,
        check=False,
    )
    stdout, stderr = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, stderr
    return stdout, stderr
