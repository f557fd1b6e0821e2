"""Shared code of the workers: model sizes, and the settings of a measurement. Plain Python."""

import contextlib
import fcntl
import itertools
import json
import pathlib
import random
import statistics
import sys
import time

# layers of each stack, d_model, d_ff, heads, vocabulary, sentences of a training batch
SIZES = {
    "quick": (1, 32, 64, 2, 1_000, 4),
    "tiny": (4, 128, 256, 4, 10_000, 128),
    "base": (6, 512, 2048, 8, 32_000, 64),
    # base with the paper's vocabulary and batch of 25,000 tokens, for GPUs
    "paper": (6, 512, 2048, 8, 37_000, 782),
}
TRAINING_LENGTH = 32  # tokens of a source and of a target, without padding


def answer(measure):
    """Prints what `measure` makes of the settings on the command line, as a line of JSON."""
    print(json.dumps(measure(**json.loads(sys.argv[-1]))))


@contextlib.contextmanager
def alone(lock):
    """Context manager that waits until no other process holds a lock, and then holds it alone.

    The lock is that of a file descriptor, which all share while they start and compile; None: there
    is nothing to wait for.
    """
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_EX)
    yield
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_SH)


def median_time(function, repeats, warm_up=1, wait=None, compiles=False, lock=None):
    """Returns the median seconds of `repeats` calls, after some unmeasured ones, `alone`.

    With `wait`, a function that waits for a GPU, calls follow one another without waiting, as in
    training, and their mean is returned. If the first call compiles, other processes may do the
    same meanwhile.
    """
    if compiles:
        function()
    with alone(lock):
        for _ in range(warm_up):
            function()
        if wait is None:
            return statistics.median(_time(function) for _ in range(repeats))

        def calls():
            for _ in range(repeats):
                function()
            wait()

        wait()
        return _time(calls) / repeats


def _time(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def divide_threads(threads, batches):
    """Returns CTranslate2's settings for batches in parallel that divide the threads."""
    return {"inter_threads": batches, "intra_threads": max(threads // batches, 1)}


def decoding_figures(seconds, tokens, batch, target):
    """Returns what is reported of a search of `batch` sentences, each of `target` tokens.

    The memory is what the process has now.
    """
    status = pathlib.Path("/proc/self/status").read_text()
    return {
        "target tokens/s": tokens / seconds,
        "ms": 1000 * seconds,
        "ms/sentence": 1000 * seconds / batch,
        "ms/step": 1000 * seconds / target,
        "MiB": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
    }


def shortlist_table(vocab):
    """Returns a shortlist for random models: the targets of each source id, and frequent ones.

    Targets are drawn by Zipf's law, as words of a language are: the lists of a batch overlap as
    those of real text do. The first 260 of `vocab` ids are no words; a list has up to 100 ids.
    """
    draw = random.Random(0)
    words = range(260, vocab)
    weights = list(itertools.accumulate(1 / (1 + word - 260) for word in words))
    lists = [sorted(set(draw.choices(words, cum_weights=weights, k=100))) for _ in range(vocab)]
    return lists, list(range(360))
