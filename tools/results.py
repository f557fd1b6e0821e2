"""Reruns published figures of README and pipelines/docs/benchmarks.md, and prints their table.

python tools/results.py --data=DATA --output_dir=DIR                # some 12 hours on two cores
python tools/results.py --data=DATA --output_dir=DIR --figures=parsing,beam_search

DATA contains the folders multi30k/tok and multi30k/raw (train.*.en, val.*.de,
test_2016_flickr.*.fr, …) of task 1 of github.com/multi30k/dataset, and treebank, the sample of the
Penn Treebank in NLTK: its files 0001 to 0159 are train.mrg.gz, 0160 to 0179 dev.mrg.gz. Figures:
multi30k_en_de, multi30k_en_fr, multi30k_en_de_paper, multi30k_en_de_raw,
multi30k_en_fr_raw, parsing, training_speed, beam_search.

Started again, it resumes: trainings from their checkpoints, and the figures in DIR/results.json
stay. It prints and writes results.md, a row for each figure with the published values of
tools/results.json. Speeds need an idle machine.
"""

import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

from absl import flags
from paper.shared import OUTPUT_DIR, markdown_table

from pipelines import app
from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "tools" / "results.json"
TEST = "--split=test"
TOKENIZED = f"{TEST} --tokenize=none --lowercase"
NO_KNN = "--knn_k=0 --length_penalty=1"
PAPERS_RECIPE = (
    "--config.train.optimizer=adam --config.train.weight_decay=0 "
    "--config.train.label_smoothing=0.1 --config.train.steps=8000 "
    "--config.data.tokens_per_batch=8192 --config.train.decay_fraction=0 "
    "--config.train.checkpoint_every=53 --config.train.keep_checkpoints=10 "
    "--config.train.average_checkpoints=10"
)


def trained(config, data, run, seeds, scores, fields=""):
    """Returns the commands of trainings with several seeds, and of their scores.

    They are a list of (figure, or "" without a value, command); {out} and {data} are folders.
    `scores` is {figure: flags of `pipelines.evaluate`}, `fields` are those of `pipelines.train`.
    """
    commands = []
    for seed in seeds:
        workdir = f"--workdir={{out}}/runs/{run}/seed_{seed}"
        train = f"-m pipelines.train --config={config} --config.data.folder={{data}}/{data}"
        commands.append(("", f"{train} {workdir} --config.train.seed={seed} {fields}"))
        commands += [(f, f"-m pipelines.evaluate {workdir} {flags}") for f, flags in scores.items()]
    return commands


def multi30k(config, seeds):
    scores = {config: TOKENIZED, f"{config}_no_knn": f"{TOKENIZED} {NO_KNN}"}
    return trained(config, "multi30k/tok", config, seeds, scores)


BENCHMARK = "tools/benchmark.py {} --threads=2 --output_dir={{out}}/benchmark"
BENCHMARKS = {
    "training_speed": ("train", "Training step"),
    "beam_search": ("decode", "Best against best"),
}
"""{figure: its sub-command, and the beginning of its tables}"""
COMMANDS = {
    "multi30k_en_de": multi30k("multi30k_en_de", [1, 2, 3]),
    "multi30k_en_fr": multi30k("multi30k_en_fr", [1, 2, 3]),
    "multi30k_en_de_paper": trained(
        "multi30k_en_de",
        "multi30k/tok",
        "multi30k_en_de_paper",
        [1, 2, 3],
        {"multi30k_en_de_paper": f"{TOKENIZED} {NO_KNN}"},
        PAPERS_RECIPE,
    ),
    **{
        f"{name}_raw": trained(name, "multi30k/raw", f"{name}_raw", [1], {f"{name}_raw": TEST})
        for name in ("multi30k_en_de", "multi30k_en_fr")
    },
    "parsing": trained(
        "wsj_parsing_small", "treebank", "parsing", [1, 2, 3], {"parsing": "--split=dev"}
    ),
    "training_speed": [
        ("training_speed", BENCHMARK.format("train --sizes=base --peers=torch,keras-hub"))
    ],
    "beam_search": [
        ("beam_search", BENCHMARK.format("decode --cases=base:32:4 --peers=ctranslate2"))
    ],
}

NAMES = flags.DEFINE_list(
    "figures", None, f"Figures to rerun, of {','.join(COMMANDS)}; default: all."
)
DATA = flags.DEFINE_string("data", "data", "Folder of the corpora.")


def main():
    names = NAMES.value or list(COMMANDS)
    for name in names:
        if name not in COMMANDS:
            raise InputError(f"--figures has {name!r}: give some of {', '.join(COMMANDS)}.")
    folder, data = os.path.abspath(OUTPUT_DIR.value), os.path.abspath(DATA.value)
    path = os.path.join(folder, "results.json")
    results = json.loads(pathlib.Path(path).read_text()) if os.path.exists(path) else {}
    for figure, command in itertools.chain.from_iterable(COMMANDS[name] for name in names):
        arguments = command.format(out=folder, data=data).split()
        line = " ".join(arguments)
        if line in results:
            continue
        results[line] = {"figure": figure, "value": read(figure, run(arguments), folder)}
        write_file(path, json.dumps(results, indent=1, ensure_ascii=False).encode())
    report = markdown_table(table(results.values()))
    write_file(os.path.join(folder, "results.md"), report.encode())
    print(report)


def run(arguments):
    """Runs Python in the repository; returns what it printed. If it fails, so does this."""
    print("Running:", *arguments, file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise InputError(f"exit code {done.returncode} of python {' '.join(arguments)}")
    return done.stdout


def read(figure, printed, folder):
    """Returns the value of a command: BLEU, F1, the rows of a benchmark; None of a training."""
    if figure in BENCHMARKS:
        kind, part = BENCHMARKS[figure]
        path = os.path.join(folder, "benchmark", f"benchmark_{kind}.json")
        parts = json.loads(pathlib.Path(path).read_text())
        return {name: rows for name, rows in parts.items() if name.startswith(part)}
    if not figure:
        return None
    scores = json.loads(printed.splitlines()[-1])
    return scores["f1" if figure == "parsing" else "bleu"]


def table(results):
    """Returns the rows of the table: values, mean and standard deviation, published values."""
    published = {}
    for row in json.loads(PUBLISHED.read_text())["figures"]:
        published[row["figure"]] = ", ".join(f"{one['value']:.2f}" for one in row["runs"])
    values = {}
    for result in results:
        if result["figure"]:
            values.setdefault(result["figure"], []).append(result["value"])
    rows = []
    for figure, runs in values.items():
        if isinstance(runs[0], dict):  # of a benchmark
            cells = [json.dumps(runs[0], ensure_ascii=False), None, None]
        else:
            deviation = round(statistics.stdev(runs), 2) if len(runs) > 2 else None
            cells = [", ".join(f"{x:.2f}" for x in runs), statistics.fmean(runs), deviation]
        names = ("values", "mean", "standard deviation")
        row = {"figure": figure} | dict(zip(names, cells, strict=True))
        rows.append(row | {"published": published.get(figure)})
    return rows


if __name__ == "__main__":
    app.require("output_dir")
    app.run(main)
