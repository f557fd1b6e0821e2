"""Text to batches on one core: tokens of a corpus into shards, shards into batches."""

import os
import pathlib
import tempfile
import time

import numpy as np
import psutil
import tensorflow as tf
from common import answer

from t2t_keras.data import (
    FolderCorpus,
    LengthBuckets,
    train_tokenizer,
    training_batches,
    write_shards,
)


def write_corpus(folder, lines):
    """Writes lines of invented words, frequent and rare ones as in a language (Zipf's law)."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(20_000)]
    for language in ("en", "de"):
        with open(os.path.join(folder, f"train.{language}"), "w", encoding="utf-8") as file:
            for _ in range(lines):
                drawn = rng.zipf(1.3, rng.integers(5, 40)) % len(words)
                print(*(words[i] for i in drawn), file=file)


def measure(lines, batches, threads):
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(folder, lines)
        with open(os.path.join(folder, "train.en"), encoding="utf-8") as file:
            sample = [line for line, _ in zip(file, range(5_000), strict=False)]
        tokenizer = train_tokenizer("bpe", sample, 1_000)
        start = time.perf_counter()
        write_shards(FolderCorpus(folder, "en", "de"), "train", tokenizer, folder)
        to_shards = time.perf_counter() - start
        shards = pathlib.Path(folder, "train").glob("*.target")
        written = sum(path.stat().st_size for path in shards) / 4  # int32
        stream = training_batches(folder, "train", LengthBuckets(25_000), seed=1)
        iterator = iter(stream)
        next(iterator)
        start, tokens = time.perf_counter(), 0
        for _ in range(batches):
            tokens += int(tf.math.count_nonzero(next(iterator)[2]))
        a_token_batched = (time.perf_counter() - start) / tokens
    a_token_read = to_shards / written
    return {
        "target tokens/s": 1 / (a_token_read + a_token_batched),
        "text to shards": 1 / a_token_read,
        "shards to batches": 1 / a_token_batched,
        "MiB": psutil.Process().memory_info().rss / 2**20,
    }


answer(measure)
