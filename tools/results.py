"""Reruns the figures of README's first table, and fails where one is off.

python tools/results.py --data=DATA --output_dir=DIR                 # some 12 hours on two cores
python tools/results.py --data=DATA --output_dir=DIR --figures=parsing,pcfg
python tools/results.py --quick --output_dir=DIR                     # toy sizes; ten minutes

DATA has the folders multi30k/tok, multi30k/raw (train.*.en, val.*.de, test_2016_flickr.*.fr, …),
which are those of task 1 of github.com/multi30k/dataset, and treebank, the sample of the Penn
Treebank in NLTK: its files 0001 to 0159 are train.mrg.gz, 0160 to 0179 dev.mrg.gz. Figures, in
README's order: multi30k_en_de, multi30k_en_de_no_knn, multi30k_en_de_paper, multi30k_en_fr,
multi30k_en_fr_no_knn, multi30k_en_de_raw, multi30k_en_fr_raw, parsing, pcfg, training_speed,
training_speed_gpu (where there is a GPU), beam_search_float32, beam_search_best.

Started again, it resumes: trainings from their checkpoints, and values in DIR/results.json stay.
It writes results.json and results.md, with each seed's value, the mean, the standard deviation from
three seeds on, and the range expected: around the figures of tools/results.json, to which a test
holds README. The exit code is 1 if a value is outside of its range, a command fails or data are
missing. Speeds need an idle machine, and their ranges a CPU like README's. --quick compares
nothing: it checks that every command gives a value.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys

import tensorflow as tf
from absl import flags
from benchmarks.environments import cpu_name
from paper.report import OUTPUT_DIR, QUICK, markdown_table

from pipelines import app
from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError
from tools.headline.figures import FIGURES, toy, write_toy_data
from tools.headline.reruns import GOOD, ROOT, judge, rerun

NAMES = flags.DEFINE_list("figures", None, "Figures to rerun; default: all.")
DATA = flags.DEFINE_string("data", None, "Folder of the corpora; with --quick default: toy ones.")

PUBLISHED = ROOT / "tools" / "results.json"
_PACKAGES = ("tensorflow", "keras", "tensorflow-text", "numpy", "sacrebleu")


def main():
    figures = choose(NAMES.value)
    folder = os.path.abspath(OUTPUT_DIR.value)
    data = os.path.abspath(DATA.value) if DATA.value else os.path.join(folder, "toy_data")
    if QUICK.value:
        figures = [toy(figure) for figure in figures]
        if not DATA.value:
            write_toy_data(data)
    elif not DATA.value and any(figure.data for figure in figures):
        raise InputError("give --data, the folder of multi30k and treebank, or --quick.")
    path = os.path.join(folder, "results.json")
    earlier = _read(path)["figures"] if os.path.exists(path) else []
    published = {row["figure"]: row for row in _read(PUBLISHED)["figures"]}
    chosen = {figure.name: figure for figure in figures}
    gpu = bool(tf.config.list_physical_devices("GPU"))
    for rows in rerun(figures, earlier, folder, data, _origin(), gpu=gpu):
        judged = [
            judge(chosen[row["figure"]], row, None if QUICK.value else published[row["figure"]])
            if "problem" in row
            else row
            for row in rows
        ]
        _write(judged, folder)
    print(report(judged))
    outcomes = [row["outcome"] for row in judged if row["figure"] in chosen]
    sys.exit(any(outcome not in GOOD for outcome in outcomes))


def choose(names):
    """Returns the figures of these names, all for None.

    Raises:
        InputError: if there is no such figure.
    """
    known = {figure.name: figure for figure in FIGURES}
    for name in names or ():
        if name not in known:
            raise InputError(f"there is no figure {name!r}: give some of {', '.join(known)}.")
    return [known[name] for name in known if names is None or name in names]


def report(rows):
    """Returns the Markdown text of rows of results.json."""
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    table = [
        {
            "figure": row["figure"],
            "measurement": f"{row['row']}: {row['what']}",
            "values": "; ".join(
                (f"seed {one['seed']}: " if one["seed"] is not None else "") + f"{one['value']:.2f}"
                for one in row["runs"]
            ),
            "mean": row["mean"],
            "standard deviation": row["deviation"],
            "expected": row.get("expected") and " to ".join(map(str, row["expected"])),
            "outcome": row.get("outcome", "interrupted"),
            "measured": "; ".join(
                dict.fromkeys(
                    f"{one['date']}, commit {one['commit']}, {one['machine']}"
                    for one in row["runs"]
                )
            ),
        }
        for row in rows
    ]
    return f"# Figures of README\n\n{markdown_table(table)}\nVersions: {versions}\n"


def _write(rows, folder):
    content = json.dumps({"versions": _versions(), "figures": rows}, indent=1, ensure_ascii=False)
    write_file(os.path.join(folder, "results.json"), f"{content}\n".encode())
    write_file(os.path.join(folder, "results.md"), report(rows).encode())


def _read(path):
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}): remove it.") from error


def _versions():
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"python": platform.python_version()} | found


def _origin():
    """Returns what is kept with each value."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        commit = done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {"commit": commit, "machine": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores"}


if __name__ == "__main__":
    app.take("quick")
    app.require("output_dir")
    flags.FLAGS["quick"].help = "Toy sizes: all figures take some ten minutes on two idle cores."
    app.run(main)
