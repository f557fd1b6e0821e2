"""Reruns figures, keeps what is finished, and compares it with README's figures."""

import datetime
import functools
import os
import pathlib
import statistics
import subprocess
import sys

from t2t_keras.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
NO_GPU = "not run: it needs a GPU"
GOOD = ("in range", "a value, not compared", NO_GPU)


def run_command(arguments):
    """Runs Python in the repository; returns what it printed. Its messages go to stderr.

    Raises:
        InputError: if it fails.
    """
    print("Running:", *arguments, file=sys.stderr, flush=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise InputError(f"exit code {done.returncode} of python {' '.join(arguments)}")
    return done.stdout


def rerun(figures, earlier, folder, data, origin, run=run_command, gpu=False):
    """Measures figures, except for what was measured earlier.

    Args:
        figures: list of `Figure`.
        earlier: list of rows of results.json that an earlier call left.
        folder: output folder.
        data: folder of the corpora.
        origin: {"commit": …, "machine": …}, kept with each value.
        run: function of a command's arguments to what it printed.
        gpu: whether this machine has one that TensorFlow uses.

    Yields:
        After each value all rows, those of other figures included.

    Raises:
        InputError: if an earlier row was measured by other commands.
    """
    rows = {row["figure"]: row for row in earlier}
    run = functools.cache(run)  # figures share trainings and benchmarks
    for figure in figures:
        row = _new_row(figure)
        held = rows.get(figure.name, row)
        if held["runs"] and held["commands"] != row["commands"]:
            raise InputError(
                f"{folder} holds {figure.name} by other commands: give another --output_dir."
            )
        rows[figure.name] = row | {"runs": held["runs"]}
    for figure in figures:
        row = rows[figure.name]
        place = os.path.join(data, figure.data)
        problem = None
        if figure.gpu and not gpu:
            problem = NO_GPU
        elif not os.path.isdir(place):
            problem = f"not run: there is no folder {place}"
        for seed in figure.seeds:
            if problem or seed in {one["seed"] for one in row["runs"]}:
                continue
            try:
                value = _measure(figure, folder, data, seed, run)
            except (InputError, OSError, ValueError, LookupError) as error:
                problem = f"failed: {type(error).__name__}: {error}"
                continue
            today = datetime.date.today().isoformat()
            row["runs"].append({"seed": seed, "value": round(value, 4), "date": today} | origin)
            yield list(rows.values())
        row |= _summary(row["runs"]) | {"problem": problem}
        yield list(rows.values())


def _new_row(figure):
    return {
        "figure": figure.name,
        "row": figure.row,
        "what": figure.what,
        "commands": [" ".join(("python", *command)) for command in figure.commands],
        "runs": [],
        "mean": None,
        "deviation": None,
        "beside": dict(figure.beside),
    }


def _measure(figure, folder, data, seed, run):
    for command in figure.commands:
        printed = run(tuple(part.format(data=data, out=folder, seed=seed) for part in command))
    return figure.read(printed, folder)


def _summary(runs):
    """Returns mean (None without seeds) and standard deviation (None below three seeds)."""
    values = [one["value"] for one in runs if one["seed"] is not None]
    return {
        "mean": round(statistics.fmean(values), 2) if values else None,
        "deviation": round(statistics.stdev(values), 2) if len(values) > 2 else None,
    }


def stated(row):
    """Returns the values of a row that README states: the mean over seeds, or each value."""
    return [one["value"] for one in row["runs"]] if row["mean"] is None else [row["mean"]]


def judge(figure, row, published):
    """Compares a row with README's figures.

    Args:
        figure: `Figure`.
        row: of results.json.
        published: the row of README's figures; None: values are not compared.

    Returns:
        The row with "expected", a list of the lowest and the highest value, and "outcome", which
        is one of `GOOD` if all is well.
    """
    expected, outcome = None, "a value, not compared"
    if published:
        low = min(stated(published)) - figure.tolerance
        high = max(stated(published)) + figure.tolerance
        expected = [round(low, 2), round(high, 2)]
        inside = all(low <= value <= high for value in stated(row))
        outcome = "in range" if inside else "OUT OF RANGE"
    row = row | {"expected": expected, "outcome": row["problem"] or outcome}
    return {key: value for key, value in row.items() if key != "problem"}
