"""Interleaved benchmarks: contestants run in turn, each time in a process of its own.

A machine's speed drifts with its temperature and other load. Interleaved runs drift alike, so their
ratios are more reliable than their seconds.
"""

import json
import os
import statistics
import subprocess
import sys
from typing import NamedTuple

from benchmarks import ROOT
from t2t_keras.errors import InputError


class Contestant(NamedTuple):
    """Who is measured.

    Attributes:
        name: as tables show it.
        worker: name of a script in `workers`, which prints its figures as a line of JSON, or
            `ours.` and the name of a function in workers/ours.py.
        settings: {name: value}, what the script takes.
        peer: whose environment it runs in; None: ours.
        may_fail: whether the table says so where it fails; else the contest ends.
    """

    name: str
    worker: str
    settings: dict
    peer: str | None = None
    may_fail: bool = False


class Contest(NamedTuple):
    """Contestants that do the same work.

    Attributes:
        heading: str.
        unit: key of the workers' figures that is compared.
        contestants: list of `Contestant`.
        less_is_better: bool.
    """

    heading: str
    unit: str
    contestants: list
    less_is_better: bool = False


def hold(contest, rounds, interpreters):
    """Runs a contest.

    Args:
        contest: `Contest`.
        rounds: how many times each contestant's turn comes.
        interpreters: {peer: path of its Python}; those of other peers are left out.

    Returns:
        {contestant's name: list of the figures of each round}; empty for one that may fail and did.

    Raises:
        InputError: if a worker fails that may not, with the end of what it said.
    """
    present = [c for c in contest.contestants if c.peer is None or c.peer in interpreters]
    figures = {contestant.name: [] for contestant in present}
    for number in range(rounds):
        for contestant in present:
            print(f"{contest.heading}: {contestant.name}, {number + 1}", file=sys.stderr)
            interpreter = interpreters.get(contestant.peer, sys.executable)
            try:
                figures[contestant.name].append(_run(contestant, interpreter))
            except InputError as error:
                if not contestant.may_fail:
                    raise
                print(error, file=sys.stderr)
    return figures


def _run(contestant, interpreter):
    name, _, function = contestant.worker.partition(".")
    script = ROOT / "tools/benchmarks/workers" / f"{name}.py"
    cores = sorted(os.sched_getaffinity(0))[: contestant.settings["threads"]]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [interpreter, script, *filter(None, [function]), json.dumps(contestant.settings)],
        env={"TF_CPP_MIN_LOG_LEVEL": "2"} | os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),  # before TensorFlow counts them
    )
    if done.returncode:
        raise InputError(
            f"{contestant.name} failed with {contestant.settings}: {done.stderr.strip()[-1000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def table(contest, figures):
    """Returns the rows of a contest's table: median, range, and the ratios to each peer.

    A ratio is how many times as fast the row is as the peer, by their medians.

    Args:
        contest: `Contest`.
        figures: what `hold` returned for it.
    """
    failed = [{"": f"{name}: fails on this machine"} for name, f in figures.items() if not f]
    figures = {name: rounds for name, rounds in figures.items() if rounds}
    values = {name: [f[contest.unit] for f in rounds] for name, rounds in figures.items()}
    medians = {name: statistics.median(numbers) for name, numbers in values.items()}
    peers = [c.name for c in contest.contestants if c.peer and c.name in figures]
    rows = []
    for name, numbers in values.items():
        row = {"": name, contest.unit: medians[name], "from": min(numbers), "to": max(numbers)}
        for peer in peers:
            ratio = medians[name] / medians[peer]
            row[f"× {peer}"] = round(1 / ratio if contest.less_is_better else ratio, 3)
        others = [key for key in figures[name][0] if key != contest.unit]
        row |= {key: statistics.median(f[key] for f in figures[name]) for key in others}
        rows.append(row)
    rows += failed
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return [{column: row.get(column) for column in columns} for row in rows]


def best_against_best(results):
    """Returns the rows of a table of each side's best setting, by the medians of contests.

    Each contest has a row for all number formats, one for float32 on both sides, and one for all
    formats with a shortlist on both sides.

    Args:
        results: list of (`Contest`, what `hold` returned for it).
    """
    rows = []
    for contest, figures in results:
        choose = min if contest.less_is_better else max
        for kind, wanted in _KINDS.items():
            best = {}
            for contestant in contest.contestants:
                if figures.get(contestant.name) and wanted(contestant.settings):
                    values = [f[contest.unit] for f in figures[contestant.name]]
                    candidate = (statistics.median(values), contestant.name)
                    side = contestant.peer or "ours"
                    best[side] = choose(best.get(side, candidate), candidate)
            if not best:
                continue
            heading = contest.heading + kind
            row = {"": heading, "unit": contest.unit}
            for side, (value, name) in best.items():
                row |= {side: value, f"{side}: best": name}
                if side != "ours":
                    ratio = best["ours"][0] / value
                    row[f"× {side}"] = round(1 / ratio if contest.less_is_better else ratio, 3)
            rows.append(row)
    return rows


_KINDS = {
    "": lambda settings: not settings["shortlist"],
    ", float32": lambda settings: settings["dtype"] == "float32" and not settings["shortlist"],
    ", with a shortlist": lambda settings: settings["shortlist"],
}
"""{end of a row's heading: whether it compares contestants of these settings}."""
