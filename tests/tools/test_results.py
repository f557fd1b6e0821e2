"""The figures of benchmarks.md and the list of commands that gives them."""

import json
import pathlib
import re
import statistics

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
