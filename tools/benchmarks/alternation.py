"""Interleaved benchmarks: contestants run in turn, each time in a separate process.

A machine's speed drifts with its temperature and other load. Interleaved runs drift alike, so their
ratios are more reliable than their seconds.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from benchmarks import ROOT
from t2t_keras.errors import InputError

PEERS = ("torch", "ctranslate2", "transformers", "keras-hub")


class Contestant(NamedTuple):
    """Who is measured."""

    name: str  # as tables show it
    worker: str  # SCRIPT or SCRIPT.FUNCTION in `workers`, which prints its figures as JSON
    settings: dict  # {name: value}, what it takes
    peer: str | None = None  # whose environment it runs in; None: ours
    may_fail: bool = False  # whether a failure is only reported in the table


class Contest(NamedTuple):
    """Contestants that do the same work; `unit` is the key of their figures that is compared."""

    heading: str
    unit: str
    contestants: list
    less_is_better: bool = False


def find_interpreters(wanted, peers, given):
    """Returns {peer: path of a Python} for the wanted `peers`; `given` lists "peer=path".

    Raises:
        InputError: if a name is not known, an interpreter can't be run or has no peer.
    """
    chosen = dict(item.partition("=")[::2] for item in given)
    for name in [*peers, *chosen]:
        if name not in PEERS:
            raise InputError(f"there is no peer {name!r}: give some of {', '.join(PEERS)}.")
    for name, python in chosen.items():
        if not shutil.which(python):
            raise InputError(f"--peer_python={name}={python}: give a Python that can be run.")
    pythons = {peer: chosen.get(peer, sys.executable) for peer in peers if peer in wanted}
    for peer, python in pythons.items():
        if python == sys.executable and not importlib.util.find_spec(peer.replace("-", "_")):
            raise InputError(
                f"{peer} is not installed: pip install '.[bench]', leave it out of --peers, or "
                f"give --peer_python={peer}=PATH of a Python that has it."
            )
    return pythons


def hold(contest, rounds, interpreters, lock=None):
    """Runs a contest in some rounds, without contestants whose peers have no interpreter.

    With the path of a lock the contestants of a round start together, and by it each of them
    measures when no other one is at work. Else each starts when the one before has ended.

    Yields:
        After each round {contestant's name: list of the figures of each round until then}; empty
        for one that may fail and did.

    Raises:
        InputError: if a worker fails that may not fail, with the end of its output.
    """
    present = [c for c in contest.contestants if c.peer is None or c.peer in interpreters]
    figures = {contestant.name: [] for contestant in present}

    def run(contestant):
        turn = len(figures[contestant.name]) + 1
        print(f"{contest.heading}: {contestant.name}, {turn}", file=sys.stderr)
        python = interpreters.get(contestant.peer, sys.executable)
        try:
            figures[contestant.name].append(_run(contestant, python, lock))
        except InputError as error:
            if not contestant.may_fail:
                raise
            print(error, file=sys.stderr)

    for _ in range(rounds):
        list(each(run, present, together=lock))
        yield figures


def each(function, items, together):
    """Yields function(item) of each item; `together` calls them all at once, in threads."""
    if not together:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(len(items)) as pool:
        yield from pool.map(function, items)


def _run(contestant, interpreter, lock):
    """Returns the figures of a contestant, whose process shares the lock's file descriptor."""
    name, _, function = contestant.worker.partition(".")
    script = ROOT / "tools/benchmarks/workers" / f"{name}.py"
    cores = sorted(os.sched_getaffinity(0))[: contestant.settings["threads"]]
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))]  # TensorFlow counts the cores
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with open(lock, "a") if lock else contextlib.nullcontext() as file:
        shared = {"lock": file.fileno()} if lock else {}
        if lock:
            fcntl.flock(file, fcntl.LOCK_SH)  # waits for one that measures
        settings = json.dumps(contestant.settings | shared)
        done = subprocess.run(
            [*pinned, interpreter, script, *filter(None, [function]), settings],
            env={"TF_CPP_MIN_LOG_LEVEL": "2"} | os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            pass_fds=[*shared.values()],
        )
    if done.returncode:
        raise InputError(
            f"{contestant.name} failed with {contestant.settings}: {done.stderr.strip()[-1000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def table(contest, figures):
    """Returns the rows of a contest's table: median, range, and the ratios to each peer.

    A ratio is how many times as fast the row is as the peer, by their medians; `figures` are what
    `hold` yields.
    """
    failed = [{"": f"{name}: fails on this machine"} for name, f in figures.items() if not f]
    figures = {name: rounds for name, rounds in figures.items() if rounds}
    medians = {name: _median(rounds, contest.unit) for name, rounds in figures.items()}
    peers = [c.name for c in contest.contestants if c.peer and c.name in figures]
    rows = []
    for name, rounds in figures.items():
        values = [f[contest.unit] for f in rounds]
        row = {"": name, contest.unit: medians[name], "from": min(values), "to": max(values)}
        row |= {f"× {peer}": _ratio(contest, medians[name], medians[peer]) for peer in peers}
        rows.append(row | {k: _median(rounds, k) for k in rounds[0] if k != contest.unit})
    rows += failed
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return [{column: row.get(column) for column in columns} for row in rows]


def _median(rounds, key):
    return statistics.median(figures[key] for figures in rounds)


def _ratio(contest, value, other):
    return round(other / value if contest.less_is_better else value / other, 3)


def best_against_best(results):
    """Returns the rows of a table of each side's best setting, by the medians of contests.

    Each contest has a row for all number formats, one for what both sides do without settings of
    threads and parallel batches, one for float32 on both sides, and one for all formats with a
    shortlist on both sides. `results` are pairs of a contest and what `hold` yields for it.
    """
    rows = []
    for contest, figures in results:
        choose = min if contest.less_is_better else max
        cores = max(contestant.settings["threads"] for contestant in contest.contestants)
        for kind, settings in _KINDS.items():
            wanted = {key: cores if value is None else value for key, value in settings.items()}
            best = {}
            for contestant in contest.contestants:
                if figures.get(contestant.name) and wanted.items() <= contestant.settings.items():
                    candidate = _median(figures[contestant.name], contest.unit), contestant.name
                    side = contestant.peer or "ours"
                    best[side] = choose(best.get(side, candidate), candidate)
            row = {"": contest.heading + kind, "unit": contest.unit}
            for side, (value, name) in best.items():
                row |= {side: value, f"{side}: best": name}
                if side != "ours":
                    row[f"× {side}"] = _ratio(contest, best["ours"][0], value)
            if best:
                rows.append(row)
    return rows


_KINDS = {
    "": {"shortlist": False},
    ", one process on all cores": {"shortlist": False, "parts": 1, "threads": None},
    ", float32": {"shortlist": False, "dtype": "float32"},
    ", with a shortlist": {"shortlist": True},
}
"""{end of a row's heading: the settings that it compares}; None: as many as there are cores."""
