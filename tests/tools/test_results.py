"""The figures of benchmarks.md and the list of commands that gives them."""

import ast
import json
import pathlib
import re
import statistics
import subprocess

import pytest
from results import COMMANDS, table

ROOT = pathlib.Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "tools" / "results.json").read_text())["figures"]
PAGE = (ROOT / "pipelines" / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["figure"])
def test_the_page_of_benchmarks_states_the_published_figures(row):
    values = [run["value"] for run in row["runs"]]
    if row["mean"] is not None:
        assert row["mean"] == pytest.approx(statistics.fmean(values), abs=0.0051)
        values = [row["mean"]]
    assert all(f"{value:.2f}" in PAGE for value in values)
    assert all(run["date"] and run["commit"] and run["machine"] for run in row["runs"])


def test_the_tool_measures_every_published_score():
    scores = {row["figure"] for row in PUBLISHED if row["mean"] is not None}
    assert scores <= {figure for commands in COMMANDS.values() for figure, _ in commands}
    for _, command in (pair for commands in COMMANDS.values() for pair in commands):
        assert re.match(r"-m pipelines\.(train|evaluate) |tools/benchmark\.py ", command)


def test_a_row_has_the_mean_and_the_deviation_of_its_seeds():
    values = [{"figure": "parsing", "value": value} for value in (1.0, 2.0, 6.0)]
    [row] = table([{"figure": "", "value": None}, *values])
    assert (row["mean"], row["standard deviation"]) == (3.0, 2.65)  # √7


# A speed names its commit, and the later change that outran it -----------------------------------

SEARCH = (
    "ops/int8.py",
    "ops/products.py",
    "decoding/beam_search.py",
    "decoding/batch_compaction.py",
)
MEASURED = {
    "Training speed": ("models/train_step.py", "ops/linear_cross_entropy.py"),
    "Beam search speed": SEARCH,
    "Serving": SEARCH,
}
"""{a section of benchmarks.md: the files of t2t_keras that decide its figures}"""
COMMIT = r"\b(?=[a-f]*\d)[0-9a-f]{7}\b"


def git(*arguments):
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def code_of(text):
    """Returns what a module computes: its code without docstrings, comments and messages."""
    tree = ast.parse(text or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            node.exc = None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""  # a docstring
    return ast.dump(tree)


def outrun_figures(page):
    """Returns the commits of figures whose files have other code today, without "before COMMIT".

    A paragraph and the table below it are one statement.
    """
    found = []
    for section, files in MEASURED.items():
        [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        for statement in re.split(r"\n\n(?!\|)", text):
            later = re.findall(rf"[Bb]efore ({COMMIT})", statement)
            for commit in set(re.findall(COMMIT, statement)) - {*later}:
                for file in files:
                    then = git("show", f"{commit}:t2t_keras/{file}")
                    now = (ROOT / "t2t_keras" / file).read_text()
                    is_named = any(
                        git("merge-base", "--is-ancestor", commit, change) is not None
                        for change in later
                    )
                    if code_of(then) != code_of(now) and not is_named:
                        found.append((section, commit, file))
    return found


def test_a_speed_is_that_of_todays_code_or_names_the_change_that_outran_it():
    commits = set(re.findall(COMMIT, PAGE))
    missing = [commit for commit in commits if git("cat-file", "-e", commit) is None]
    if missing:
        pytest.skip(
            f"the history lacks {', '.join(missing)}, as a shallow clone or an archive does"
        )
    assert not outrun_figures(PAGE)
    found = outrun_figures(PAGE.replace("efore 582a812", "in commit 582a812"))
    assert {"a1fcf2e", "e059e4c"} <= {commit for _, commit, _ in found}
